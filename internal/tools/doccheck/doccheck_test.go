package doccheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBrokenLinks(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "other.md"), "# A heading, with `code` & [link](x.md)\n## Twice\n## Twice\n")
	page := write(t, filepath.Join(root, "page.md"), strings.Join([]string{
		"# Top",
		"[good](other.md) ![good](other.md) [good](#top) [good](other.md#a-heading-with-code--link) [good](other.md#twice-1)",
		"[outside](https://example.com/x.md) `[code](nowhere.md)`",
		"```",
		"[in a block](nowhere.md)",
		"```",
		"[bad](missing.md) [bad](other.md#thrice) [bad](#bottom) [bad](../../etc/passwd)",
	}, "\n"))
	p, err := Read(page)
	if err != nil {
		t.Fatal(err)
	}
	broken := p.BrokenLinks(root)
	if len(broken) != 4 {
		t.Fatalf("%q", broken)
	}
	for i, want := range []string{"missing.md: there is no such file", "other.md#thrice: there is no such heading", "#bottom: there is no such heading", "leads out"} {
		if !strings.Contains(broken[i], want) {
			t.Errorf("%q does not say %q", broken[i], want)
		}
	}
}

func TestBlocks(t *testing.T) {
	page := write(t, filepath.Join(t.TempDir(), "p.md"), "```sh run\na\n~~~\nb\n```\n````text\n```sh\n````\n~~~yaml\nc: d\n~~~\n")
	p, err := Read(page)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range p.Blocks {
		got = append(got, b.Language+"|"+b.Mark+"|"+b.Text)
	}
	if want := []string{"sh|run|a\n~~~\nb\n", "text||```sh\n", "yaml||c: d\n"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := Read(write(t, page, "x\n```\nopen")); err == nil || !strings.Contains(err.Error(), ":2:") {
		t.Errorf("an open block: %v", err)
	}
}
