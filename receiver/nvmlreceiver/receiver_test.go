package nvmlreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/internal/fakenvml"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/metadata"
)

// within is how long a test waits for what must happen.
const within = 20 * time.Second

// rig is a receiver on the stand-in library, and what came out of it.
type rig struct {
	t      *testing.T
	script string
	log    string
	logs   *observer.ObservedLogs
	stop   func()

	mu       sync.Mutex
	latest   map[string]point // by "name{tags}"
	entities map[string]map[string]string
	errors   []signal.ErrorEntry
	rounds   int
}

type point struct {
	value string
	start int64
	time  int64
	round int
	kind  pmetric.MetricType
}

// start runs a receiver on a script.
func start(t *testing.T, script string, configure ...func(*Config)) *rig {
	t.Helper()
	dir := t.TempDir()
	g := &rig{t: t, script: filepath.Join(dir, "script"), log: filepath.Join(dir, "log"),
		latest: make(map[string]point), entities: make(map[string]map[string]string)}
	require.NoError(t, fakenvml.Write(g.script, script))
	t.Setenv(fakenvml.ScriptVariable, g.script)
	t.Setenv(fakenvml.LogVariable, g.log)
	for _, v := range []string{"CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "SLURM_LOCALID", "NCCL_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "LD_BIND_NOW"} {
		t.Setenv(v, "")
		require.NoError(t, os.Unsetenv(v))
	}
	factory := NewFactory()
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.LibraryPath, cfg.Interval = libraryPath, 50*time.Millisecond
	for _, c := range configure {
		c(cfg)
	}
	core, logs := observer.New(zap.DebugLevel)
	g.logs = logs
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	metrics, err := consumer.NewMetrics(g.takeMetrics)
	require.NoError(t, err)
	logsNext, err := consumer.NewLogs(g.takeLogs)
	require.NoError(t, err)
	m, err := factory.CreateMetrics(context.Background(), set, cfg, metrics)
	require.NoError(t, err)
	l, err := factory.CreateLogs(context.Background(), set, cfg, logsNext)
	require.NoError(t, err)
	for _, c := range []component.Component{m, l} {
		require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
	}
	g.stop = sync.OnceFunc(func() {
		for _, c := range []component.Component{m, l} {
			require.NoError(t, c.Shutdown(context.Background()))
		}
	})
	t.Cleanup(g.stop)
	return g
}

func (g *rig) takeMetrics(_ context.Context, md pmetric.Metrics) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rounds++
	for _, rm := range md.ResourceMetrics().All() {
		attrs := make(map[string]string)
		for k, v := range rm.Resource().Attributes().All() {
			attrs[k] = v.AsString()
		}
		g.entities[attrs[uuidKey]] = attrs
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				points := pmetric.NewNumberDataPointSlice()
				switch m.Type() {
				case pmetric.MetricTypeGauge:
					points = m.Gauge().DataPoints()
				case pmetric.MetricTypeSum:
					points = m.Sum().DataPoints()
				}
				for _, p := range points.All() {
					key := m.Name() + "{" + attrs[uuidKey]
					for k, v := range p.Attributes().All() {
						key += "," + k + "=" + v.AsString()
					}
					value := fmt.Sprint(p.IntValue())
					if p.ValueType() == pmetric.NumberDataPointValueTypeDouble {
						value = fmt.Sprint(p.DoubleValue())
					}
					g.latest[key+"}"] = point{value, int64(p.StartTimestamp()), int64(p.Timestamp()), g.rounds, m.Type()}
				}
			}
		}
	}
	return nil
}

func (g *rig) takeLogs(_ context.Context, ld plog.Logs) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	signal.DecodeErrors(ld, func(e signal.ErrorEntry) { g.errors = append(g.errors, e) })
	return nil
}

// get returns the latest point of a series; an empty value says that there is none.
func (g *rig) get(name, uuid string, tags ...string) point {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.latest[name+"{"+strings.Join(append([]string{uuid}, tags...), ",")+"}"]
}

func (g *rig) round() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rounds
}

func (g *rig) messages() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []string
	for _, e := range g.errors {
		list = append(list, e.Message)
	}
	return list
}

func (g *rig) eventually(what string, ok func() bool) {
	g.t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.t.Fatalf("timed out waiting until %s; series: %v; errors: %v; log: %v", what, g.latest, g.errors, g.logs.All())
}

// settle waits for n more collections.
func (g *rig) settle(n int) {
	g.t.Helper()
	from := g.round()
	g.eventually("collections go on", func() bool { return g.round() >= from+n })
}

// calls counts the calls of a function in the library's log.
func (g *rig) calls(function string) int {
	raw, err := os.ReadFile(g.log)
	if err != nil && !os.IsNotExist(err) {
		g.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, function+" ") {
			n++
		}
	}
	return n
}

// rewrite replaces the script.
func (g *rig) rewrite(script string) {
	g.t.Helper()
	require.NoError(g.t, fakenvml.Write(g.script, script))
}

const h200 = "GPU-8f076168-ee1c-bf09-b577-0f480718bcdc"

// TestH200 compares with the values of a real one.
func TestH200(t *testing.T) {
	g := start(t, fakenvml.H200)
	g.eventually("everything was read", func() bool {
		return g.get("gpu_max_clock_sm_megahertz", h200).value != "" && g.get("gpu_pcie_throughput_rx_kilobytes_per_second", h200).value != ""
	})
	g.settle(2)
	want := map[string]string{
		"gpu_memory_total_bytes": "150754820096", "gpu_memory_free_bytes": "150109880320", "gpu_memory_used_bytes": "0",
		"gpu_memory_reserved_bytes": "644939776", "gpu_utilization_percent": "0", "gpu_memory_utilization_percent": "0",
		"gpu_temperature_celsius": "35", "gpu_power_usage_watts": "80.59", "gpu_power_management_limit_watts": "700",
		"gpu_energy_consumption_millijoules": "3368117", "gpu_clock_sm_megahertz": "345", "gpu_clock_mem_megahertz": "3201",
		"gpu_max_clock_sm_megahertz": "1980", "gpu_clocks_throttle_reasons": "1", "gpu_performance_state": "0",
		"gpu_encoder_utilization_percent": "0", "gpu_decoder_utilization_percent": "0", "gpu_pcie_link_generation": "5",
		"gpu_pcie_link_width": "16", "gpu_pcie_replay_counter": "1", "gpu_pcie_throughput_tx_kilobytes_per_second": "0",
		"gpu_pcie_throughput_rx_kilobytes_per_second": "0", "gpu_ecc_errors_corrected_volatile": "0",
		"gpu_ecc_errors_uncorrected_volatile": "0", "gpu_ecc_errors_corrected_aggregate": "0",
		"gpu_ecc_errors_uncorrected_aggregate": "0", "gpu_xid_critical_errors": "0",
	}
	g.mu.Lock()
	got := make(map[string]string)
	for key, p := range g.latest {
		name, _, _ := strings.Cut(key, "{")
		got[name] = p.value
		if device := p.kind == pmetric.MetricTypeSum && name != "gpu_xid_critical_errors"; device != (p.start == 0) {
			t.Errorf("%s: start is %d", name, p.start)
		}
	}
	assert.Equal(t, want, got)
	assert.Equal(t, map[string]string{
		"device.bus_id": "00000000:00:06.0", "device.uuid": h200, "device.name": "NVIDIA H200", "architecture": "Hopper",
		"compute_capability": "9.0", "mem_total": "150754820096",
	}, g.entities[h200])
	g.mu.Unlock()
	assert.Empty(t, g.messages())
	assert.Empty(t, g.logs.FilterLevelExact(zap.WarnLevel).All())

	// What is not supported was asked once; what the fields give is not sampled.
	assert.Equal(t, 1, g.calls("GetFanSpeed"))
	assert.Zero(t, g.calls("GetPcieThroughput"))
	assert.Zero(t, g.calls("GetMemoryInfo"))
	g.stop()
	assert.Equal(t, 1, g.calls("Init"))
	assert.Equal(t, 1, g.calls("Shutdown"))
	assert.Equal(t, 1, g.calls("EventSetFree"))
}

func TestNVLink(t *testing.T) {
	g := start(t, fakenvml.H200s(2))
	uuid := func(i int) string { return fmt.Sprintf("GPU-8f07616%d-ee1c-bf09-b577-0f480718bcdc", i) }
	g.eventually("links were read", func() bool { return g.get("gpu_nvlink_errors_crc", uuid(1)).value != "" })
	for name, want := range map[string][2]string{
		"gpu_nvlink_link_count": {"18", "17"}, "gpu_nvlink_active_links": {"18", "17"},
		"gpu_nvlink_errors_replay": {"0", "17"}, "gpu_nvlink_errors_recovery": {"18", "34"}, "gpu_nvlink_errors_crc": {"36", "51"},
		"gpu_nvlink_throughput_data_tx_kibibytes": {"1000000000001", "1000000000001"},
		"gpu_nvlink_throughput_raw_rx_kibibytes":  {"1200000000004", "1200000000004"},
		"gpu_clocks_throttle_reasons":             {"4", "4"}, "gpu_utilization_percent": {"97.75", "97.75"},
	} {
		for i := range want {
			assert.Equal(t, want[i], g.get(name, uuid(i)).value, "%s of GPU %d", name, i)
		}
	}
	for i := range 2 {
		assert.Equal(t, "139000000000", g.get("gpu_process_memory_bytes", uuid(i), fmt.Sprintf("process.pid=%d", 4001+i)).value)
	}
	// To ask every link costs the driver tens of milliseconds, so that is done once a minute.
	g.settle(10)
	assert.Equal(t, 2*18, g.calls("GetNvLinkState"))
}

// TestFirstCollection has what is slow, too, unless the machine is slow itself.
func TestFirstCollection(t *testing.T) {
	const uuid = "GPU-8f076160-ee1c-bf09-b577-0f480718bcdc"
	for range 5 {
		g := start(t, strings.ReplaceAll(fakenvml.H200s(1), "gpu\n", "gpu\n  delay.GetTotalEnergyConsumption 20\n"), func(c *Config) { c.Interval = time.Second })
		g.eventually("it was read", func() bool { return g.get("gpu_temperature_celsius", uuid).value != "" })
		g.stop()
		first := true
		for _, name := range []string{"gpu_energy_consumption_millijoules", "gpu_nvlink_link_count", "gpu_nvlink_throughput_data_tx_kibibytes"} {
			first = first && g.get(name, uuid).value != ""
		}
		if first {
			return
		}
	}
	t.Error("the first collection never has what is slow")
}

// TestTurns: devices make their slow calls one after another, since at the same time they cost the driver much more; and one
// whose calls hang keeps the others waiting for a moment only.
func TestTurns(t *testing.T) {
	script := strings.ReplaceAll(fakenvml.H200s(3), "gpu\n", "gpu\n  delay.GetNvLinkState 2\n")
	g := start(t, script)
	uuid := func(i int) string { return fmt.Sprintf("GPU-8f07616%d-ee1c-bf09-b577-0f480718bcdc", i) }
	for i := range 3 {
		g.eventually("links were read", func() bool { return g.get("gpu_nvlink_link_count", uuid(i)).value != "" })
	}
	raw, err := os.ReadFile(g.log)
	require.NoError(t, err)
	var order []string // devices, each as often as another one came between
	for line := range strings.Lines(string(raw)) {
		if device, ok := strings.CutPrefix(line, "GetNvLinkState "); ok && (len(order) == 0 || order[len(order)-1] != device) {
			order = append(order, device)
		}
	}
	assert.Len(t, order, 3)

	blocks := strings.SplitAfter(script, "gpu\n")
	blocks[2] = "  delay.GetComputeRunningProcesses 9000\n" + blocks[2]
	g.rewrite(strings.Join(blocks, ""))
	memory := func(i int) point {
		return g.get("gpu_process_memory_bytes", uuid(i), fmt.Sprintf("process.pid=%d", 4001+i))
	}
	g.eventually("the second is stuck", func() bool { return memory(1).round != 0 && memory(1).round < g.round()-20 })
	stuck := memory(1).time
	for _, i := range []int{0, 2} {
		at := memory(i).time
		g.eventually("the others go on", func() bool { return memory(i).time > at })
	}
	assert.Equal(t, stuck, memory(1).time, "the second did not")
}

// TestNVLinkOfOtherGenerations has an older part, with counters for each link, and a newer one, with recoveries only.
func TestNVLinkOfOtherGenerations(t *testing.T) {
	older := `gpu
  GetUUID 0 GPU-old
  GetFieldValues 0
  field.138.4294967295 2
  field.139.4294967295 2
  field.140.4294967295 2
  field.141.4294967295 2
`
	for link := range 6 {
		older += fmt.Sprintf("  GetNvLinkState.%d 0 1\n  field.138.%d 0 3 10\n", link, link)
		for counter := range 4 {
			older += fmt.Sprintf("  GetNvLinkErrorCounter.%d.%d 0 %d\n", link, counter, counter)
		}
	}
	older += "  GetNvLinkState.6 2\n"
	newer := "gpu\n  GetUUID 0 GPU-new\n  GetFieldValues 0\n  field.91.0 0 1 2\n" +
		"  GetNvLinkState.0 0 1\n  GetNvLinkState.1 0 1\n  field.215.0 0 3 7\n  field.215.1 0 3 8\n"
	g := start(t, older+newer)
	g.eventually("links were read", func() bool {
		return g.get("gpu_nvlink_errors_recovery", "GPU-new").value != "" && g.get("gpu_nvlink_throughput_data_tx_kibibytes", "GPU-old").value != ""
	})
	for name, want := range map[string]string{
		"gpu_nvlink_link_count": "6", "gpu_nvlink_errors_replay": "0", "gpu_nvlink_errors_recovery": "6", "gpu_nvlink_errors_crc": "30",
		"gpu_nvlink_throughput_data_tx_kibibytes": "60", "gpu_nvlink_throughput_data_rx_kibibytes": "",
	} {
		assert.Equal(t, want, g.get(name, "GPU-old").value, name)
	}
	for name, want := range map[string]string{
		"gpu_nvlink_link_count": "2", "gpu_nvlink_errors_replay": "", "gpu_nvlink_errors_recovery": "15", "gpu_nvlink_errors_crc": "",
	} {
		assert.Equal(t, want, g.get(name, "GPU-new").value, name)
	}
}

func TestMIG(t *testing.T) {
	g := start(t, fakenvml.MIGA100)
	const gpu, first, second = "GPU-4d1f0a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b", "MIG-11111111-aaaa-5bbb-8ccc-123456789abc", "MIG-22222222-aaaa-5bbb-8ccc-123456789abc"
	g.eventually("all three were read", func() bool {
		return g.get("gpu_process_memory_bytes", first, "process.pid=5001").value != "" && g.get("gpu_memory_used_bytes", second).value != ""
	})
	assert.Equal(t, "937965568", g.get("gpu_memory_used_bytes", first).value)
	assert.Equal(t, "1425384960", g.get("gpu_memory_used_bytes", gpu).value)
	assert.Equal(t, "44", g.get("gpu_temperature_celsius", gpu).value)
	assert.Empty(t, g.get("gpu_temperature_celsius", first).value)
	assert.Empty(t, g.get("gpu_utilization_percent", gpu).value)
	assert.Empty(t, g.get("gpu_xid_critical_errors", first).value)
	g.mu.Lock()
	assert.Equal(t, map[string]string{
		"device.bus_id": "00000000:07:00.0", "device.uuid": second, "device.name": "NVIDIA A100-SXM4-40GB MIG 2g.10gb", "architecture": "Ampere",
		"compute_capability": "8.0", "mem_total": "10468982784", "device.parent_uuid": gpu, "device.gpu_instance_id": "5", "device.compute_instance_id": "0",
	}, g.entities[second])
	g.mu.Unlock()

	// An XID error tells which part it concerns.
	withEvent := strings.Replace(fakenvml.MIGA100, "  RegisterEvents 0\n", "  RegisterEvents 0\n  event 43 5 0\n", 1)
	g.rewrite(withEvent)
	g.eventually("the event is told", func() bool { return len(g.messages()) == 1 })
	g.mu.Lock()
	assert.Equal(t, []signal.ErrorTag{{Key: "device.bus_id", Value: "00000000:07:00.0"}, {Key: "device.uuid", Value: gpu},
		{Key: "device.gpu_instance_id", Value: "5"}, {Key: "device.compute_instance_id", Value: "0"}}, g.errors[0].Tags)
	g.mu.Unlock()

	// Another division of the GPU: the device that is gone leaves, the new one comes.
	const third = "MIG-33333333-aaaa-5bbb-8ccc-123456789abc"
	changed := strings.Replace(withEvent, second, third, 1)
	changed = strings.Replace(changed, "mig 0\n", "mig 6\n", 1)
	changed = strings.Replace(changed, "mig 4\n", "mig 4\n  all 2\n", 1)
	g.rewrite(changed)
	g.eventually("the lost MIG device is noticed", func() bool { return g.logs.FilterMessage("MIG device is gone").Len() == 1 })
	assert.Len(t, g.messages(), 1)
	g.rewrite(strings.Replace(changed, "  all 2\n", "", 1))
	g.eventually("the new MIG device is there", func() bool { return g.get("gpu_memory_used_bytes", third).value != "" })
}

// TestMIGMade: a GPU that is divided while it is watched.
func TestMIGMade(t *testing.T) {
	whole, _, _ := strings.Cut(fakenvml.MIGA100, "mig 0\n")
	g := start(t, strings.Replace(whole, "GetMigMode 0 1", "GetMigMode 0 0", 1))
	g.eventually("the GPU was read", func() bool {
		return g.get("gpu_temperature_celsius", "GPU-4d1f0a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b").value != ""
	})
	g.rewrite(fakenvml.MIGA100)
	for _, uuid := range []string{"MIG-11111111-aaaa-5bbb-8ccc-123456789abc", "MIG-22222222-aaaa-5bbb-8ccc-123456789abc"} {
		g.eventually("its MIG devices are there", func() bool { return g.get("gpu_memory_used_bytes", uuid).value != "" })
	}
	assert.Equal(t, 1, g.logs.FilterMessage("GPU has other MIG devices than before").Len())
	assert.Empty(t, g.messages())
}

// TestMemoryNotTold is the case of parts that share the host's memory.
func TestMemoryNotTold(t *testing.T) {
	const gb10 = "GPU-ab10ab10-0000-1111-2222-333344445555"
	for name, extra := range map[string]string{
		"not supported":               "",
		"all zero":                    "  GetMemoryInfo_v2 0 0 0 0 0\n",
		"total zero":                  "  GetMemoryInfo_v2 0 0 0 0 6000000000\n",
		"total zero, old form":        "  GetMemoryInfo_v2 3\n  GetMemoryInfo 0 0 0 6000000000\n",
		"all ones":                    "  GetMemoryInfo_v2 0 18446744073709551615 0 0 0\n",
		"unknown version of a struct": "  GetMemoryInfo_v2 25\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, fakenvml.GB10+extra)
			g.settle(3)
			assert.Equal(t, "23.45", g.get("gpu_power_usage_watts", gb10).value)
			g.mu.Lock()
			defer g.mu.Unlock()
			assert.Equal(t, map[string]string{"device.bus_id": "0000000A:01:00.0", "device.uuid": gb10, "device.name": "NVIDIA GB10",
				"architecture": "Blackwell", "compute_capability": "12.1"}, g.entities[gb10])
			var names []string
			for key := range g.latest {
				name, _, _ := strings.Cut(key, "{")
				names = append(names, name)
			}
			slices.Sort(names)
			assert.Equal(t, []string{"gpu_performance_state", "gpu_power_usage_watts", "gpu_temperature_celsius"}, names)
		})
	}
}

// TestInitFails is the case of a driver that was updated under the running system, and its relatives.
func TestInitFails(t *testing.T) {
	for code, warning := range map[int]string{
		18:  "nvmlInit failed: Driver/library version mismatch (18); the NVIDIA kernel driver and its libraries may be of different versions, as after an update without a reboot",
		999: "nvmlInit failed: Unknown Error (999); the NVIDIA kernel driver and its libraries may be of different versions, as after an update without a reboot",
		4:   "nvmlInit failed: Insufficient Permissions (4); the NVIDIA kernel driver and its libraries may be of different versions, as after an update without a reboot",
		9:   "", 12: "",
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			g := start(t, fmt.Sprintf("Init %d\n", code)+fakenvml.H200)
			g.eventually("it was tried and reported", func() bool { return g.logs.FilterMessage("GPU metrics are off").Len() > 0 })
			entries := g.logs.FilterMessage("GPU metrics are off").All()
			require.Len(t, entries, 1)
			if warning == "" {
				assert.Equal(t, zap.DebugLevel, entries[0].Level)
			} else {
				assert.Equal(t, zap.WarnLevel, entries[0].Level)
				assert.Equal(t, warning, entries[0].ContextMap()["error"])
			}
			g.stop()
			assert.Equal(t, 1, g.calls("Init"))
			assert.Zero(t, g.calls("Shutdown"))
			assert.Zero(t, g.round())
		})
	}
}

// TestLost is the case of one GPU that falls off the bus.
func TestLost(t *testing.T) {
	g := start(t, fakenvml.H200s(3))
	uuid := func(i int) string { return fmt.Sprintf("GPU-8f07616%d-ee1c-bf09-b577-0f480718bcdc", i) }
	g.eventually("all were read", func() bool { return g.get("gpu_temperature_celsius", uuid(2)).value != "" })
	good := fakenvml.H200s(3)
	blocks := strings.SplitAfter(good, "gpu\n")
	require.Len(t, blocks, 4)
	blocks[2] = "  all 15\n  event 79\n" + blocks[2]
	g.rewrite(strings.Join(blocks, ""))
	g.eventually("the loss is told", func() bool { return len(g.messages()) >= 2 })
	at := g.get("gpu_temperature_celsius", uuid(1)).time
	g.settle(10)
	assert.Equal(t, at, g.get("gpu_temperature_celsius", uuid(1)).time)
	for _, i := range []int{0, 2} {
		assert.Greater(t, g.get("gpu_temperature_celsius", uuid(i)).round, g.round()-3, "GPU %d goes on", i)
	}
	assert.Equal(t, []string{"XID error 79", "GPU does not answer any more: GPU is lost (15)"}, g.messages())
	g.mu.Lock()
	assert.Equal(t, []signal.ErrorTag{{Key: "device.bus_id", Value: "00000000:2A:00.0"}, {Key: "device.uuid", Value: uuid(1)}}, g.errors[0].Tags)
	assert.Equal(t, g.errors[0].Tags, g.errors[1].Tags)
	assert.Equal(t, "error", g.errors[1].Level)
	g.mu.Unlock()
	assert.Equal(t, "1", g.get("gpu_xid_critical_errors", uuid(1)).value)

	g.rewrite(good)
	g.eventually("it is back", func() bool { return g.get("gpu_temperature_celsius", uuid(1)).time > at })
	assert.Equal(t, 1, g.calls("Init"))
	assert.Len(t, g.messages(), 2)
}

// TestAllLost is the case of a container that loses all its GPUs for a while.
func TestAllLost(t *testing.T) {
	g := start(t, fakenvml.H200s(2))
	const uuid = "GPU-8f076160-ee1c-bf09-b577-0f480718bcdc"
	g.eventually("GPUs were read", func() bool { return g.get("gpu_temperature_celsius", uuid).value != "" })
	started := g.get("gpu_temperature_celsius", uuid).start
	bad := "DeviceGetCount 999\nDeviceGetHandleByIndex 999\n" + strings.ReplaceAll(fakenvml.H200s(2), "gpu\n", "gpu\n  all 999\n")
	g.rewrite(bad)
	g.eventually("the loss is told", func() bool { return len(g.messages()) >= 2 })
	g.eventually("opening again fails", func() bool { return g.calls("Init") >= 2 })
	at := g.get("gpu_temperature_celsius", uuid).time
	g.rewrite(fakenvml.H200s(2))
	g.eventually("they are back", func() bool { return g.get("gpu_temperature_celsius", uuid).time > at })
	assert.Len(t, g.messages(), 2, "one for each GPU: %v", g.messages())
	assert.Empty(t, g.logs.FilterLevelExact(zap.WarnLevel).All())
	assert.Equal(t, started, g.get("gpu_temperature_celsius", uuid).start, "the device was seen first at the start")
}

// TestLastEvent: the only GPU is lost, and the event that says why comes later.
func TestLastEvent(t *testing.T) {
	g := start(t, fakenvml.H200)
	g.eventually("it was read", func() bool { return g.get("gpu_temperature_celsius", h200).value != "" })
	g.rewrite(strings.Replace(fakenvml.H200, "gpu\n", "gpu\n  all 15\n", 1))
	g.eventually("the loss is told", func() bool { return len(g.messages()) == 1 })
	g.rewrite(strings.Replace(fakenvml.H200, "gpu\n", "gpu\n  all 15\n  event 79\n", 1))
	g.eventually("the event is told", func() bool { return slices.Contains(g.messages(), "XID error 79") })
}

// TestHang: a GPU whose calls hang keeps nobody else, nor Shutdown.
func TestHang(t *testing.T) {
	good := fakenvml.H200s(2)
	g := start(t, good)
	const first, second = "GPU-8f076160-ee1c-bf09-b577-0f480718bcdc", "GPU-8f076161-ee1c-bf09-b577-0f480718bcdc"
	g.eventually("both were read", func() bool { return g.get("gpu_temperature_celsius", second).value != "" })
	blocks := strings.SplitAfter(good, "gpu\n")
	blocks[2] = "  delay 6000\n" + blocks[2]
	g.rewrite(strings.Join(blocks, ""))
	g.eventually("the second is stuck", func() bool { return g.get("gpu_temperature_celsius", second).round < g.round()-5 })
	assert.GreaterOrEqual(t, g.get("gpu_temperature_celsius", first).round, g.round()-1, "the first goes on")
	g.stop()
	assert.Equal(t, 1, g.calls("EventSetFree"), "Shutdown does not wait for the call that hangs")
	assert.Zero(t, g.calls("Shutdown"), "a driver that hangs is not asked to shut down")
}

// TestHangAtInit: nvmlInit hangs while the receiver is shut down. What it opened in the end is closed.
func TestHangAtInit(t *testing.T) {
	g := start(t, "InitDelay 1500\n"+fakenvml.H200)
	g.eventually("nvmlInit is called", func() bool { return g.calls("Init") == 1 })
	g.stop()
	assert.Zero(t, g.calls("DeviceGetCount"), "Shutdown does not wait until nvmlInit has ended")
	g.eventually("the library is given back", func() bool { return g.calls("Shutdown") == 1 })
	assert.Zero(t, g.round())
}

// TestShutdownDuringInit: the library is given back before Shutdown returns.
func TestShutdownDuringInit(t *testing.T) {
	g := start(t, "InitDelay 100\n"+fakenvml.H200)
	g.eventually("nvmlInit is called", func() bool { return g.calls("Init") == 1 })
	g.stop()
	assert.Equal(t, 1, g.calls("Shutdown"))
}

// TestXIDBurst is the case of several events in one collection.
func TestXIDBurst(t *testing.T) {
	g := start(t, fakenvml.H200)
	g.eventually("it was read", func() bool { return g.get("gpu_xid_critical_errors", h200).value == "0" })
	events := "  event 62\n  event 45\n  event 45\n"
	g.rewrite(fakenvml.H200 + events)
	g.eventually("they are counted", func() bool { return g.get("gpu_xid_critical_errors", h200).value == "3" })
	g.eventually("they are told", func() bool { return len(g.messages()) == 3 })
	assert.Equal(t, []string{"XID error 62", "XID error 45", "XID error 45"}, g.messages())
	events += "  event 31\n"
	g.rewrite(fakenvml.H200 + events)
	g.eventually("the next is counted", func() bool { return g.get("gpu_xid_critical_errors", h200).value == "4" })
	events += strings.Repeat("  event 13\n", 20) + "  event 31\n"
	g.rewrite(fakenvml.H200 + events)
	g.eventually("the burst is counted", func() bool { return g.get("gpu_xid_critical_errors", h200).value == "25" })
	g.eventually("the burst is told", func() bool { return len(g.messages()) == 6 })
	assert.Equal(t, []string{"XID error 31", "XID error 13 (20 times)", "XID error 31"}, g.messages()[3:])
}

func TestXIDRegistration(t *testing.T) {
	for code, warnings := range map[int]int{3: 0, 999: 1} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			g := start(t, strings.Replace(fakenvml.H200, "RegisterEvents 0", fmt.Sprintf("RegisterEvents %d", code), 1))
			g.settle(5)
			assert.Empty(t, g.get("gpu_xid_critical_errors", h200).value)
			assert.Equal(t, "35", g.get("gpu_temperature_celsius", h200).value)
			assert.Equal(t, warnings, g.logs.FilterLevelExact(zap.WarnLevel).Len(), "%v", g.logs.All())
			assert.Equal(t, 1, g.calls("RegisterEvents"))
		})
	}
}

// TestFieldStatus: the status of a field is that field's alone. Without byte counters PCIe is sampled, off the fast lane.
func TestFieldStatus(t *testing.T) {
	script := strings.NewReplacer("field.197.0 0 1 2664821868", "field.197.0 3", "field.198.0 0 1 1931227568", "field.198.0 3").Replace(fakenvml.H200) +
		"  field.138.4294967295 0 3 77\n  field.139.4294967295 999\n  delay.GetPcieThroughput 20\n"
	g := start(t, script)
	g.eventually("PCIe was sampled", func() bool { return g.get("gpu_pcie_throughput_tx_kilobytes_per_second", h200).value == "1593" })
	assert.Equal(t, "587", g.get("gpu_pcie_throughput_rx_kilobytes_per_second", h200).value)
	assert.Equal(t, "77", g.get("gpu_nvlink_throughput_data_tx_kibibytes", h200).value)
	assert.Empty(t, g.get("gpu_nvlink_throughput_data_rx_kibibytes", h200).value)
}

// TestUtilizationRates: where the driver gives the rates themselves, they are read in place of the samples.
func TestUtilizationRates(t *testing.T) {
	g := start(t, strings.Replace(fakenvml.H200, "GetSamples.1 0 0 0 0 0", "GetUtilizationRates 0 93 41\n  GetSamples.1 0 7", 1))
	g.eventually("rates are read", func() bool { return g.get("gpu_utilization_percent", h200).value == "93" })
	assert.Equal(t, "41", g.get("gpu_memory_utilization_percent", h200).value)
	g.settle(4)
	assert.Equal(t, "93", g.get("gpu_utilization_percent", h200).value)
}

// TestNoSamples: a collection without new samples publishes no utilization, and takes up again later.
func TestNoSamples(t *testing.T) {
	g := start(t, strings.Replace(fakenvml.H200, "GetSamples.1 0 0 0 0 0", "GetSamples.1 6", 1))
	g.settle(4)
	assert.Empty(t, g.get("gpu_utilization_percent", h200).value)
	assert.Empty(t, g.get("gpu_memory_utilization_percent", h200).value, "they share their fate")
	g.rewrite(strings.Replace(fakenvml.H200, "GetSamples.1 0 0 0 0 0", "GetSamples.1 0 50 100", 1))
	g.eventually("samples are read", func() bool { return g.get("gpu_utilization_percent", h200).value == "75" })
}

func TestPCIeRate(t *testing.T) {
	script := strings.NewReplacer("field.197.0 0 1 2664821868", "field.197.0 0 1 4294960000 30000000000", "field.198.0 0 1 1931227568", "field.198.0 0 1 5 1000000").Replace(fakenvml.H200)
	g := start(t, script, func(c *Config) { c.Interval = 300 * time.Millisecond })
	// 30 GB/s go around the counter seven times a second. A machine that gives this test too little time gets no value.
	g.eventually("the rate is right", func() bool {
		var rate int
		_, err := fmt.Sscan(g.get("gpu_pcie_throughput_tx_kilobytes_per_second", h200).value, &rate)
		return err == nil && rate > 29_000_000 && rate < 31_000_000
	})
	var received int
	_, err := fmt.Sscan(g.get("gpu_pcie_throughput_rx_kilobytes_per_second", h200).value, &received)
	require.NoError(t, err)
	assert.InDelta(t, 1000, received, 50)
}

func TestWithoutLibrary(t *testing.T) {
	for name, tt := range map[string]struct {
		path  func(t *testing.T) string
		level int
		text  string
	}{
		"missing": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "libnvidia-ml.so.1") }, int(zap.DebugLevel), "no NVIDIA driver"},
		"damaged": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
			require.NoError(t, os.WriteFile(path, []byte("not a library"), 0o600))
			return path
		}, int(zap.WarnLevel), "NVML cannot be loaded"},
		"another library": {func(*testing.T) string { return "libm.so.6" }, int(zap.WarnLevel), "is no NVML library"},
	} {
		t.Run(name, func(t *testing.T) {
			path := tt.path(t)
			g := start(t, "", func(c *Config) { c.LibraryPath = path })
			g.eventually("it is reported", func() bool { return g.logs.FilterMessage("GPU metrics are off").Len() == 1 })
			entry := g.logs.FilterMessage("GPU metrics are off").All()[0]
			assert.EqualValues(t, tt.level, entry.Level)
			assert.Contains(t, entry.ContextMap()["error"], tt.text)
		})
	}
}

// TestBindNow: with LD_BIND_NOW the functions are bound to nothing, so none is called.
func TestBindNow(t *testing.T) {
	g := start(t, fakenvml.H200, func(*Config) { t.Setenv("LD_BIND_NOW", "1") })
	g.eventually("it is reported", func() bool { return g.logs.FilterMessage("GPU metrics are off").Len() == 1 })
	entry := g.logs.FilterMessage("GPU metrics are off").All()[0]
	assert.Equal(t, zap.WarnLevel, entry.Level)
	assert.Contains(t, entry.ContextMap()["error"], "LD_BIND_NOW")
	g.stop()
	assert.Zero(t, g.calls("Init"))
}

// TestBindNowWithoutDriver: where there is nothing to be read, nothing is wrong.
func TestBindNowWithoutDriver(t *testing.T) {
	g := start(t, "", func(c *Config) {
		t.Setenv("LD_BIND_NOW", "1")
		c.LibraryPath = filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	})
	g.eventually("it is reported", func() bool { return g.logs.FilterMessage("GPU metrics are off").Len() == 1 })
	assert.Equal(t, zap.DebugLevel, g.logs.FilterMessage("GPU metrics are off").All()[0].Level)
}

// TestSettingsThatFindNothing: what was asked for by name and is not there is told, once.
func TestSettingsThatFindNothing(t *testing.T) {
	for want, configure := range map[string]func(*Config){
		"There is no library at library_path; it is looked for again":        func(c *Config) { c.LibraryPath = filepath.Join(t.TempDir(), "libnvidia-ml.so.1") },
		"No GPU is one of the configured devices; they are looked for again": func(c *Config) { c.Devices = []string{"GPU-0000"} },
	} {
		g := start(t, fakenvml.H200, configure)
		g.eventually("it is told", func() bool { return g.logs.FilterMessage(want).Len() == 1 })
		assert.Equal(t, zap.WarnLevel, g.logs.FilterMessage(want).All()[0].Level)
		g.stop()
	}
}

// TestLeftOut: one GPU does not answer from the start, one belongs to another container.
func TestLeftOut(t *testing.T) {
	blocks := strings.SplitAfter(fakenvml.H200s(3), "gpu\n")
	blocks[1] = "  GetHandle 15\n" + blocks[1]
	blocks[2] = "  GetHandle 4\n" + blocks[2]
	g := start(t, strings.Join(blocks, ""))
	g.eventually("the third was read", func() bool {
		return g.get("gpu_temperature_celsius", "GPU-8f076162-ee1c-bf09-b577-0f480718bcdc").value == "35"
	})
	g.settle(5)
	g.mu.Lock()
	assert.Len(t, g.entities, 1)
	g.mu.Unlock()
	warnings := g.logs.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, warnings, 1)
	assert.Equal(t, "GPU 0 does not answer and is left out", warnings[0].Message)
}

func TestLifecycle(t *testing.T) {
	r := newReceiver(NewFactory().CreateDefaultConfig().(*Config), zap.NewNop())
	require.NoError(t, r.Shutdown(context.Background()), "without Start")
	require.NoError(t, r.Shutdown(context.Background()))
	g := start(t, fakenvml.GB10)
	g.stop() // at once
}
