package doccheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	directRequire = regexp.MustCompile(`^\t([^\s/]+\.[^\s]+) v\S+$`)
	quoted        = regexp.MustCompile("`([^`]+)`")
	modulePath    = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9./_~-]+$`)
	neededPackage = regexp.MustCompile(`(?m)^need \S+ (\S+)$|optional="([a-z0-9+.-]+)"`)
)

// directModules are the modules that a go.mod requires directly, and those of its tools.
func directModules(goMod string) (modules []string) {
	var all, tools []string
	block := ""
	for line := range strings.Lines(goMod) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasSuffix(line, "("):
			block = strings.TrimSuffix(line, " (")
		case line == ")":
			block = ""
		case block == "tool":
			tools = append(tools, strings.TrimSpace(line))
		case block == "require":
			if m := directRequire.FindStringSubmatch(line); m != nil {
				modules = append(modules, m[1])
			}
			all = append(all, strings.Fields(line)[0])
		}
	}
	for _, tool := range tools {
		longest := ""
		for _, module := range all {
			if (tool == module || strings.HasPrefix(tool, module+"/")) && len(module) > len(longest) {
				longest = module
			}
		}
		modules = append(modules, longest)
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// firstCells are the words in backquotes in the first cells of a page's table rows.
func firstCells(page string) (words []string) {
	for line := range strings.Lines(page) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				words = append(words, m[1])
			}
		}
	}
	return words
}

// TestDependencies compares docs/dependencies.md with what is depended on.
func TestDependencies(t *testing.T) {
	root := projectRoot(t)
	text := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	told := firstCells(text("docs/dependencies.md"))
	direct := directModules(text("go.mod"))
	if len(direct) < 20 {
		t.Fatalf("go.mod is not understood: %q", direct)
	}
	for _, module := range direct {
		if !slices.Contains(told, module) {
			t.Errorf("docs/dependencies.md does not have %s", module)
		}
	}
	for _, word := range told {
		if modulePath.MatchString(word) && !slices.Contains(direct, word) {
			t.Errorf("docs/dependencies.md has %s, which is no direct dependency", word)
		}
	}
	packages := neededPackage.FindAllStringSubmatch(text("scripts/deps.sh"), -1)
	if len(packages) < 5 {
		t.Fatalf("scripts/deps.sh is not understood: %q", packages)
	}
	for _, m := range packages {
		if name := m[1] + m[2]; !slices.Contains(told, name) {
			t.Errorf("docs/dependencies.md does not have the package %s", name)
		}
	}
}

func TestDirectModules(t *testing.T) {
	got := directModules("module m\n\ntool (\n\ta.org/x/cmd/y\n\tb.org/z\n)\n\nrequire (\n\tc.org/c v1\n\tc.org/d v1 // indirect\n)\n\n" +
		"require (\n\ta.org/x v1 // indirect\n\ta.org/x/cmd v1 // indirect\n\tb.org/z v2 // indirect\n)\n")
	if want := []string{"a.org/x/cmd", "b.org/z", "c.org/c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
