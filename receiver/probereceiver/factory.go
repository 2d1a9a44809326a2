package probereceiver

import (
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/shm"
	"github.com/graphsignal/graphsignal-collector/internal/shmreceiver"
	"github.com/graphsignal/graphsignal-collector/receiver/probereceiver/internal/metadata"
)

// NewFactory returns the factory of the probe receiver.
func NewFactory() receiver.Factory {
	return shmreceiver.NewFactory(shmreceiver.Component{
		Type:      metadata.Type,
		Scope:     metadata.ScopeName,
		Metrics:   metadata.MetricsStability,
		Logs:      metadata.LogsStability,
		Selection: shm.AllBut("cupti.json", "rocm.json"),
	})
}
