package enginepages

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/prom"
)

var update = flag.Bool("update", false, "write the pages anew")

// fixedStep is the step at which the pages in testdata stand.
const fixedStep = 60

func TestPages(t *testing.T) {
	for engine := range pages {
		body, ok := Page(engine, fixedStep)
		require.True(t, ok)
		path := filepath.Join("..", "..", "testdata", "pages", engine+".txt")
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, body, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(body), "%s differs; -update writes it anew", engine)

		// Every line is one, at every step, and no total falls.
		p := prom.NewParser(100_000)
		for step := range 5 {
			body, _ := Page(engine, step)
			page, err := p.Parse(bytes.Clone(body), "text/plain", int64(step+1))
			require.NoError(t, err)
			assert.Zero(t, page.Malformed, page.FirstMalformed)
			assert.NotEmpty(t, page.Series)
			for _, s := range page.Series {
				assert.Zero(t, s.Reset, "%s of %s", s.Name, engine)
			}
		}
	}
	_, ok := Page("generic", 1)
	assert.False(t, ok)
	vllm, _ := Page("vllm", fixedStep)
	assert.Greater(t, bytes.Count(vllm, []byte("\n")), 1500, "a busy page")
}
