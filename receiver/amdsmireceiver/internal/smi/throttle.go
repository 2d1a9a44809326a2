package smi

// Bits of NVML's mask of throttle reasons.
const (
	nvmlPowerCap     = 0x004
	nvmlHardware     = 0x008
	nvmlThermalLimit = 0x040
)

// throttleGroups are the bits of the mask that is independent of the ASIC: first and last one, and what NVML calls it.
var throttleGroups = []struct {
	first, last int
	nvml        uint64
}{
	{0, 7, nvmlPowerCap},       // power limits of sockets and packages
	{16, 23, nvmlPowerCap},     // current limits
	{32, 45, nvmlThermalLimit}, // temperatures
	{46, 47, nvmlHardware},     // PROCHOT from outside
	{56, 57, nvmlHardware},     // power management, fitness
}

// NVMLReasons translates the throttle status, so that one decoder serves both makes.
func NVMLReasons(status uint64) uint64 {
	var mask uint64
	for _, g := range throttleGroups {
		for bit := g.first; bit <= g.last; bit++ {
			if status>>bit&1 != 0 {
				mask |= g.nvml
			}
		}
	}
	return mask
}
