package consolereceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

func TestConfigStruct(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
}

func TestConfig(t *testing.T) {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for _, tt := range []struct {
		id   string
		want *Config
		bad  string
	}{
		{id: "console", want: &Config{Directory: "/dev/shm/graphsignal_log_4711", PID: 4711, PollInterval: time.Second, ProcFSPath: "/proc", CgroupFSPath: "/sys/fs/cgroup"}},
		{id: "console/all", want: &Config{Directory: "/run/x", PID: 1, PollInterval: 250 * time.Millisecond, ProcFSPath: "/host/proc", CgroupFSPath: "/host/cgroup"}},
		{id: "console/empty", bad: "directory must be an absolute path\npid must be that of the workload's first process"},
		{id: "console/relative", bad: "directory must be an absolute path"},
		{id: "console/often", bad: "poll_interval must be at least 50ms"},
	} {
		t.Run(tt.id, func(t *testing.T) {
			cfg := createDefaultConfig()
			sub, err := conf.Sub(tt.id)
			require.NoError(t, err)
			require.NoError(t, sub.Unmarshal(cfg))
			if err := confmap.Validate(cfg); tt.bad != "" {
				assert.EqualError(t, err, tt.bad)
				return
			}
			require.NoError(t, confmap.Validate(cfg))
			assert.Equal(t, tt.want, cfg)
		})
	}
}
