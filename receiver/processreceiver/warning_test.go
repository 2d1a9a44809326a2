package processreceiver

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestNoProcessTable: a wrong procfs_path is told, once.
func TestNoProcessTable(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	cfg := createDefaultConfig().(*Config)
	cfg.ProcFSPath = filepath.Join(t.TempDir(), "absent")
	sink := new(consumertest.MetricsSink)
	r := newReceiver(cfg, zap.New(core), sink)
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, r.Shutdown(context.Background()))
	require.Len(t, sink.AllMetrics(), 2, "at the start and at the end")
	assert.Equal(t, 1, logs.FilterMessageSnippet("procfs_path").Len(), "%v", logs.All())
}

// TestRefusedIsToldOnce: a pipeline may refuse each second for hours.
func TestRefusedIsToldOnce(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	r := newReceiver(createDefaultConfig().(*Config), zap.New(core), consumertest.NewErr(errors.New("full")))
	for range 3 {
		r.collect(context.Background())
	}
	assert.Equal(t, 1, logs.FilterMessage("Process metrics were refused").Len(), "%v", logs.All())
}
