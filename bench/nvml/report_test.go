package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = `<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
 <driver_version>580.159.04</driver_version>
 <gpu id="00000000:00:06.0">
  <product_name>NVIDIA H200</product_name>
  <fan_speed>N/A</fan_speed>
  <performance_state>P0</performance_state>
  <pci><pci_gpu_link_info><pcie_gen><current_link_gen>5</current_link_gen></pcie_gen>
   <link_widths><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info><replay_counter>1</replay_counter></pci>
  <clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
   <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
   <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>
  <fb_memory_usage><total>143771 MiB</total><used>0 MiB</used></fb_memory_usage>
  <temperature><gpu_temp>35 C</gpu_temp></temperature>
  <gpu_power_readings><average_power_draw>80.57 W</average_power_draw></gpu_power_readings>
  <processes><process_info><pid>41</pid><used_memory>100 MiB</used_memory></process_info></processes>
 </gpu>
</nvidia_smi_log>`

func TestComparison(t *testing.T) {
	smi, err := parseSMI(strings.NewReader(page))
	require.NoError(t, err)
	const id = "00000000:00:06.0"
	require.Contains(t, smi, id)
	ours := signals{
		"gpu_performance_state": 0, "gpu_pcie_link_generation": 5, "gpu_pcie_link_width": 16, "gpu_pcie_replay_counter": 1,
		"gpu_clocks_throttle_reasons": 5, "gpu_memory_total_bytes": 150754820096, "gpu_memory_used_bytes": 0,
		"gpu_temperature_celsius": 35, "gpu_power_usage_watts": 80.6, "gpu_process_memory_bytes{41}": 100 << 20,
		"gpu_energy_consumption_millijoules": 9,
	}
	devices := func(s signals) map[string]signals { return map[string]signals{id: s} }
	r := newReport()
	r.add(devices(ours), smi, devices(ours))
	assert.Zero(t, r.print())
	assert.Contains(t, r.lines[id+" gpu_energy_consumption_millijoules"].last, "not in nvidia-smi")

	for name, change := range map[string]func(signals){
		"another temperature":       func(s signals) { s["gpu_temperature_celsius"] = 40 },
		"another mask":              func(s signals) { s["gpu_clocks_throttle_reasons"] = 1 },
		"one that is not supported": func(s signals) { s["gpu_fan_speed_percent"] = 0 },
		"one that is missing":       func(s signals) { delete(s, "gpu_power_usage_watts") },
		"memory of a process":       func(s signals) { s["gpu_process_memory_bytes{41}"] = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			wrong := make(signals)
			for k, v := range ours {
				wrong[k] = v
			}
			change(wrong)
			r := newReport()
			r.add(devices(wrong), smi, devices(wrong))
			assert.Equal(t, 1, r.print())
		})
	}
}

// TestNVLink reads what nvidia-smi printed of two GPUs that are joined, cut to three links.
func TestNVLink(t *testing.T) {
	gpus := map[string]smiGPU{"00000000:00:06.0": {"uuid": "GPU-8ee74dec"}, "00000000:00:07.0": {"uuid": "GPU-4753b853"}}
	for _, page := range []string{
		"GPU 0: NVIDIA H200 (UUID: GPU-8ee74dec)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 2: 26.562 GB/s\nGPU 1: NVIDIA H200 (UUID: GPU-4753b853)\n\t Link 0: 26.562 GB/s\n",
		"GPU 0: NVIDIA H200 (UUID: GPU-8ee74dec)\n\t Link 0: Data Tx: 14246015 KiB\n\t Link 0: Data Rx: 1 KiB\n\t Link 2: Data Tx: 5 KiB\n\t Link 2: Data Rx: 2 KiB\nGPU 1: NVIDIA H200 (UUID: GPU-4753b853)\n\t Link 0: Data Tx: N/A\n",
		"GPU 0: NVIDIA H200 (UUID: GPU-8ee74dec)\n\t Link 0: Replay Errors: 3\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 7\n\n\t Link 2: Replay Errors: 4\n\t Link 2: Recovery Errors: 0\n\t Link 2: CRC Errors: 0\nGPU 9: another (UUID: GPU-0)\n\t Link 0: CRC Errors: 1\n",
	} {
		parseNVLink([]byte(page), gpus)
	}
	assert.Equal(t, smiGPU{"uuid": "GPU-8ee74dec", "nvlink/links": "2", "nvlink/Data Tx": "14246020", "nvlink/Data Rx": "3",
		"nvlink/Replay Errors": "7", "nvlink/Recovery Errors": "0", "nvlink/CRC Errors": "7"}, gpus["00000000:00:06.0"])
	assert.Equal(t, smiGPU{"uuid": "GPU-4753b853", "nvlink/links": "1"}, gpus["00000000:00:07.0"])
}
