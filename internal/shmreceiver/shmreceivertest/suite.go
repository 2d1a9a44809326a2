// Package shmreceivertest is the test suite that all receivers of shared-memory documents pass. It reads
// testdata/config.yaml, the run directory testdata/run, and testdata/golden of the receiver's package.
package shmreceivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
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
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/shmreceiver"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

var update = flag.Bool("update", false, "write the golden files")

// deadline is how long a test waits for what a receiver does by itself.
const deadline = 10 * time.Second

// Run runs the suite.
func Run(t *testing.T, factory receiver.Factory) {
	t.Run("config", func(t *testing.T) { testConfig(t, factory) })
	t.Run("golden pdata", func(t *testing.T) { testGolden(t, factory) })
	t.Run("lifecycle", func(t *testing.T) { testLifecycle(t, factory) })
}

// testConfig reads a configuration of defaults and one, named "all", that sets every key.
func testConfig(t *testing.T, factory receiver.Factory) {
	conf, err := confmaptest.LoadConf("testdata/config.yaml")
	require.NoError(t, err)
	name := factory.Type().String()
	for name, want := range map[string]*shmreceiver.Config{
		name: {Config: collect.Config{Interval: time.Second}, SHMPath: "/dev/shm", ProcFSPath: "/proc", MaxFileSize: 16 << 20},
		name + "/all": {
			Config:  collect.Config{Interval: 250 * time.Millisecond},
			SHMPath: "/host/dev/shm", ProcFSPath: "/host/proc", MaxFileSize: 1 << 20,
		},
	} {
		sub, err := conf.Sub(name)
		require.NoError(t, err)
		config := factory.CreateDefaultConfig()
		require.NoError(t, sub.Unmarshal(config))
		assert.Equal(t, want, config, name)
		assert.NoError(t, confmap.Validate(config))
	}
	assert.NoError(t, componenttest.CheckConfigStruct(factory.CreateDefaultConfig()))
}

// testGolden reads the fixture directory through both pipelines, which share one receiver.
func testGolden(t *testing.T, factory receiver.Factory) {
	config := factory.CreateDefaultConfig().(*shmreceiver.Config)
	config.SHMPath, config.ProcFSPath = t.TempDir(), t.TempDir()
	// A copy, since a checkout may belong to another user.
	require.NoError(t, os.CopyFS(filepath.Join(config.SHMPath, "graphsignal_4711"), os.DirFS("testdata/run")))

	set := receivertest.NewNopSettings(factory.Type())
	metrics, logs := new(consumertest.MetricsSink), new(consumertest.LogsSink)
	metricsReceiver, err := factory.CreateMetrics(context.Background(), set, config, metrics)
	require.NoError(t, err)
	logsReceiver, err := factory.CreateLogs(context.Background(), set, config, logs)
	require.NoError(t, err)
	require.Same(t, metricsReceiver, logsReceiver)
	for _, r := range []component.Component{metricsReceiver, logsReceiver} {
		require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	}
	require.Eventually(t, func() bool { return len(logs.AllLogs()) > 0 }, deadline, time.Millisecond)
	for _, r := range []component.Component{logsReceiver, metricsReceiver} {
		require.NoError(t, r.Shutdown(context.Background()))
	}

	require.Len(t, metrics.AllMetrics(), 1)
	require.Len(t, logs.AllLogs(), 1)
	var metricsJSON pmetric.JSONMarshaler
	got, err := metricsJSON.MarshalMetrics(metrics.AllMetrics()[0])
	require.NoError(t, err)
	golden(t, "metrics.json", got)
	var logsJSON plog.JSONMarshaler
	got, err = logsJSON.MarshalLogs(logs.AllLogs()[0])
	require.NoError(t, err)
	golden(t, "logs.json", got)
}

// golden compares with a file of testdata/golden, which every version of this build has in common.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	got = bytes.ReplaceAll(got, []byte(`"version":"`+version.Version+`"`), []byte(`"version":"VERSION"`))
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, got, "", " "))
	indented.WriteByte('\n')
	path := filepath.Join("testdata", "golden", name)
	if *update {
		require.NoError(t, os.WriteFile(path, indented.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), indented.String())
}

func testLifecycle(t *testing.T, factory receiver.Factory) {
	config := factory.CreateDefaultConfig().(*shmreceiver.Config)
	config.SHMPath = t.TempDir()
	set := receivertest.NewNopSettings(factory.Type())
	for range 2 { // a configuration that is used again makes a new receiver
		r, err := factory.CreateLogs(context.Background(), set, config, consumertest.NewNop())
		require.NoError(t, err)
		require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
		require.NoError(t, r.Shutdown(context.Background()))
	}
	r, err := factory.CreateMetrics(context.Background(), set, config, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Shutdown(context.Background()), "without Start")
}
