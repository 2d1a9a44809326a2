package shmreceiver

import (
	"errors"
	"path/filepath"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
)

// Config is the configuration of a receiver of shared-memory documents.
type Config struct {
	collect.Config `mapstructure:",squash"`

	// SHMPath is the directory that holds the run directories, or ProcSHM.
	SHMPath string `mapstructure:"shm_path"`
	// ProcFSPath is where the process table is mounted.
	ProcFSPath string `mapstructure:"procfs_path"`
	// MaxFileSize is the size in bytes above which a file is skipped.
	MaxFileSize int64 `mapstructure:"max_file_size"`
}

// defaultConfig reads /dev/shm once a second.
func defaultConfig() *Config {
	return &Config{
		Config:      collect.DefaultConfig(),
		SHMPath:     rundir.DefaultBase,
		ProcFSPath:  procfs.DefaultRoot,
		MaxFileSize: shm.DefaultMaxFileSize,
	}
}

// Bounds of max_file_size: a document is read and held whole.
const (
	minMaxFileSize = 1 << 10
	maxMaxFileSize = 256 << 20
)

// Validate checks the configuration.
func (c *Config) Validate() error {
	errs := []error{c.Check()}
	if c.SHMPath != ProcSHM && !filepath.IsAbs(c.SHMPath) {
		errs = append(errs, errors.New("shm_path must be an absolute path, or proc for each process's own"))
	}
	if !filepath.IsAbs(c.ProcFSPath) {
		errs = append(errs, errors.New("procfs_path must be an absolute path"))
	}
	if c.MaxFileSize < minMaxFileSize || c.MaxFileSize > maxMaxFileSize {
		errs = append(errs, errors.New("max_file_size must be between 1024 (1 KiB) and 268435456 (256 MiB) bytes"))
	}
	return errors.Join(errs...)
}
