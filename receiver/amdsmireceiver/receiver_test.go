package amdsmireceiver

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/selection"
)

func TestMI300X(t *testing.T) {
	s := start(t, newFake(t, scenario(t, "mi300x")).path).next()
	s.expect(t, "0000:05:00.0", map[string]string{
		"gpu_memory_total_bytes": "206141652992", "gpu_memory_used_bytes": "42949672960", "gpu_memory_free_bytes": "163191980032",
		"gpu_utilization_percent": "97", "gpu_memory_utilization_percent": "20",
		"gpu_temperature_celsius": "61", "gpu_memory_temperature_celsius": "44",
		"gpu_power_usage_watts": "310f", "gpu_power_management_limit_watts": "750f",
		"gpu_clock_sm_megahertz": "2100", "gpu_clock_mem_megahertz": "1300", "gpu_max_clock_sm_megahertz": "2100",
		"gpu_pcie_link_generation": "5", "gpu_pcie_link_width": "16", "gpu_pcie_replay_counter": "7",
		"gpu_pcie_bandwidth_megabits_per_second": "64",
		"gpu_xgmi_read_kilobytes":                "6000", "gpu_xgmi_write_kilobytes": "60", "gpu_xgmi_link_width": "16", "gpu_xgmi_link_speed": "32",
		"gpu_throttle_accumulation_cycles": "50000000", "gpu_throttle_prochot_residency": "0", "gpu_throttle_ppt_residency": "1234",
		"gpu_throttle_socket_thermal_residency": "5", "gpu_throttle_vr_thermal_residency": "0", "gpu_throttle_hbm_thermal_residency": "0",
		"gpu_ecc_errors_corrected_volatile": "3", "gpu_ecc_errors_uncorrected_volatile": "1", "gpu_ecc_errors_deferred_volatile": "2",
	})
	if want := map[string]any{"device.bus_id": "0000:05:00.0", "device.uuid": "11ff74a1-0000-1000-80aa-000000000001",
		"device.name": "AMD Instinct MI300X", "architecture": "gfx942", "mem_total": "206141652992",
		"device.hip_uuid": "GPU-11aa22bb33cc44dd"}; !maps.Equal(s.devices["0000:05:00.0"], want) {
		t.Errorf("attributes are %v", s.devices["0000:05:00.0"])
	}
	// An idle GPU shows zeros, which are readings; a processor that is no GPU shows nothing.
	if got := s.values["0000:26:00.0 gpu_utilization_percent"]; got != "0" || len(s.devices) != 2 {
		t.Errorf("idle: %q, devices %v", got, s.devices)
	}
}

func TestECCDoesNotGrowByItself(t *testing.T) {
	x := start(t, newFake(t, scenario(t, "mi300x")).path)
	x.next()
	if got := x.next().values["0000:05:00.0 gpu_ecc_errors_corrected_volatile"]; got != "3" {
		t.Errorf("corrected errors are %s after some collections", got)
	}
}

func TestMI210(t *testing.T) {
	s := start(t, newFake(t, scenario(t, "mi210")).path).next()
	s.expect(t, "0000:83:00.0", map[string]string{
		"gpu_memory_total_bytes": "68702699520", "gpu_memory_used_bytes": "1073741824", "gpu_memory_free_bytes": "67628957696",
		"gpu_utilization_percent": "12", "gpu_memory_utilization_percent": "3",
		"gpu_temperature_celsius": "43", "gpu_memory_temperature_celsius": "45",
		"gpu_power_usage_watts": "95f", "gpu_power_management_limit_watts": "300f",
		"gpu_clock_sm_megahertz": "1700", "gpu_clock_mem_megahertz": "1600", "gpu_max_clock_sm_megahertz": "1700",
		"gpu_pcie_link_generation": "4", "gpu_pcie_link_width": "16", "gpu_pcie_replay_counter": "12",
		"gpu_clocks_throttle_reasons": "76", "gpu_throttle_status_raw": "87960930287617",
		"gpu_ecc_errors_corrected_volatile": "0", "gpu_ecc_errors_uncorrected_volatile": "0", "gpu_ecc_errors_deferred_volatile": "0",
	})
	if _, ok := s.devices["0000:83:00.0"]["architecture"]; ok {
		t.Error("an architecture that library 24.6 cannot tell")
	}
}

func TestRadeon(t *testing.T) {
	s := start(t, newFake(t, scenario(t, "radeon")).path).next()
	s.expect(t, "0000:03:00.0", map[string]string{
		"gpu_memory_total_bytes": "25753026560", "gpu_memory_used_bytes": "1073741824", "gpu_memory_free_bytes": "24679284736",
		"gpu_utilization_percent": "99", "gpu_memory_utilization_percent": "41",
		"gpu_temperature_celsius": "52", "gpu_memory_temperature_celsius": "62",
		"gpu_power_usage_watts": "303f", "gpu_power_management_limit_watts": "303f", "gpu_fan_speed_percent": "40f",
		"gpu_clock_sm_megahertz": "2431", "gpu_clock_mem_megahertz": "1249", "gpu_max_clock_sm_megahertz": "2482",
		"gpu_pcie_link_generation": "4", "gpu_pcie_link_width": "16",
		"gpu_clocks_throttle_reasons": "0", "gpu_throttle_status_raw": "0",
	})
	if got := s.devices["0000:03:00.0"]["architecture"]; got != "gfx1100" {
		t.Errorf("architecture is %v", got)
	}
}

// TestPartitions: the board's sensors are those of its first partition; others have memory only, and nothing that says
// "not available" in any shape.
func TestPartitions(t *testing.T) {
	s := start(t, newFake(t, scenario(t, "dpx")).path).next()
	s.expect(t, "0000:05:00.0/1", map[string]string{
		"gpu_memory_total_bytes": "103079215104", "gpu_memory_used_bytes": "3221225472", "gpu_memory_free_bytes": "99857989632",
	})
	if got := s.devices["0000:05:00.0/1"]["device.name"]; got != "AMD Instinct MI300X partition 1" {
		t.Errorf("the partition's name is %v", got)
	}
	for name, want := range map[string]string{"gpu_power_usage_watts": "310f", "gpu_temperature_celsius": "61", "gpu_utilization_percent": "97",
		"gpu_memory_utilization_percent": "20", "gpu_memory_used_bytes": "42949672960"} {
		if got := s.values["0000:05:00.0 "+name]; got != want {
			t.Errorf("board: %s is %s, want %s", name, got, want)
		}
	}
	s = start(t, newFake(t, scenario(t, "cpx")).path).next()
	if len(s.devices) != 8 {
		t.Errorf("%d devices, want 8", len(s.devices))
	}
	for key, value := range s.values {
		if strings.Contains(key, "/") && !strings.Contains(key, "memory_") || value == "65535" || value == "4294967295" || value == "0" {
			t.Errorf("%s is %s", key, value)
		}
	}
}

// TestSelectedPartition brings along the partition that has the board's sensors.
func TestSelectedPartition(t *testing.T) {
	s := start(t, newFake(t, scenario(t, "cpx")).path, "HIP_VISIBLE_DEVICES=5,3").next()
	if got := slices.Sorted(maps.Keys(s.devices)); !slices.Equal(got, []string{"0000:05:00.0", "0000:05:00.0/3", "0000:05:00.0/5"}) {
		t.Errorf("devices are %v", got)
	}
	if s.values["0000:05:00.0 gpu_power_usage_watts"] != "310f" {
		t.Errorf("values are %v", s.values)
	}
}

func TestFallbacks(t *testing.T) {
	s := start(t, newFake(t, `abi 24 7
device
u64 bdf 0 0x1234567b
ret metrics 2
u32 vram_usage 0 1000
u32 vram_usage 4 2000
u32 activity 0 33
u32 activity 4 44
ret temp1 2
u64 temp0 0 55
u64 temp2 0 66
u64 power_cap 0 560
u32 clock0 0 500
u32 clock0 8 65535
u32 clock4 0 600
u64 pcie 112 4294967295
u64 asic 384 942
`).path).next()
	s.expect(t, "1234:56:0f.3", map[string]string{
		"gpu_memory_total_bytes": "1048576000", "gpu_memory_used_bytes": "2097152000", "gpu_memory_free_bytes": "0",
		"gpu_utilization_percent": "33", "gpu_memory_utilization_percent": "44", "gpu_temperature_celsius": "55",
		"gpu_memory_temperature_celsius": "66", "gpu_power_management_limit_watts": "560f",
		"gpu_clock_sm_megahertz": "500", "gpu_clock_mem_megahertz": "600",
	})
	if got := s.devices["1234:56:0f.3"]["architecture"]; got != "gfx942" {
		t.Errorf("architecture is %v", got)
	}
	// The clock of the fastest die where there is none of the whole.
	s = start(t, newFake(t, "abi 26 0\ndevice\nu64 bdf 0 0x500\nu16 metrics 312 1200\nu16 metrics 314 1300\n").path).next()
	s.expect(t, "0000:05:00.0", map[string]string{"gpu_clock_sm_megahertz": "1300"})
}

// TestHang: a call that does not return holds neither a collection nor the end.
func TestHang(t *testing.T) {
	release := filepath.Join(t.TempDir(), "go")
	f := newFake(t, scenario(t, "radeon"))
	x := start(t, f.path)
	x.next()
	f.script(scenario(t, "radeon") + "hold metrics " + release + "\n")
	eventually(t, "the call hangs", func() bool { return exists(release + ".held") })
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.next() // it goes on

	// And again, until the end.
	held := filepath.Join(t.TempDir(), "never")
	f.script(scenario(t, "radeon") + "hold metrics " + held + "\n")
	eventually(t, "the call hangs", func() bool { return exists(held + ".held") })
	worker := x.r.worker
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	x.closed = true
	if err := x.r.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if x.logged("does not answer; AMD SMI was left open") != 1 {
		t.Errorf("messages are %v", x.logs.All())
	}
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-worker.ended
}

// TestHangIsTold once, and its end.
func TestHangIsTold(t *testing.T) {
	release := filepath.Join(t.TempDir(), "go")
	f := newFake(t, scenario(t, "radeon")+"hold metrics "+release+"\n")
	x := &run{t: t}
	cfg := createDefaultConfig().(*Config)
	cfg.Interval, cfg.LibraryPath = 20*time.Millisecond, f.path
	core, logs := observer.New(zap.DebugLevel)
	x.logs = logs
	x.r = newReceiver(cfg, zap.New(core), &x.sink)
	now := time.Now()
	x.r.now = func() time.Time { return now }
	x.r.worker = newWorker([]string{f.path}, selection.New(nil, func(string) (string, bool) { return "", false }))
	x.r.collect(t.Context())
	now = now.Add(hangAfter)
	x.r.collect(t.Context())
	now = now.Add(hangAfter)
	x.r.collect(t.Context())
	if n := x.logged("does not answer"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "metrics come", func() bool {
		x.r.collect(t.Context())
		return x.sink.DataPointCount() > 0
	})
	if n := x.logged("answers again"); n != 1 {
		t.Errorf("told %d times that it answers", n)
	}
	if err := x.r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLost: devices that do not answer any more leave no values; the library is opened anew and they come back.
func TestLost(t *testing.T) {
	f := newFake(t, scenario(t, "radeon"))
	x := start(t, f.path)
	first := x.next()
	lost := "abi 25 0\ndevice\n"
	for _, name := range []string{"metrics", "memory_total", "memory_usage", "vram_usage", "activity", "temp0", "temp1", "temp2", "power_cap",
		"fan", "clock0", "clock4", "ecc", "pcie"} {
		lost += "ret " + name + " 43\n"
	}
	f.script(lost)
	eventually(t, "that is told", func() bool { return x.logged("No AMD GPU answers any more") == 1 })
	f.script(scenario(t, "radeon"))
	again := x.next()
	if first.devices["0000:03:00.0"]["device.uuid"] != again.devices["0000:03:00.0"]["device.uuid"] || len(again.values) != len(first.values) {
		t.Errorf("before %v, after %v", first, again)
	}
	eventually(t, "that is told, too", func() bool { return x.logged("answer again") == 1 })
}

// TestOneLost: one device of two that does not answer any more is told of once, and comes back.
func TestOneLost(t *testing.T) {
	good := scenario(t, "mi300x")
	head, rest, _ := strings.Cut(good, "device\n")
	one, two, _ := strings.Cut(rest, "device\n")
	lost := ""
	for _, name := range []string{"metrics", "memory_total", "memory_usage", "vram_usage", "activity", "temp0", "temp1", "temp2", "power_cap",
		"fan", "clock0", "clock4", "ecc", "pcie"} {
		lost += "ret " + name + " 43\n"
	}
	f := newFake(t, good)
	x := start(t, f.path)
	before := x.next()
	f.script(head + "device\n" + one + "device\n" + lost + two[strings.Index(two, "device\n"):])
	eventually(t, "that is told", func() bool { return x.logged("AMD GPU does not answer any more") == 1 })
	for range 2 * silentRounds {
		if s := x.next(); len(s.devices) != 1 || s.values["0000:05:00.0 gpu_power_usage_watts"] != "310f" {
			t.Fatalf("devices are %v", s.devices)
		}
	}
	f.script(good)
	eventually(t, "that it is back is told", func() bool { return x.logged("AMD GPU answers again") == 1 })
	if after := x.next(); len(after.values) != len(before.values) || x.logged("not answer") != 1 || x.logged("No AMD GPU") != 0 {
		t.Errorf("before %v, after %v; messages %v", before.values, after.values, x.logs.All())
	}
}

func TestNothingToRead(t *testing.T) {
	for name, tc := range map[string]struct {
		script, level, message string
	}{
		"no driver":      {"init 34\n", "debug", "AMD GPU metrics are off"},
		"no device":      {"abi 26 0\n", "debug", "No AMD GPU is selected"},
		"broken":         {"init 7\n", "warn", "AMD GPU metrics are off"},
		"unknown past":   {"abi 23 4\n", "warn", "AMD GPU metrics are off"},
		"unknown future": {"abi 28 0\n", "warn", "AMD GPU metrics are off"},
	} {
		t.Run(name, func(t *testing.T) {
			x := start(t, newFake(t, tc.script).path)
			eventually(t, "that is told", func() bool { return x.logged(tc.message) > 0 })
			x.stop()
			entries := x.logs.FilterMessage(tc.message).All()
			if len(entries) != 1 || entries[0].Level.String() != tc.level || len(x.sink.AllMetrics()) != 0 {
				t.Errorf("messages are %v", x.logs.All())
			}
		})
	}
	t.Run("no library", func(t *testing.T) {
		x := start(t, filepath.Join(t.TempDir(), "libamd_smi.so.26"))
		eventually(t, "that is told", func() bool { return x.logged("AMD GPU metrics are off") > 0 })
		x.stop()
		if e := x.logs.FilterMessage("AMD GPU metrics are off").All(); e[0].Level.String() != "debug" {
			t.Errorf("messages are %v", x.logs.All())
		}
		// It was asked for by name.
		if e := x.logs.FilterMessageSnippet("library_path").All(); len(e) != 1 || e[0].Level.String() != "warn" {
			t.Errorf("messages are %v", x.logs.All())
		}
	})
	t.Run("no library at all", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "libamd_smi.so.26")
		if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		x := start(t, file)
		eventually(t, "that is told", func() bool { return x.logged("AMD GPU metrics are off") > 0 })
		if e := x.logs.FilterMessage("AMD GPU metrics are off").All(); e[0].Level.String() != "warn" {
			t.Errorf("messages are %v", x.logs.All())
		}
	})
}

// TestSelectedByHIP: indices count in HIP's order, which is not the library's.
func TestSelectedByHIP(t *testing.T) {
	s := start(t, newFake(t, scenario(t, "mi300x")).path, "HIP_VISIBLE_DEVICES=0").next()
	if got := slices.Collect(maps.Keys(s.devices)); len(got) != 1 || got[0] != "0000:26:00.0" {
		t.Errorf("devices are %v", got)
	}
}

// TestIDsNotTold: before release 25 the library does not know HIP's ids. Nothing would be worse than too much.
func TestIDsNotTold(t *testing.T) {
	x := start(t, newFake(t, scenario(t, "mi210")).path, "ROCR_VISIBLE_DEVICES=GPU-11aa22bb33cc44dd")
	if s := x.next(); len(s.devices) != 1 {
		t.Errorf("devices are %v", s.devices)
	}
	x.stop()
	if entries := x.logs.FilterMessageSnippet("all are reported").All(); len(entries) != 1 || entries[0].Level.String() != "warn" {
		t.Errorf("messages are %v", x.logs.All())
	}
}

func TestConfig(t *testing.T) {
	conf, err := confmaptest.LoadConf("testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ id, problem string }{
		{"amdsmi", ""}, {"amdsmi/all", ""}, {"amdsmi/devices", "neither an index"}, {"amdsmi/interval", "collection_interval"},
	} {
		sub, err := conf.Sub(tc.id)
		if err != nil {
			t.Fatal(err)
		}
		cfg := createDefaultConfig()
		if err := sub.Unmarshal(cfg); err != nil {
			t.Fatal(err)
		}
		err = cfg.(*Config).Validate()
		if tc.problem == "" && err != nil || tc.problem != "" && (err == nil || !strings.Contains(err.Error(), tc.problem)) {
			t.Errorf("%s: %v", tc.id, err)
		}
	}
}

func TestLifecycle(t *testing.T) {
	factory := NewFactory()
	if err := componenttest.CheckConfigStruct(factory.CreateDefaultConfig()); err != nil {
		t.Error(err)
	}
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.LibraryPath = newFake(t, scenario(t, "radeon")).path
	for range 2 {
		r, err := factory.CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := factory.CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if factory.Type() != component.MustNewType("amdsmi") {
		t.Errorf("type %v", factory.Type())
	}
}
