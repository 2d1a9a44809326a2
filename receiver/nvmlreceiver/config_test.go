package nvmlreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
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
		{id: "nvml", want: &Config{Config: collect.DefaultConfig()}},
		{id: "nvml/all", want: &Config{Config: collect.Config{Interval: 5 * time.Second}, LibraryPath: "/opt/libnvidia-ml.so.1",
			Devices: []string{"0", "GPU-8f07", "MIG-GPU-8f076168-ee1c-bf09-b577-0f480718bcdc/1/0"}}},
		{id: "nvml/bad", bad: "collection_interval must be at least 10ms\n" +
			"devices: -1 is neither an index nor the beginning of a UUID (GPU-…, MIG-…)\n" +
			"devices: eth0 is neither an index nor the beginning of a UUID (GPU-…, MIG-…)"},
	} {
		t.Run(tt.id, func(t *testing.T) {
			cfg := createDefaultConfig()
			sub, err := conf.Sub(tt.id)
			require.NoError(t, err)
			require.NoError(t, sub.Unmarshal(cfg))
			err = cfg.(*Config).Validate()
			if tt.bad != "" {
				assert.EqualError(t, err, tt.bad)
				return
			}
			require.NoError(t, err)
			require.NoError(t, confmap.Validate(cfg))
			assert.Equal(t, tt.want, cfg)
		})
	}
}
