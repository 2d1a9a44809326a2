package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// release is a directory with this test's own program and a file.
func release(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"bin/program": raw, "share/LICENSE": []byte("text\n")} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDocument(t *testing.T) {
	dir := release(t)
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := write(out, "demo", "1.2.3", time.Unix(1700000000, 0), dir); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two documents of the same files differ")
	}
	var doc document
	if err := json.Unmarshal(first.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Metadata.Timestamp != "2023-11-14T22:13:20Z" || doc.Metadata.Component.Version != "1.2.3" || len(doc.Serial) != len("urn:uuid:")+36 {
		t.Errorf("the head is %+v, %s", doc.Metadata, doc.Serial)
	}
	refs := make(map[string]component)
	for _, c := range doc.Components {
		if _, twice := refs[c.Ref]; twice {
			t.Errorf("%s is there twice", c.Ref)
		}
		refs[c.Ref] = c
	}
	if c := refs["file:bin/program"]; c.Type != "application" || len(c.Hashes) != 1 {
		t.Errorf("the program is %+v", c)
	}
	// sha256sum of "text\n"
	if c := refs["file:share/LICENSE"]; c.Hashes[0].Content != "b9e68e1bea3e5b19ca6b2f98b73a54b73daafaa250484902e09982e07a12e733" {
		t.Errorf("the file is %+v", c)
	}
	if !slices.ContainsFunc(doc.Components, func(c component) bool { return strings.HasPrefix(c.Ref, "pkg:golang/std@1.") }) {
		t.Error("the standard library is missing")
	}
	for _, d := range doc.Dependencies {
		for _, ref := range d.DependsOn {
			if _, ok := refs[ref]; !ok {
				t.Errorf("%s depends on %s, which is not there", d.Ref, ref)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	if err := write(&bytes.Buffer{}, "demo", "1", time.Now(), t.TempDir()); err == nil {
		t.Error("an empty directory has a bill of materials")
	}
	dir := release(t)
	if err := os.WriteFile(filepath.Join(dir, "bin/program"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := write(&bytes.Buffer{}, "demo", "1", time.Now(), dir); err == nil {
		t.Error("a program that does not tell its modules is accepted")
	}
	if _, err := creation("yesterday"); err == nil {
		t.Error("a bad SOURCE_DATE_EPOCH is accepted")
	}
}
