package fakenvml

import (
	"fmt"
	"strings"
)

// H200 is an idle H200 as driver 580 shows it through PCI passthrough, without NVLink: the values of a real one.
const H200 = `gpu
  GetPciInfo 0 00000000:00:06.0
  GetUUID 0 GPU-8f076168-ee1c-bf09-b577-0f480718bcdc
  GetName 0 NVIDIA H200
  GetArchitecture 0 9
  GetCudaComputeCapability 0 9 0
  GetMigMode 0 0
  GetMemoryInfo_v2 0 150754820096 644939776 150109880320 0
  GetMemoryInfo 0 150754820096 150109880320 644939776
  GetSamples.1 0 0 0 0 0
  GetSamples.2 0 0 0 0 0
  GetTemperature.0 0 35
  GetPowerUsage 0 80590
  GetPowerManagementLimit 0 700000
  GetTotalEnergyConsumption 0 3368117
  GetClockInfo.1 0 345
  GetClockInfo.2 0 3201
  GetMaxClockInfo.1 0 1980
  ClocksReasons 0 1
  GetPerformanceState 0 0
  GetEncoderUtilization 0 0
  GetDecoderUtilization 0 0
  GetCurrPcieLinkGeneration 0 5
  GetCurrPcieLinkWidth 0 16
  GetMaxPcieLinkGeneration 0 5
  GetMaxPcieLinkWidth 0 16
  GetPcieReplayCounter 0 1
  GetPcieThroughput.0 0 1593
  GetPcieThroughput.1 0 587
  GetFieldValues 0
  field.197.0 0 1 2664821868
  field.198.0 0 1 1931227568
  GetTotalEccErrors.0.0 0 0
  GetTotalEccErrors.1.0 0 0
  GetTotalEccErrors.0.1 0 0
  GetTotalEccErrors.1.1 0 0
  GetComputeRunningProcesses 0
  GetGraphicsRunningProcesses 0
  GetMPSComputeRunningProcesses 0
  RegisterEvents 0
`

// H200s are n busy H200 joined by 18 NVLinks each; the last link of the second is down.
func H200s(n int) string {
	var b strings.Builder
	for i := range n {
		block := strings.NewReplacer(
			"00000000:00:06.0", fmt.Sprintf("00000000:%02X:00.0", 0x19+0x11*i),
			"GPU-8f076168", fmt.Sprintf("GPU-8f07616%d", i),
			"GetMemoryInfo_v2 0 150754820096 644939776 150109880320 0", "GetMemoryInfo_v2 0 150754820096 644939776 10109880320 140000000000",
			"GetSamples.1 0 0 0 0 0", "GetSamples.1 0 97 98 100 96",
			"GetSamples.2 0 0 0 0 0", "GetSamples.2 0 40 41 42 40",
			"GetPowerUsage 0 80590", "GetPowerUsage 0 698200",
			"GetClockInfo.1 0 345", "GetClockInfo.1 0 1755",
			"ClocksReasons 0 1", "ClocksReasons 0 0x4",
			"GetComputeRunningProcesses 0", fmt.Sprintf("GetComputeRunningProcesses 0 %d 139000000000", 4001+i),
		).Replace(H200)
		b.WriteString(block)
		fmt.Fprintln(&b, "  field.91.0 0 1 18")
		for field, kib := range []uint64{1_000_000_000_001, 1_000_000_000_002, 1_200_000_000_003, 1_200_000_000_004} {
			fmt.Fprintf(&b, "  field.%d.4294967295 0 3 %d\n", 138+field, kib)
		}
		for link := range 18 {
			state := 1
			if i == 1 && link == 17 {
				state = 0
			}
			fmt.Fprintf(&b, "  GetNvLinkState.%d 0 %d\n", link, state)
			for field := range 3 {
				fmt.Fprintf(&b, "  field.%d.%d 0 3 %d\n", 161+field, link, field+i)
			}
		}
	}
	return b.String()
}

// MIGA100 is an A100 that is cut into two MIG devices. With MIG, the GPU has no utilization and processes.
const MIGA100 = `gpu
  GetPciInfo 0 00000000:07:00.0
  GetUUID 0 GPU-4d1f0a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b
  GetName 0 NVIDIA A100-SXM4-40GB
  GetArchitecture 0 7
  GetCudaComputeCapability 0 8 0
  GetMigMode 0 1
  GetMaxMigDeviceCount 0 7
  GetMemoryInfo_v2 0 42949672960 524288000 41000000000 1425384960
  GetTemperature.0 0 44
  GetPowerUsage 0 61234
  GetPowerManagementLimit 0 400000
  GetTotalEnergyConsumption 0 99
  GetClockInfo.1 0 1410
  GetClockInfo.2 0 1215
  GetMaxClockInfo.1 0 1410
  ClocksReasons 0 0
  GetPerformanceState 0 0
  GetCurrPcieLinkGeneration 0 4
  GetCurrPcieLinkWidth 0 16
  GetPcieReplayCounter 0 0
  GetPcieThroughput.0 0 10
  GetPcieThroughput.1 0 20
  GetFieldValues 0
  GetTotalEccErrors.0.0 0 0
  GetTotalEccErrors.1.0 0 0
  GetTotalEccErrors.0.1 0 3
  GetTotalEccErrors.1.1 0 0
  GetComputeRunningProcesses 4
  RegisterEvents 0
mig 0
  GetUUID 0 MIG-11111111-aaaa-5bbb-8ccc-123456789abc
  GetName 0 NVIDIA A100-SXM4-40GB MIG 3g.20gb
  GetGpuInstanceId 0 1
  GetComputeInstanceId 0 0
  GetMemoryInfo_v2 0 20937965568 0 20000000000 937965568
  GetComputeRunningProcesses 0 5001 900000000
mig 4
  GetUUID 0 MIG-22222222-aaaa-5bbb-8ccc-123456789abc
  GetName 0 NVIDIA A100-SXM4-40GB MIG 2g.10gb
  GetGpuInstanceId 0 5
  GetComputeInstanceId 0 0
  GetMemoryInfo_v2 0 10468982784 0 10468000000 982784
  GetComputeRunningProcesses 0
`

// GB10 shares the host's memory and tells nothing about it.
const GB10 = `gpu
  GetPciInfo 0 0000000A:01:00.0
  GetUUID 0 GPU-ab10ab10-0000-1111-2222-333344445555
  GetName 0 NVIDIA GB10
  GetArchitecture 0 10
  GetCudaComputeCapability 0 12 1
  GetPowerUsage 0 23450
  GetTemperature.0 0 41
  GetPerformanceState 0 0
  GetComputeRunningProcesses 0 6001 0
`

// GeForce is a consumer board: a fan, no ECC, no byte counters, no events; the driver is of before R510 when it is used
// with the old library.
const GeForce = `gpu
  GetPciInfo 0 00000000:0a:00.0
  GetUUID 0 GPU-0f0f0f0f-1234-5678-9abc-def012345678
  GetName 0 NVIDIA GeForce RTX 3090
  GetArchitecture 0 7
  GetCudaComputeCapability 0 8 6
  GetMemoryInfo 0 25769803776 24000000000 1769803776
  GetSamples.1 0 10 20
  GetSamples.2 0 4 6
  GetTemperature.0 0 63
  GetPowerUsage 0 220000
  GetPowerManagementLimit 0 350000
  GetFanSpeed 0 46
  GetClockInfo.1 0 1695
  GetClockInfo.2 0 9501
  GetMaxClockInfo.1 0 2100
  ClocksReasons 0 0x20
  GetPerformanceState 0 2
  GetEncoderUtilization 0 7
  GetDecoderUtilization 0 0
  GetCurrPcieLinkGeneration 0 4
  GetCurrPcieLinkWidth 0 16
  GetPcieReplayCounter 0 0
  GetPcieThroughput.0 0 5000
  GetPcieThroughput.1 0 7000
  GetFieldValues 0
  GetComputeRunningProcesses 0 7001 1500000000
  GetGraphicsRunningProcesses 0 7001 1500000000 7002 100000000
`
