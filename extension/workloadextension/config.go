package workloadextension

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxRunID is the longest id that the writers take over.
const maxRunID = 32

// Config is the configuration of the workload extension.
type Config struct {
	// PID is the target: the program whose processes are followed.
	PID int `mapstructure:"pid"`
	// ControlFD is the descriptor of a Unix stream socket that was inherited from the launcher; 0 is none.
	ControlFD int `mapstructure:"control_fd"`
	// CommandLine are the arguments of the target, already redacted. Empty: read from the process table.
	CommandLine []string `mapstructure:"command_line"`
	// StartTimeUnixNano is when the target was started, for a target that has ended before it could be looked up.
	StartTimeUnixNano int64 `mapstructure:"start_time_unix_nano"`
	// ProcFSPath is the process table.
	ProcFSPath string `mapstructure:"procfs_path"`
	// SHMPath is the directory that holds the run directories.
	SHMPath string `mapstructure:"shm_path"`
	// KeepDirectories leaves the run directories to another reader of the same processes, which removes them.
	KeepDirectories bool `mapstructure:"keep_directories"`
	// RunID is what the target's processes have in their environment as GRAPHSIGNAL_RUN_ID, hexadecimal digits: their run
	// directories are found by it, whether a look at the process table saw them or not. Empty: only by that.
	RunID string `mapstructure:"run_id"`
	// PollInterval is the time between two looks at the process table.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// VersionCheck is the base URL that is asked once for a newer release; empty asks nobody.
	VersionCheck string `mapstructure:"version_check"`
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.PID <= 0 {
		errs = append(errs, errors.New("pid must be the id of a process"))
	}
	if c.ControlFD < 0 || c.ControlFD == 1 || c.ControlFD == 2 {
		errs = append(errs, errors.New("control_fd must be a descriptor above 2, or 0 for none"))
	}
	if c.StartTimeUnixNano < 0 {
		errs = append(errs, errors.New("start_time_unix_nano must not be negative"))
	}
	if len(c.RunID) > maxRunID || strings.Trim(c.RunID, "0123456789abcdef") != "" {
		errs = append(errs, fmt.Errorf("run_id must be at most %d hexadecimal digits", maxRunID))
	}
	if c.ProcFSPath == "" {
		errs = append(errs, errors.New("procfs_path must not be empty"))
	}
	if c.SHMPath == "" {
		errs = append(errs, errors.New("shm_path must not be empty"))
	}
	if c.PollInterval < 10*time.Millisecond {
		errs = append(errs, errors.New("poll_interval must be at least 10ms"))
	}
	return errors.Join(errs...)
}
