package nvmlreceiver

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// answer is what a return code means for whoever asked.
type answer int

const (
	// answered: there is a value.
	answered answer = iota
	// failed: not now.
	failed
	// refused: not now, and not soon.
	refused
	// unsupported: never, on this device.
	unsupported
	// lost: the device does not answer at all any more.
	lost
)

func meaning(ret nvml.Return) answer {
	switch ret {
	case nvml.SUCCESS:
		return answered
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return unsupported
	case nvml.ERROR_NO_PERMISSION, nvml.ERROR_INVALID_ARGUMENT:
		return refused
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_GPU_NOT_FOUND:
		return lost
	}
	return failed
}
