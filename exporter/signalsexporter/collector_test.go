package signalsexporter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/telemetry/slimtelemetry"
)

var sourceType = component.MustNewType("source")

// source is a receiver that sends once at its start and once at its shutdown.
type source struct {
	logger *zap.Logger
	send   func(name string) error
}

func (s *source) Start(context.Context, component.Host) error {
	s.logger.Warn("A source is strange")
	return s.send("first")
}

func (s *source) Shutdown(context.Context) error { return s.send("last") }

func newSourceFactory() receiver.Factory {
	return receiver.NewFactory(sourceType, func() component.Config { return &struct{}{} },
		receiver.WithMetrics(func(_ context.Context, set receiver.Settings, _ component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			return &source{set.Logger, func(name string) error {
				b := signal.NewBuilder("source")
				b.Resource(nil, nil).Gauge(name, nil, series.Int(1), 0, time.Now().UnixNano())
				return next.ConsumeMetrics(context.Background(), b.Metrics())
			}}, nil
		}, component.StabilityLevelBeta),
		receiver.WithLogs(func(_ context.Context, set receiver.Settings, _ component.Config, next consumer.Logs) (receiver.Logs, error) {
			return &source{set.Logger, func(name string) error {
				ld := plog.NewLogs()
				signal.AppendError(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords(), signal.ErrorEntry{Level: "error", Message: name})
				return next.ConsumeLogs(context.Background(), ld)
			}}, nil
		}, component.StabilityLevelBeta))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
}

// TestInsideACollector runs the exporter in a real Collector with both pipelines: the document over HTTP, then
// the final one with what receivers send during their shutdown.
func TestInsideACollector(t *testing.T) {
	address := freeAddress(t)
	output := filepath.Join(t.TempDir(), "final.json")
	config := strings.NewReplacer("ADDRESS", address, "OUTPUT", output).Replace(`
receivers:
  source:
exporters:
  signals:
    endpoint: ADDRESS
    output: OUTPUT
    tags: {team_name: Infra, host.name: gpu-07}
service:
  telemetry:
    logs: {output_paths: [/dev/null]}
    metrics: {level: none}
  pipelines:
    metrics: {receivers: [source], exporters: [signals]}
    logs: {receivers: [source], exporters: [signals]}
`)
	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.NewDefaultBuildInfo(),
		Factories: func() (otelcol.Factories, error) {
			return otelcol.Factories{
				Receivers: map[component.Type]receiver.Factory{sourceType: newSourceFactory()},
				Exporters: map[component.Type]exporter.Factory{NewFactory().Type(): NewFactory()},
				Telemetry: slimtelemetry.NewFactory(),
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              []string{"yaml:" + config},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
		DisableGracefulShutdown: true,
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- collector.Run(context.Background()) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var body []byte
	require.Eventually(t, func() bool {
		resp, err := client.Get("http://" + address + "/signals")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(body), `"message": "first"`) && strings.Contains(string(body), `"name": "first"`)
	}, 20*time.Second, 10*time.Millisecond)
	assert.Contains(t, string(body), `"context": {"host.name": "gpu-07", "team_name": "Infra"}`)
	assert.Contains(t, string(body), `Graphsignal 0.1.0: A source is strange (`, "the Collector's own warnings, folded")

	collector.Shutdown()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the Collector does not end")
	}
	final, err := os.ReadFile(output)
	require.NoError(t, err)
	assert.True(t, json.Valid(final))
	for _, want := range []string{`"name": "first"`, `"name": "last"`, `"message": "first"`, `"message": "last"`} {
		assert.Contains(t, string(final), want)
	}
}
