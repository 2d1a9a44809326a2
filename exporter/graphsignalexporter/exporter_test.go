package graphsignalexporter

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/exporter/graphsignalexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/ingest"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConfig(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	load := func(name string) *Config {
		sub, err := all.Sub(name)
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, sub.Unmarshal(cfg))
		return cfg
	}
	cfg := load("graphsignal/least")
	require.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, "https://api.graphsignal.com", cfg.Endpoint)
	assert.Equal(t, time.Second, cfg.Interval)
	assert.NotContains(t, fmt.Sprintf("%v %+v", cfg.APIKey, cfg), "secret")

	cfg = load("graphsignal/all")
	require.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, "/run/secrets/graphsignal", cfg.APIKeyFile)
	assert.Equal(t, 5*time.Second, cfg.Interval)
	assert.Equal(t, "/etc/ssl/own-ca.pem", cfg.TLS.CAFile)
	assert.Equal(t, "gpu-07", cfg.Tags["host.name"])

	for name, message := range map[string]string{
		"graphsignal/no_tag":   "tags: a key must not be empty",
		"graphsignal/no_key":   "api_key or api_key_file is required",
		"graphsignal/two_keys": "exclude each other",
		"graphsignal/no_url":   "no http or https URL",
		"graphsignal/query":    "no http or https URL",
		"graphsignal/hasty":    "at least 100ms",
	} {
		assert.ErrorContains(t, confmap.Validate(load(name)), message)
	}
}

func TestKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	for _, cfg := range []*Config{{APIKeyFile: file}, {APIKey: "secret"}, {APIKey: " secret\r\n"}} {
		key, err := cfg.key()
		require.NoError(t, err)
		assert.Equal(t, "secret", key)
	}
	_, err := (&Config{APIKeyFile: file + ".absent"}).key()
	assert.ErrorIs(t, err, os.ErrNotExist)
	cfg := createDefaultConfig().(*Config)
	cfg.APIKey = "secret\nsecret"
	err = confmap.Validate(cfg)
	assert.ErrorContains(t, err, "api_key: there is more than one line in it")
	assert.NotContains(t, err.Error(), "secret")
}

func TestLifecycle(t *testing.T) {
	ctx := context.Background()
	factory := NewFactory()
	assert.Equal(t, metadata.Type, factory.Type())
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.APIKey, cfg.Endpoint = "secret", "http://127.0.0.1:9"
	set := exportertest.NewNopSettings(metadata.Type)
	for range 2 {
		metrics, err := factory.CreateMetrics(ctx, set, cfg)
		require.NoError(t, err)
		logs, err := factory.CreateLogs(ctx, set, cfg)
		require.NoError(t, err)
		require.NoError(t, metrics.Start(ctx, componenttest.NewNopHost()))
		require.NoError(t, logs.Start(ctx, componenttest.NewNopHost()))
		assert.False(t, metrics.Capabilities().MutatesData)
		require.NoError(t, metrics.ConsumeMetrics(ctx, pmetric.NewMetrics()))
		require.NoError(t, logs.ConsumeLogs(ctx, plog.NewLogs()))
		require.NoError(t, metrics.Shutdown(ctx))
		require.NoError(t, logs.Shutdown(ctx))
	}
	e, err := factory.CreateMetrics(ctx, set, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Shutdown(ctx), "shutdown without start")

	cfg.APIKey, cfg.APIKeyFile = "", filepath.Join(t.TempDir(), "absent")
	e, err = factory.CreateMetrics(ctx, set, cfg)
	require.NoError(t, err)
	require.ErrorIs(t, e.Start(ctx, componenttest.NewNopHost()), os.ErrNotExist)
	require.NoError(t, e.Shutdown(ctx))
}

// TestUploadOverTLS: metrics and logs of two pipelines arrive at a server with a certificate of its own authority,
// and Shutdown of the last pipeline brings what came after the last tick.
func TestUploadOverTLS(t *testing.T) {
	server := &ingest.Server{Key: "secret"}
	listener := httptest.NewTLSServer(server)
	defer listener.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listener.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, certificate, 0o600))

	ctx := context.Background()
	factory := NewFactory()
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.Endpoint, cfg.APIKey, cfg.TLS.CAFile = listener.URL, "secret", authority
	cfg.Interval = 100 * time.Millisecond
	cfg.Tags = map[string]string{"instance.id": "run-1"}
	set := exportertest.NewNopSettings(metadata.Type)
	metrics, err := factory.CreateMetrics(ctx, set, cfg)
	require.NoError(t, err)
	logs, err := factory.CreateLogs(ctx, set, cfg)
	require.NoError(t, err)
	for _, c := range []component.Component{metrics, logs} {
		require.NoError(t, c.Start(ctx, componenttest.NewNopHost()))
	}
	count := func(total int64) {
		b := signal.NewBuilder("test")
		b.Resource(nil, nil).Counter("steps", nil, series.Int(total), 1, time.Now().UnixNano())
		require.NoError(t, metrics.ConsumeMetrics(ctx, b.Metrics()))
	}
	steps := func() (total float64) {
		server.Read("run-1", func(in *ingest.Instance) {
			if in == nil {
				return
			}
			for _, s := range in.Series {
				total = s.Value
			}
		})
		return total
	}
	count(40)
	require.Eventually(t, func() bool { return steps() == 40 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, metrics.Shutdown(ctx))
	count(41)
	ld := plog.NewLogs()
	signal.AppendError(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords(),
		signal.ErrorEntry{Level: "error", Message: "last words", Time: 7, Tags: []signal.ErrorTag{{Key: "process.pid", Value: "4242"}}})
	require.NoError(t, logs.ConsumeLogs(ctx, ld))
	require.NoError(t, logs.Shutdown(ctx))
	assert.Equal(t, 41.0, steps())
	server.Read("run-1", func(in *ingest.Instance) {
		require.Len(t, in.Logs, 1)
		assert.Equal(t, "last words", in.Logs[0].Message)
	})
	assert.Empty(t, server.Faults())

	// The loop closes: what was uploaded can be read back.
	for path, want := range map[string]int{"/api/v1/instances": http.StatusOK, "/api/v1/signals?instance_id=run-1&start=0": http.StatusOK, "/api/v1/signals?instance_id=other&start=0": http.StatusNotFound} {
		req, err := http.NewRequest(http.MethodGet, listener.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("X-API-Key", "secret")
		resp, err := listener.Client().Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, want, resp.StatusCode, path)
	}
	listener.Client().CloseIdleConnections()
}

// TestWhatIsLeftOutIsTold: the exporter may be the only one that sees these data.
func TestWhatIsLeftOutIsTold(t *testing.T) {
	server := &ingest.Server{}
	listener := httptest.NewServer(server)
	defer listener.Close()
	core, told := observer.New(zap.WarnLevel)
	set := exportertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	cfg := NewFactory().CreateDefaultConfig().(*Config)
	cfg.Endpoint, cfg.APIKey = listener.URL, "secret"
	e, err := NewFactory().CreateMetrics(context.Background(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(context.Background(), componenttest.NewNopHost()))
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("requests")
	m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	m.Sum().DataPoints().AppendEmpty().SetIntValue(1)
	require.NoError(t, e.ConsumeMetrics(context.Background(), md))
	require.NoError(t, e.Shutdown(context.Background()))
	require.Equal(t, 1, told.FilterMessageSnippet("upload: 1 data points").FilterMessageSnippet("the first of requests").Len(), "%v", told.All())
}
