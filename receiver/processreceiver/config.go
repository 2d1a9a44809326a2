package processreceiver

import (
	"errors"
	"fmt"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
)

// Config is the configuration of the process receiver.
type Config struct {
	collect.Config `mapstructure:",squash"`
	// PIDs are the processes to report. Empty: those of the workload extension, or only the host without one.
	PIDs []int `mapstructure:"pids"`
	// ProcFSPath is the process table.
	ProcFSPath string `mapstructure:"procfs_path"`
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	errs := []error{c.Check()}
	seen := make(map[int]bool)
	for _, pid := range c.PIDs {
		switch {
		case pid <= 0:
			errs = append(errs, fmt.Errorf("pids: %d is not the id of a process", pid))
		case seen[pid]:
			errs = append(errs, fmt.Errorf("pids: %d is there twice", pid))
		}
		seen[pid] = true
	}
	if c.ProcFSPath == "" {
		errs = append(errs, errors.New("procfs_path must not be empty"))
	}
	return errors.Join(errs...)
}
