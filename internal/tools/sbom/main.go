// Command sbom writes the software bill of materials of a release: a CycloneDX 1.5 document, as JSON, of the files below
// a directory and of the Go modules that are compiled into its programs, as the programs themselves tell
// (`go version -m`). The same files and time give the same document.
//
// usage: sbom -name NAME -version VERSION DIRECTORY
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	name := flag.String("name", "", "name of the release")
	version := flag.String("version", "", "version of the release")
	flag.Parse()
	if *name == "" || *version == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom -name NAME -version VERSION DIRECTORY")
		os.Exit(2)
	}
	created, err := creation(os.Getenv("SOURCE_DATE_EPOCH"))
	if err == nil {
		err = write(os.Stdout, *name, *version, created, flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

// creation is the time that reproducible builds are given, else now.
func creation(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is no number of seconds: %q", epoch)
	}
	return time.Unix(seconds, 0), nil
}

// The parts of CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json) that are used.
type document struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

func write(out io.Writer, name, version string, created time.Time, dir string) error {
	root := component{Type: "application", Ref: "release", Name: name, Version: version}
	doc := document{Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata: metadata{Timestamp: created.UTC().Format(time.RFC3339), Component: root}}
	modules := make(map[string]component)
	whole := dependency{Ref: root.Ref}
	content := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		shown, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		file := component{Type: "file", Ref: "file:" + filepath.ToSlash(shown), Name: filepath.ToSlash(shown), Hashes: []hash{{"SHA-256", sum}}}
		fmt.Fprintf(content, "%s %s\n", sum, file.Name)
		whole.DependsOn = append(whole.DependsOn, file.Ref)
		info, err := buildinfo.ReadFile(path)
		if err == nil {
			file.Type = "application"
			file.Version = version
			depends := dependency{Ref: file.Ref}
			for _, m := range modulesOf(info) {
				modules[m.Ref] = m
				depends.DependsOn = append(depends.DependsOn, m.Ref)
			}
			slices.Sort(depends.DependsOn)
			doc.Dependencies = append(doc.Dependencies, depends)
		} else if isGoProgram(path) {
			return fmt.Errorf("%s: %w", path, err)
		}
		doc.Components = append(doc.Components, file)
		return nil
	})
	if err != nil {
		return err
	}
	if len(doc.Components) == 0 {
		return errors.New("there are no files in " + dir)
	}
	for _, m := range modules {
		doc.Components = append(doc.Components, m)
	}
	slices.SortFunc(doc.Components, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	doc.Dependencies = append(doc.Dependencies, whole)
	slices.SortFunc(doc.Dependencies, func(a, b dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	id := content.Sum(nil)[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8: made from the content
	doc.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(doc)
}

// modulesOf lists the modules and the standard library in a Go program.
func modulesOf(info *debug.BuildInfo) []component {
	std := strings.TrimPrefix(info.GoVersion, "go")
	list := []component{{Type: "library", Ref: "pkg:golang/std@" + std, Name: "std", Version: std, PURL: "pkg:golang/std@" + std}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
		if m.Sum != "" {
			c.Properties = []property{{"go:sum", m.Sum}}
		}
		list = append(list, c)
	}
	return list
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// isGoProgram reports whether a file is one of ours that must tell what it was built from: everything in bin.
func isGoProgram(path string) bool { return filepath.Base(filepath.Dir(path)) == "bin" }
