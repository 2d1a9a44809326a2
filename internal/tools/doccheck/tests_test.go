package doccheck

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	goTest     = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z0-9]\w*)\(`)
	nativeTest = regexp.MustCompile(`(?m)^TEST\((\w+)\)`)
	testName   = regexp.MustCompile(`^(?:Test|Fuzz)[A-Z0-9]\w*`)
)

// testIndex maps a package's folder, or a native source file, to the tests in it.
type testIndex map[string][]string

func indexTests(t *testing.T, root string) testIndex {
	t.Helper()
	index := make(testIndex)
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{".git", "build", "bin", "lib", "dist"}, entry.Name())):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		pattern, key := goTest, filepath.Dir(path)
		switch {
		case strings.HasSuffix(path, "_test.go"):
		case strings.HasSuffix(path, "_test.cpp"):
			pattern, key = nativeTest, path
		default:
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if key, err = filepath.Rel(root, key); err != nil {
			return err
		}
		for _, m := range pattern.FindAllStringSubmatch(string(data), -1) {
			index[filepath.ToSlash(key)] = append(index[filepath.ToSlash(key)], m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// missing returns what a cell with tests names that does not exist. A folder or a native file in backquotes says where
// the names behind it are; a Go test without one may be anywhere. The second result is how many tests were named.
func (index testIndex) missing(cell string) (missing []string, named int) {
	place := ""
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		word := m[1]
		if _, ok := index[word]; ok {
			place = word
			continue
		}
		name := testName.FindString(word)
		switch {
		case name != "":
		case strings.HasSuffix(place, ".cpp") || strings.Contains(word, "Test"):
			name = word
		default:
			continue // a command, a file
		}
		named++
		found := slices.Contains(index[place], name)
		if place == "" {
			for _, names := range index {
				found = found || slices.Contains(names, name)
			}
		}
		if !found {
			missing = append(missing, strings.TrimSpace(place+" "+name))
		}
	}
	return missing, named
}

// TestNamedTestsExist looks for the tests that pages promise: those in the last cell of every table row.
func TestNamedTestsExist(t *testing.T) {
	root := projectRoot(t)
	index := indexTests(t, root)
	for _, page := range []string{"cases.md", "reliability.md", "security.md"} {
		path := filepath.Join(root, "docs", page)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tests := false // of a table whose last column is that of tests
		for i, line := range strings.Split(string(data), "\n") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			if !strings.HasPrefix(line, "|") || len(cells) < 2 {
				tests = false
				continue
			}
			last := strings.TrimSpace(cells[len(cells)-1])
			switch {
			case last == "test" || last == "tests":
				tests = true
			case tests && strings.Trim(last, "-:") != "":
				missing, named := index.missing(last)
				for _, m := range missing {
					t.Errorf("docs/%s:%d: there is no test %s", page, i+1, m)
				}
				if named == 0 {
					t.Errorf("docs/%s:%d: no test is named", page, i+1)
				}
			}
		}
	}
}

func TestMissing(t *testing.T) {
	index := testIndex{"e2e": {"TestA"}, "launcher": {"TestB"}, "inject/x_test.cpp": {"a_case"}}
	for cell, want := range map[string]string{
		"`TestA`, `TestB`": "[] 2", "`e2e` `TestA`; `launcher` `TestB/part`": "[] 2", "`e2e` `TestB`": "[e2e TestB] 1",
		"`inject/x_test.cpp` `a_case`, `b_case`": "[inject/x_test.cpp b_case] 2", "`TestC`": "[TestC] 1", "nothing, `make test`": "[] 0",
		"`e2e` `TestA`, `launcher/TestB`": "[e2e launcher/TestB] 2",
	} {
		missing, named := index.missing(cell)
		if got := fmt.Sprint(missing, named); got != want {
			t.Errorf("%s: %s, want %s", cell, got, want)
		}
	}
}
