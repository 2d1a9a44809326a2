package slimtelemetry

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"go.uber.org/zap/zapcore"

	"github.com/graphsignal/graphsignal-collector/internal/selflog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t *testing.T, name string) *Config {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := conf.Sub(name)
	require.NoError(t, err)
	cfg := NewFactory().CreateDefaultConfig()
	require.NoError(t, sub.Unmarshal(cfg))
	return cfg.(*Config)
}

func TestConfig(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	cfg := load(t, "empty")
	assert.Equal(t, createDefaultConfig(), cfg)
	assert.NoError(t, confmap.Validate(cfg))
	assert.Empty(t, cfg.ignored())

	cfg = load(t, "all")
	assert.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, LogsConfig{
		Level: zapcore.DebugLevel, Development: true, Encoding: "json", DisableCaller: true, DisableStacktrace: true,
		Sampling:    &SamplingConfig{Enabled: true, Tick: time.Second, Initial: 5, Thereafter: 7},
		OutputPaths: []string{"stdout"}, ErrorOutputPaths: []string{"stdout"}, InitialFields: map[string]any{"a": 1},
		Processors: []any{map[string]any{"batch": map[string]any{"exporter": nil}}}, DisableZapResource: true,
	}, cfg.Logs)
	assert.Equal(t, []string{"metrics::readers", "metrics::address", "metrics::views", "traces::processors", "logs::processors"}, cfg.ignored())

	assert.ErrorContains(t, confmap.Validate(load(t, "bad_encoding")), "logs::encoding")
	assert.ErrorContains(t, confmap.Validate(load(t, "bad_sampling")), "logs::sampling")
}

// TestLogger checks what reaches the file and what the hub.
func TestLogger(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "log")
	cfg := load(t, "empty")
	cfg.Logs.OutputPaths = []string{file}
	cfg.Logs.Level = zapcore.ErrorLevel
	cfg.Metrics = map[string]any{"readers": []any{}}
	before := selflog.Default.Version()
	last := uint64(0)
	for _, e := range selflog.Default.Entries(nil, 0) {
		last = e.Sequence
	}
	logger, shutdown, err := NewFactory().CreateLogger(ctx, telemetry.LoggerSettings{}, cfg)
	require.NoError(t, err)
	for range 50 {
		logger.Warn("only for the hub")
		logger.Error("for both")
	}
	require.NoError(t, shutdown(ctx))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(data), "only for the hub")
	assert.Equal(t, 10, strings.Count(string(data), "for both"), "sampled")
	assert.Equal(t, before+101, selflog.Default.Version())
	entries := selflog.Default.Entries(nil, last)
	require.Len(t, entries, 3)
	assert.Contains(t, entries[0].Error.Message, "without effect: metrics::readers")
	assert.Equal(t, 50, entries[1].Count)
	assert.Equal(t, 50, entries[2].Count)
}

func TestLoggerThatCannotBeBuilt(t *testing.T) {
	cfg := load(t, "empty")
	cfg.Logs.OutputPaths = []string{filepath.Join(t.TempDir(), "absent", "log")}
	_, _, err := NewFactory().CreateLogger(context.Background(), telemetry.LoggerSettings{}, cfg)
	assert.Error(t, err)
}

func TestNoMetricsAndTraces(t *testing.T) {
	ctx := context.Background()
	cfg := createDefaultConfig()
	meters, err := NewFactory().CreateMeterProvider(ctx, telemetry.MeterSettings{}, cfg)
	require.NoError(t, err)
	assert.IsType(t, noop.Meter{}, meters.Meter("x"))
	require.NoError(t, meters.Shutdown(ctx))
	tracers, err := NewFactory().CreateTracerProvider(ctx, telemetry.TracerSettings{}, cfg)
	require.NoError(t, err)
	assert.IsType(t, nooptrace.Tracer{}, tracers.Tracer("x"))
	require.NoError(t, tracers.Shutdown(ctx))
}
