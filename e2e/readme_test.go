package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeExamples: every component's README has an example, and the Collector takes it as it stands.
func TestReadmeExamples(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "*", "*", "metadata.yaml"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d components, %v", len(pages), err)
	}
	for _, page := range pages {
		page = filepath.Join(filepath.Dir(page), "README.md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		examples := 0
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			example, _, _ := strings.Cut(block, "```")
			if !strings.Contains(example, "\nservice:") {
				continue // a part
			}
			examples++
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
				t.Fatal(err)
			}
			validate := exec.Command(filepath.Join(bin, "graphsignal-collector"), "validate", "--config", file)
			validate.Env = append(cleanEnv(), "GRAPHSIGNAL_API_KEY="+apiKey)
			if out, err := validate.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", page, err, out)
			}
		}
		if examples == 0 {
			t.Errorf("%s has no example", page)
		}
	}
}
