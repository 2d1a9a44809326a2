package amdsmireceiver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/selection"
)

// Config is the configuration of the amdsmi receiver.
type Config struct {
	collect.Config `mapstructure:",squash"`
	// LibraryPath is libamd_smi. Empty: that of the ROCm installation (ROCM_PATH, ROCM_HOME, /opt/rocm), else where the
	// loader finds one.
	LibraryPath string `mapstructure:"library_path"`
	// Devices are the devices to report, each an index in HIP's order or HIP's id of one (GPU-…). Empty: what
	// ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and the variables of local ranks in the Collector's environment select,
	// else all.
	Devices []string `mapstructure:"devices"`
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	errs := []error{c.Check()}
	for _, d := range c.Devices {
		if _, ok := selection.ParseIndex(d); !ok && !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(d)), "GPU-") {
			errs = append(errs, fmt.Errorf("devices: %q is neither an index nor an id of HIP (GPU-…)", d))
		}
	}
	return errors.Join(errs...)
}
