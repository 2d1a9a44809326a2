package enginereceiver

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/tinymodel"
)

// TestLlamaServer reads the page of a real engine, where one is installed (Debian's package llama.cpp-tools), before and
// after it has made some tokens.
func TestLlamaServer(t *testing.T) {
	if _, err := exec.LookPath("llama-server"); err != nil {
		t.Skip("llama-server is not installed")
	}
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, os.WriteFile(model, tinymodel.New(), 0o600))
	port := strconv.Itoa(freeport.Get(t))
	engine := engines.Detect([]string{"llama-server", "-m", model, "--port", port, "-t", "1", "-np", "1"}, 0, os.LookupEnv)
	require.Equal(t, engines.LlamaCPP, engine.Name)
	cmd := exec.Command(engine.Argv[0], engine.Argv[1:]...)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	sink := new(consumertest.MetricsSink)
	running(t, newReceiverOf(t, sink, func(c *Config) {
		c.Endpoint, c.MetricsPath, c.Engine = engine.Endpoint.BaseURL(), engine.Endpoint.Path, engine.Name
	}), following(t, cmd.Process.Pid))
	newest := func() []string {
		all := sink.AllMetrics()
		if len(all) == 0 {
			return nil
		}
		return decode(t, all[len(all)-1])
	}
	value := func(lines []string, name string) string {
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+" ") })
		if at < 0 {
			return ""
		}
		rest := lines[at][strings.Index(lines[at], "}")+2:]
		v, _, _ := strings.Cut(rest, " ")
		return v
	}
	eventually(t, "a page", func() bool { return newest() != nil })
	assert.Equal(t, "0.0", value(newest(), "llamacpp:tokens_predicted"))
	assert.Contains(t, strings.Join(newest(), "\n"), "llamacpp:tokens_predicted counter {} 0.0 since ")

	// The metrics page is there before the model is; tokens can be asked for a little later.
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	eventually(t, "tokens", func() bool {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+net.JoinHostPort("127.0.0.1", port)+"/completion",
			strings.NewReader(`{"prompt": "hello", "n_predict": 20, "ignore_eos": true}`))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	eventually(t, "them counted", func() bool { return value(newest(), "llamacpp:tokens_predicted") == "20.0" })
	got := newest()
	assert.NotEqual(t, "0.0", value(got, "llamacpp:prompt_tokens"))
	for _, gauge := range []string{"requests_processing", "requests_deferred", "n_busy_slots_per_decode", "predicted_tokens_seconds"} {
		assert.NotEmpty(t, value(got, "llamacpp:"+gauge), gauge)
	}
	t.Log("\n" + strings.Join(got, "\n"))
}
