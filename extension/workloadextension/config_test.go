package workloadextension

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

func TestConfigFromYAML(t *testing.T) {
	conf, err := confmaptest.LoadConf("testdata/config.yaml")
	require.NoError(t, err)
	for name, want := range map[string]*Config{
		"workload": {PID: 4711, ProcFSPath: "/proc", SHMPath: "/dev/shm", PollInterval: time.Second},
		"workload/all": {
			PID: 4711, ControlFD: 3, CommandLine: []string{"vllm", "serve", "--api-key", "***"},
			StartTimeUnixNano: 1796000000123456789, ProcFSPath: "/host/proc", SHMPath: "/tmp/shm", KeepDirectories: true, RunID: "0a1b2c3d4e5f",
			PollInterval: 250 * time.Millisecond,
		},
	} {
		sub, err := conf.Sub(name)
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, sub.Unmarshal(cfg))
		assert.Equal(t, want, cfg, name)
		assert.NoError(t, cfg.Validate())
	}
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	assert.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	for key, breakIt := range map[string]func(*Config){
		"pid":                  func(c *Config) { c.PID = 0 },
		"control_fd":           func(c *Config) { c.ControlFD = 2 },
		"start_time_unix_nano": func(c *Config) { c.StartTimeUnixNano = -1 },
		"procfs_path":          func(c *Config) { c.ProcFSPath = "" },
		"shm_path":             func(c *Config) { c.SHMPath = "" },
		"run_id":               func(c *Config) { c.RunID = "0A" },
		"poll_interval":        func(c *Config) { c.PollInterval = 0 },
	} {
		cfg := createDefaultConfig().(*Config)
		cfg.PID = 1
		require.NoError(t, cfg.Validate())
		breakIt(cfg)
		assert.ErrorContains(t, cfg.Validate(), key)
	}
}
