package apikey

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestClean(t *testing.T) {
	for given, want := range map[string]string{
		"secret": "secret", "secret\n": "secret", " \tsecret \r\n": "secret", "two words": "two words", "sch\u00fcssel": "sch\u00fcssel",
		"": "", " \n": "", "secret\nsecret": "", "secret\rsecret": "", "sec\x00ret": "", "secret\x7f.": "",
	} {
		key, err := Clean(given)
		if key != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", given, key, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q is in the error: %v", given, err)
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	for content, want := range map[string]string{
		"secret\n": "secret", "  secret ": "secret", "": "", "\n\n": "", "secret\nsecret\n": "", "a\x01secret": "",
		strings.Repeat("k", maxFile+1): "",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := ReadFile(file)
		if key != want || (err != nil) != (want == "") {
			t.Errorf("%.20q: %q, %v", content, key, err)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), file)) {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, dir, os.DevNull, filepath.Join(dir, "absent")} {
		ended := make(chan error, 1)
		go func() {
			_, err := ReadFile(name)
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it waits", name)
		}
	}
}
