package enginereceiver

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/graphsignal/graphsignal-collector/extension/workloadextension"
	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

// buildEngine builds the stand-in engine under the given names.
func buildEngine(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	binary := filepath.Join(dir, names[0])
	out, err := exec.Command("go", "build", "-o", binary, "./internal/fakeengine").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range names[1:] {
		require.NoError(t, os.Link(binary, filepath.Join(dir, name)))
	}
	return dir
}

// startProcess runs a command until the test ends and returns its pid, once it has said where it listens.
func startProcess(t *testing.T, dir string, argv ...string) int {
	t.Helper()
	if !strings.Contains(os.Getenv("PATH"), dir) {
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "FAKEENGINE_RUN_TIME=1m") // so that none is left behind in any case
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "listening on "), line)
	return cmd.Process.Pid
}

// following is a host with the real workload extension, which follows the process.
func following(t *testing.T, pid int) component.Host {
	t.Helper()
	f := workloadextension.NewFactory()
	cfg := f.CreateDefaultConfig().(*workloadextension.Config)
	cfg.PID, cfg.SHMPath, cfg.PollInterval = pid, t.TempDir(), 10*time.Millisecond
	ext, err := f.Create(context.Background(), extensiontest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, ext.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, ext.Shutdown(context.Background())) })
	return hostWith{componenttest.NewNopHost(), ext}
}

type hostWith struct {
	component.Host
	extension component.Component
}

func (h hostWith) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("workload"): h.extension}
}

// TestEngineProcesses detects each engine in its command line, runs it with the adjusted one, and reads its page where
// detection says it is, as the launcher would have it done.
func TestEngineProcesses(t *testing.T) {
	dir := buildEngine(t, "vllm", "sglang", "trtllm-serve", "llama-server")
	options := filepath.Join(dir, "options.yaml")
	require.NoError(t, os.WriteFile(options, []byte("return_perf_metrics: true\n"), 0o600))
	for line, series := range map[string]string{
		"vllm serve m --disable-log-stats":                  "vllm:prompt_tokens counter {engine=3,",
		"env A=1 sglang serve --model m":                    "sglang:gen_throughput gauge {dp_rank=1,",
		"trtllm-serve m --extra_llm_api_options " + options: "trtllm_kv_cache_utilization gauge {engine_type=undefined,",
		"nice -n 1 llama-server -m m.gguf --host 0.0.0.0":   "llamacpp:tokens_predicted counter {} ",
		"nohup vllm serve m --host ::1":                     "vllm:prompt_tokens counter {engine=3,",
	} {
		t.Run(line, func(t *testing.T) {
			argv := append(strings.Fields(line), "--port", strconv.Itoa(freeport.Get(t)))
			engine := engines.Detect(argv, 0, os.LookupEnv)
			require.NotNil(t, engine.Endpoint)
			pid := startProcess(t, dir, engine.Argv...)
			sink := new(consumertest.MetricsSink)
			r := newReceiverOf(t, sink, func(c *Config) {
				c.Endpoint, c.MetricsPath, c.Engine = engine.Endpoint.BaseURL(), engine.Endpoint.Path, engine.Name
			})
			running(t, r, following(t, pid))
			eventually(t, "two pages", func() bool { return len(sink.AllMetrics()) >= 2 })
			got := decode(t, sink.AllMetrics()[1])
			at := slices.IndexFunc(got, func(l string) bool { return strings.HasPrefix(l, series) })
			require.GreaterOrEqual(t, at, 0, "%s is missing", series)
			if strings.Contains(series, " counter ") {
				assert.Contains(t, got[at], " since ", "the counter began with its process, or when the page says")
			}
		})
	}
}

// The engine listens nowhere and another server has its port (case 24).
func TestForeignProcessOnTheDefaultPort(t *testing.T) {
	dir := buildEngine(t, "vllm")
	port := strconv.Itoa(freeport.Get(t))
	startProcess(t, dir, filepath.Join(dir, "vllm"), "--port", port)
	workload := exec.Command("sleep", "60")
	require.NoError(t, workload.Start())
	defer func() {
		_ = workload.Process.Kill()
		_ = workload.Wait()
	}()
	host := following(t, workload.Process.Pid)
	refused, trusted := new(consumertest.MetricsSink), new(consumertest.MetricsSink)
	running(t, newReceiverOf(t, refused, func(c *Config) { c.Endpoint = "127.0.0.1:" + port }), host)
	running(t, newReceiverOf(t, trusted, func(c *Config) { c.Endpoint, c.VerifyOwner = "127.0.0.1:"+port, false }), host)
	eventually(t, "the page that is read all the same", func() bool { return len(trusted.AllMetrics()) >= 20 })
	assert.Empty(t, refused.AllMetrics())
}
