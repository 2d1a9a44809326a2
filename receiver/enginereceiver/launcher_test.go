package enginereceiver

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// document is what these tests read of /signals.
type document struct {
	Metrics []record `json:"metrics"`
	Errors  []struct {
		Level, Message string
	} `json:"errors"`
}

func (d document) named(name string) (all []record) {
	for _, r := range d.Metrics {
		if r.Name == name {
			all = append(all, r)
		}
	}
	return all
}

func (d document) message(part string) bool {
	for _, e := range d.Errors {
		if strings.Contains(e.Message, part) {
			return true
		}
	}
	return false
}

// TestUnderTheLauncher runs stand-in engines under the real launcher and collector and reads /signals.
func TestUnderTheLauncher(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the collector")
	}
	dir := buildEngine(t, "vllm", "trtllm-serve")
	for program, cgo := range map[string]string{"graphsignal-run": "0", "graphsignal-collector": "1"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, program), "./cmd/"+program)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	run := func(t *testing.T, what string, until func(document) bool, args ...string) {
		port := strconv.Itoa(freeport.Get(t))
		cmd := exec.Command("graphsignal-run", append([]string{"--listen-port", port}, args...)...)
		cmd.Env = append(os.Environ(), "FAKEENGINE_RUN_TIME=1m")
		require.NoError(t, cmd.Start())
		defer func() {
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait()
		}()
		transport := &http.Transport{DisableKeepAlives: true}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
		eventually(t, what, func() bool {
			resp, err := client.Get("http://127.0.0.1:" + port + "/signals")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			var d document
			return json.NewDecoder(resp.Body).Decode(&d) == nil && until(d)
		})
	}

	t.Run("page of the workload, its totals growing", func(t *testing.T) {
		var first float64
		run(t, "growing totals", func(d document) bool {
			assert.Empty(t, d.Errors)
			tokens := d.named("vllm:prompt_tokens")
			if len(tokens) != 4 {
				return false
			}
			total := *tokens[0].Stats["total"]
			if first == 0 {
				first = total
			}
			return total > first && len(d.named("vllm:time_to_first_token_seconds")) == 4
		}, "env", "A=1", "vllm", "serve", "m", "--disable-log-stats", "--port", strconv.Itoa(freeport.Get(t)))
	})
	t.Run("metrics not enabled", func(t *testing.T) {
		run(t, "the setting that is missing", func(d document) bool { return d.message("return_perf_metrics: true") },
			"trtllm-serve", "m", "--port", strconv.Itoa(freeport.Get(t)))
	})
	t.Run("another server has the port", func(t *testing.T) {
		port := strconv.Itoa(freeport.Get(t))
		startProcess(t, dir, "vllm", "serve", "--port", port)
		run(t, "the reason", func(d document) bool {
			assert.Empty(t, d.named("vllm:prompt_tokens"))
			return d.message("belongs to another process")
		}, "sh", "-c", "exec sleep 60", "--port", port)
		run(t, "the page all the same", func(d document) bool { return len(d.named("vllm:prompt_tokens")) == 4 },
			"--metrics-port", port, "sleep", "60")
	})
}
