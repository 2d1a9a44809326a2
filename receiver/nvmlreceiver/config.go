package nvmlreceiver

import (
	"errors"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/selection"
)

// Config is the configuration of the nvml receiver.
type Config struct {
	collect.Config `mapstructure:",squash"`
	// LibraryPath is libnvidia-ml.so.1. Empty: where the loader finds it.
	LibraryPath string `mapstructure:"library_path"`
	// Devices are the devices to report, each an index in the order of PCI bus ids, the beginning of a UUID (GPU-…,
	// MIG-…), or MIG-GPU-<uuid>/<gpu instance>/<compute instance>. Empty: what CUDA_VISIBLE_DEVICES and the variables of
	// local ranks in the Collector's environment select, else all.
	Devices []string `mapstructure:"devices"`
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	errs := []error{c.Check()}
	for _, d := range c.Devices {
		if !isDeviceItem(d) {
			errs = append(errs, errors.New("devices: "+d+" is neither an index nor the beginning of a UUID (GPU-…, MIG-…)"))
		}
	}
	return errors.Join(errs...)
}

// isDeviceItem reports whether an item can name a device.
func isDeviceItem(item string) bool {
	if _, ok := selection.ParseIndex(item); ok {
		return true
	}
	upper := strings.ToUpper(strings.TrimSpace(item))
	return strings.HasPrefix(upper, "GPU-") || strings.HasPrefix(upper, "MIG-")
}
