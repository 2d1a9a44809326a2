package consolereceiver

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Config is the receiver's configuration.
type Config struct {
	// Directory holds the segments log_<seq>.jsonl. It may come into being later.
	Directory string `mapstructure:"directory"`
	// PID is the workload's first process, the one of entries whose lines name none.
	PID int `mapstructure:"pid"`
	// PollInterval is the time between two looks at the directory when nothing tells of changes.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// ProcFSPath and CgroupFSPath are the roots from which the count of out-of-memory kills is found.
	ProcFSPath   string `mapstructure:"procfs_path"`
	CgroupFSPath string `mapstructure:"cgroupfs_path"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// minInterval is the least time between two reads.
const minInterval = 50 * time.Millisecond

func createDefaultConfig() component.Config {
	return &Config{PollInterval: time.Second, ProcFSPath: "/proc", CgroupFSPath: "/sys/fs/cgroup"}
}

// Validate implements confmap.Validator.
func (c *Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.Directory) {
		errs = append(errs, errors.New("directory must be an absolute path"))
	}
	if c.PID <= 0 {
		errs = append(errs, errors.New("pid must be that of the workload's first process"))
	}
	if c.PollInterval < minInterval {
		errs = append(errs, fmt.Errorf("poll_interval must be at least %v", minInterval))
	}
	return errors.Join(errs...)
}
