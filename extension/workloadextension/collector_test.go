package workloadextension_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
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
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/extension/workloadextension"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/receiver/processreceiver"
	"github.com/graphsignal/graphsignal-collector/telemetry/slimtelemetry"
)

const deadline = 20 * time.Second

// sink is an exporter that keeps what it gets.
type sink struct {
	component.StartFunc
	component.ShutdownFunc
	mu  sync.Mutex
	got []pmetric.Metrics
}

func (*sink) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (s *sink) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, md)
	return nil
}

// pids counts the collections by the pids they hold.
func (s *sink) pids() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := make(map[string]int)
	for _, md := range s.got {
		for _, rm := range md.ResourceMetrics().All() {
			if pid, ok := rm.Resource().Attributes().Get("process.pid"); ok {
				count[pid.Str()]++
			}
		}
	}
	return count
}

// collector runs a real Collector with the extension, the process receiver and the sink.
func collector(t *testing.T, s *sink, pid int, shm string) (result <-chan error) {
	t.Helper()
	kept := exporter.NewFactory(component.MustNewType("kept"), func() component.Config { return &struct{}{} },
		exporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) { return s, nil },
			component.StabilityLevelDevelopment))
	col, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.NewDefaultBuildInfo(),
		Factories: func() (f otelcol.Factories, err error) {
			f.Telemetry = slimtelemetry.NewFactory()
			if f.Extensions, err = otelcol.MakeFactoryMap(workloadextension.NewFactory()); err != nil {
				return f, err
			}
			if f.Receivers, err = otelcol.MakeFactoryMap(processreceiver.NewFactory()); err != nil {
				return f, err
			}
			f.Exporters, err = otelcol.MakeFactoryMap(kept)
			return f, err
		},
		DisableGracefulShutdown: true,
		SkipSettingGRPCLogger:   true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
			URIs: []string{fmt.Sprintf(`yaml:
extensions:
  workload: {pid: %d, shm_path: %q, poll_interval: 10ms}
receivers:
  process: {collection_interval: 10ms}
exporters:
  kept:
service:
  telemetry: {logs: {level: FATAL}}
  extensions: [workload]
  pipelines:
    metrics: {receivers: [process], exporters: [kept]}
`, pid, shm)},
		}},
	})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- col.Run(context.Background()) }()
	return done
}

func requireEnd(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.NoError(t, err, "the end of the workload is no failure")
	case <-time.After(deadline):
		t.Fatal("the Collector did not end")
	}
}

func TestCollectorEndsWithTheWorkload(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read x; exit 0")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s, shm := new(sink), t.TempDir()
	dir := rundir.Path(shm, cmd.Process.Pid)
	require.NoError(t, os.Mkdir(dir, 0o700))
	done := collector(t, s, cmd.Process.Pid, shm)
	pid := fmt.Sprint(cmd.Process.Pid)
	require.Eventually(t, func() bool { return s.pids()[pid] > 2 }, deadline, time.Millisecond)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	requireEnd(t, done)
	assert.NoDirExists(t, dir)
}

// TestCollectorOfAWorkloadThatIsGone is the case of a program that lives for a few milliseconds.
func TestCollectorOfAWorkloadThatIsGone(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	s := new(sink)
	requireEnd(t, collector(t, s, cmd.Process.Pid, t.TempDir()))
	assert.NotZero(t, s.pids()[fmt.Sprint(cmd.Process.Pid)])
}
