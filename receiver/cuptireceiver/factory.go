package cuptireceiver

import (
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/shm"
	"github.com/graphsignal/graphsignal-collector/internal/shmreceiver"
	"github.com/graphsignal/graphsignal-collector/receiver/cuptireceiver/internal/metadata"
)

// NewFactory returns the factory of the cupti receiver.
func NewFactory() receiver.Factory {
	return shmreceiver.NewFactory(shmreceiver.Component{
		Type:      metadata.Type,
		Scope:     metadata.ScopeName,
		Metrics:   metadata.MetricsStability,
		Logs:      metadata.LogsStability,
		Selection: shm.Named("cupti.json", "rocm.json"),
	})
}
