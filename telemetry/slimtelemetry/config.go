package slimtelemetry

import (
	"errors"
	"time"

	"go.uber.org/zap/zapcore"
)

// Config is the section service::telemetry.
type Config struct {
	Logs LogsConfig `mapstructure:"logs"`

	// Metrics, Traces and Resource are accepted, so that a configuration for another distribution loads; they
	// have no effect.
	Metrics  map[string]any `mapstructure:"metrics,omitempty"`
	Traces   map[string]any `mapstructure:"traces,omitempty"`
	Resource map[string]any `mapstructure:"resource,omitempty"`
}

// LogsConfig configures the logger; the keys are those of the Collector's standard telemetry.
type LogsConfig struct {
	Level             zapcore.Level   `mapstructure:"level"`
	Development       bool            `mapstructure:"development,omitempty"`
	Encoding          string          `mapstructure:"encoding"`
	DisableCaller     bool            `mapstructure:"disable_caller,omitempty"`
	DisableStacktrace bool            `mapstructure:"disable_stacktrace,omitempty"`
	Sampling          *SamplingConfig `mapstructure:"sampling,omitempty"`
	OutputPaths       []string        `mapstructure:"output_paths"`
	ErrorOutputPaths  []string        `mapstructure:"error_output_paths"`
	InitialFields     map[string]any  `mapstructure:"initial_fields,omitempty"`

	// Processors (export of the Collector's own logs) and DisableZapResource are accepted without effect.
	Processors         []any `mapstructure:"processors,omitempty"`
	DisableZapResource bool  `mapstructure:"disable_zap_resource,omitempty"`
}

// SamplingConfig thins out repeated log lines: of each message and Tick, the first Initial ones are written,
// then every Thereafter-th.
type SamplingConfig struct {
	Enabled    bool          `mapstructure:"enabled"`
	Tick       time.Duration `mapstructure:"tick"`
	Initial    int           `mapstructure:"initial"`
	Thereafter int           `mapstructure:"thereafter"`
}

// Validate checks the logger's settings.
func (c *Config) Validate() error {
	switch c.Logs.Encoding {
	case "console", "json":
	default:
		return errors.New(`logs::encoding must be "console" or "json"`)
	}
	if s := c.Logs.Sampling; s != nil && s.Enabled && (s.Tick <= 0 || s.Initial < 0 || s.Thereafter < 0) {
		return errors.New("logs::sampling needs a positive tick, and initial and thereafter of at least 0")
	}
	return nil
}

// ignored names the settings in use that have no effect here.
func (c *Config) ignored() []string {
	var keys []string
	for _, key := range []string{"readers", "address", "views"} {
		if _, ok := c.Metrics[key]; ok {
			keys = append(keys, "metrics::"+key)
		}
	}
	if _, ok := c.Traces["processors"]; ok {
		keys = append(keys, "traces::processors")
	}
	if len(c.Logs.Processors) > 0 {
		keys = append(keys, "logs::processors")
	}
	return keys
}
