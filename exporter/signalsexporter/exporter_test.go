package signalsexporter

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/exporter/signalsexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
)

type storeBatch = store.Batch

func loggerOf(hub *selflog.Hub) *zap.Logger { return zap.New(hub.Tee(zap.NewNop().Core())) }

func TestConfig(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	load := func(name string) *Config {
		t.Helper()
		sub, err := conf.Sub(name)
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, sub.Unmarshal(cfg))
		return cfg
	}
	cfg := load("signals")
	require.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, createDefaultConfig(), cfg)
	assert.Equal(t, "127.0.0.1:18259", cfg.NetAddr.Endpoint)

	cfg = load("signals/all")
	require.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, "0.0.0.0:9000", cfg.NetAddr.Endpoint)
	assert.Equal(t, map[string]string{"host.name": "gpu-07", "team_name": "Infra"}, cfg.Tags)
	assert.Equal(t, "/tmp/signals.json", cfg.Output)
	assert.Equal(t, []string{"node7.example", "*"}, cfg.AllowedHosts)

	for name, message := range map[string]string{
		"signals/no_endpoint":            "endpoint must not be empty",
		"signals/no_port":                "endpoint: address localhost: missing port",
		"signals/bad_port":               "endpoint: address 127.0.0.1:99999: invalid port",
		"signals/empty_tag":              "a key must not be empty",
		"signals/allowed_host_with_port": "allowed_hosts: \"node7.example:80\" is not a host name",
		"signals/directory":              "output must name a file",
	} {
		assert.ErrorContains(t, confmap.Validate(load(name)), message)
	}
}

func TestAddressesThatMayBeBound(t *testing.T) {
	for _, address := range []string{":18259", "[::1]:0", "node7.example:18259", "0.0.0.0:http"} {
		cfg := createDefaultConfig().(*Config)
		cfg.NetAddr.Endpoint = address
		assert.NoError(t, confmap.Validate(cfg), address)
	}
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr = confignet.AddrConfig{Transport: confignet.TransportTypeUnix, Endpoint: "/run/signals.sock"}
	assert.NoError(t, confmap.Validate(cfg))
}

func TestLifecycle(t *testing.T) {
	ctx := context.Background()
	factory := NewFactory()
	assert.Equal(t, metadata.Type, factory.Type())
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = "127.0.0.1:0"
	set := exportertest.NewNopSettings(metadata.Type)

	t.Run("shutdown without start", func(t *testing.T) {
		e, err := factory.CreateMetrics(ctx, set, cfg)
		require.NoError(t, err)
		require.NoError(t, e.Shutdown(ctx))
		l, err := factory.CreateLogs(ctx, set, cfg)
		require.NoError(t, err)
		require.NoError(t, l.Shutdown(ctx))
	})
	t.Run("twice", func(t *testing.T) {
		for range 2 {
			e, err := factory.CreateMetrics(ctx, set, cfg)
			require.NoError(t, err)
			assert.False(t, e.Capabilities().MutatesData)
			require.NoError(t, e.Start(ctx, componenttest.NewNopHost()))
			require.NoError(t, e.ConsumeMetrics(ctx, pmetric.NewMetrics()))
			require.NoError(t, e.Shutdown(ctx))
		}
	})
	t.Run("no traces", func(t *testing.T) {
		_, err := factory.CreateTraces(ctx, set, cfg)
		assert.Error(t, err)
	})
}

// TestOneInstance checks that the pipelines of one exporter share a document, and that it lives until the last
// of them is drained.
func TestOneInstance(t *testing.T) {
	ctx := context.Background()
	output := filepath.Join(t.TempDir(), "signals.json")
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = "127.0.0.1:0"
	cfg.Output = output
	set := exportertest.NewNopSettings(metadata.Type)
	factory := NewFactory()
	metrics, err := factory.CreateMetrics(ctx, set, cfg)
	require.NoError(t, err)
	logs, err := factory.CreateLogs(ctx, set, cfg)
	require.NoError(t, err)
	h := newHost()
	require.NoError(t, metrics.Start(ctx, h))
	require.NoError(t, logs.Start(ctx, h))
	assert.Len(t, h.log(), 1, "started once")

	b := signal.NewBuilder("test")
	b.Resource(nil, nil).Gauge("g", nil, series.Int(1), 0, 1<<62)
	require.NoError(t, metrics.ConsumeMetrics(ctx, b.Metrics()))
	require.NoError(t, metrics.Shutdown(ctx))
	_, err = os.Stat(output)
	require.ErrorIs(t, err, os.ErrNotExist)

	ld := plog.NewLogs()
	signal.AppendError(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords(), signal.ErrorEntry{Level: "error", Message: "exit code 7"})
	require.NoError(t, logs.ConsumeLogs(ctx, ld))
	resp, err := http.Get("http://" + <-h.bound + "/health")
	require.NoError(t, err)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, logs.Shutdown(ctx))

	data, err := os.ReadFile(output)
	require.NoError(t, err)
	assert.True(t, json.Valid(data))
	assert.Contains(t, string(data), `"name": "g"`)
	assert.Contains(t, string(data), `"message": "exit code 7"`)
	entries, err := os.ReadDir(filepath.Dir(output))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file is left")
}

func TestOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.json")
	require.NoError(t, writeOutput(path, []byte("one")))
	require.NoError(t, os.Chmod(path, 0o600))
	link := filepath.Join(dir, "link.json")
	require.NoError(t, os.Symlink("out.json", link))
	require.NoError(t, checkOutput(link))
	require.NoError(t, writeOutput(link, []byte("two")))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays a link")

	info, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "a file that was there keeps its mode")

	fifo, circle := filepath.Join(dir, "fifo"), filepath.Join(dir, "circle")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.NoError(t, os.Symlink("circle", circle))
	for _, bad := range []string{fifo, circle, dir, filepath.Join(dir, "absent", "x.json"), filepath.Join(path, "x.json")} {
		assert.Error(t, checkOutput(bad), bad)
		assert.Error(t, writeOutput(bad, []byte("x")), bad)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 4)
}

// TestOutputLeavesLinksOfOthers: in a directory like /tmp somebody may have put a link in the file's place.
func TestOutputLeavesLinksOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's link needs root")
	}
	open, private := t.TempDir(), filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.WriteFile(private, []byte("mine"), 0o600))
	require.NoError(t, os.Chmod(open, 0o777|os.ModeSticky))
	require.NoError(t, os.Chown(open, 4243, 4243))
	for name, uid := range map[string]int{"stranger": 4242, "own": 0, "owner": 4243} {
		require.NoError(t, os.Symlink(private, filepath.Join(open, name)))
		require.NoError(t, os.Lchown(filepath.Join(open, name), uid, uid))
	}
	assert.ErrorContains(t, writeOutput(filepath.Join(open, "stranger"), []byte("x")), "is a link of user 4242")
	assert.ErrorContains(t, checkOutput(filepath.Join(open, "stranger")), "is a link of user 4242")
	data, err := os.ReadFile(private)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(data))
	for _, fine := range []string{"own", "owner"} {
		require.NoError(t, writeOutput(filepath.Join(open, fine), []byte(fine)))
		data, err := os.ReadFile(private)
		require.NoError(t, err)
		assert.Equal(t, fine, string(data))
	}
}

// TestOutputThatCannotBeWritten is reported at the start and at the end, to the launcher in the same words, and stops nothing.
func TestOutputThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for path, reason := range map[string]string{
		filepath.Join(dir, "absent", "x.json"): "no such file or directory",
		dir:                                    dir + " is not a regular file",
	} {
		r := start(t, func(c *Config) { c.Output = path })
		assert.Contains(t, r.get().errors, "The output file cannot be written as things are")
		err := r.Shutdown(context.Background())
		assert.ErrorContains(t, err, "the final document was not written")
		warning := "warning the final document cannot be written to " + path + ": " + reason
		assert.Equal(t, []string{warning, warning}, warningsOf(r.host))
	}
	if os.Geteuid() == 0 {
		return // nothing is forbidden
	}
	require.NoError(t, os.Chmod(dir, 0o500))
	assert.ErrorContains(t, checkOutput(filepath.Join(dir, "x.json")), "permission denied")
}

func warningsOf(h *host) []string {
	return slices.DeleteFunc(h.log(), func(event string) bool { return !strings.HasPrefix(event, "warning ") })
}

var _ exporter.Metrics = (*signalsExporter)(nil)
var _ exporter.Logs = (*signalsExporter)(nil)
