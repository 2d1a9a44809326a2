package processreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
)

func TestConfigFromYAML(t *testing.T) {
	conf, err := confmaptest.LoadConf("testdata/config.yaml")
	require.NoError(t, err)
	for name, want := range map[string]*Config{
		"process": {Config: collect.Config{Interval: time.Second}, ProcFSPath: "/proc"},
		"process/all": {
			Config: collect.Config{Interval: 250 * time.Millisecond}, PIDs: []int{1, 4711}, ProcFSPath: "/host/proc",
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
	for _, c := range []struct {
		key     string
		breakIt func(*Config)
	}{
		{"pids", func(c *Config) { c.PIDs = []int{0} }},
		{"pids", func(c *Config) { c.PIDs = []int{7, 7} }},
		{"procfs_path", func(c *Config) { c.ProcFSPath = "" }},
		{"collection_interval", func(c *Config) { c.Interval = 0 }},
	} {
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, cfg.Validate())
		c.breakIt(cfg)
		assert.ErrorContains(t, cfg.Validate(), c.key)
		assert.EqualError(t, confmap.Validate(cfg), cfg.Validate().Error(), "told once")
	}
}
