package nvmlreceiver

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/driver"
)

// realDriver is the variable that lets TestRealDriver run: it holds the number of readings to make.
const realDriver = "GRAPHSIGNAL_NVML_READINGS"

// TestRealDriver measures every call on this host's GPUs: how long it takes, and what CPU time a reading costs. It judges
// nothing; it prints what docs/benchmarks.md shows.
func TestRealDriver(t *testing.T) {
	var readings int
	if _, err := fmt.Sscan(os.Getenv(realDriver), &readings); err != nil || readings < 1 {
		t.Skipf("measures a real driver, with %s=N only", realDriver)
	}
	runtime.LockOSThread() // CPU time is the thread's
	defer runtime.UnlockOSThread()
	lib := driver.New("")
	begin := time.Now()
	if err := lib.Open(); err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	fmt.Printf("nvmlInit %v\n", time.Since(begin))
	begin = time.Now()
	list, skipped, ret := enumerate(lib)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	fmt.Printf("listing %d devices %v; %d do not answer\n", len(list), time.Since(begin), len(skipped))
	for _, id := range list {
		quit := make(chan struct{})
		d := newDevice(id, lib, quit, make(chan struct{}, 1), time.Now())
		fmt.Printf("== %s %s\n", id.title(), id.name)
		measure("fast", d, &d.fastCalls, readings)
		measure("slow", d, &d.slowCalls, max(1, readings/10))
		events := timed(readings, func() { d.xids.register(lib, d.handle, time.Now()); d.xids.drain() })
		fmt.Printf("  %-60s median %v longest %v\n", "events", events[len(events)/2], events[len(events)-1])
		wraps(t, d)
		close(quit)
		d.ended(nil)
	}
}

// measure makes all calls of a lane one by one, without regard to what was not supported before.
func measure(lane string, d *device, s *callState, readings int) {
	for i, c := range s.calls {
		var ret nvml.Return
		var values []value
		durations := timed(readings, func() {
			r := &reading{time: time.Now()}
			if !s.state[i].never {
				ret = c.read(d, r)
			}
			values = r.values
		})
		name := runtime.FuncForPC(reflect.ValueOf(c.read).Pointer()).Name()
		if len(c.symbols) > 0 {
			name = c.symbols[0][0]
		}
		fmt.Printf("  %-60s median %-12v longest %-12v returns %d, %d values", name, durations[len(durations)/2], durations[len(durations)-1], ret, len(values))
		for _, v := range values {
			fmt.Printf(" %s=%s", v.name, v.num.AppendJSON(nil))
		}
		fmt.Println()
	}
	for i := range s.state { // begin as a new session does
		s.state[i].after = time.Time{}
	}
	s.run(d, &reading{time: time.Now()}, time.Now())
	cpu := threadTime()
	for range readings {
		now := time.Now()
		s.run(d, &reading{time: now}, now)
	}
	fmt.Printf("  %s lane: CPU of a reading %v\n", lane, (threadTime()-cpu)/time.Duration(readings))
}

// timed returns the durations of n calls, ascending.
func timed(n int, call func()) []time.Duration {
	list := make([]time.Duration, 0, n)
	for range n {
		begin := time.Now()
		call()
		list = append(list, time.Since(begin))
		time.Sleep(2 * time.Millisecond) // a driver may answer from a cache of the last moment
	}
	slices.Sort(list)
	return list
}

func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// wraps reads the PCIe byte counters as often as it can for two seconds, next to NVML's own samples, to show their
// width, their unit and how often the driver renews them.
func wraps(t *testing.T, d *device) {
	var reads, changes, turns int
	var grown uint64
	var last uint64
	var valueType uint32
	begin := time.Now()
	for time.Since(begin) < 2*time.Second {
		values := pcieFields()
		if ret := d.handle.GetFieldValues(values); ret != nvml.SUCCESS {
			t.Logf("fields: %v", ret)
			return
		}
		n, ret := fieldTotal(&values[1])
		if ret != nvml.SUCCESS {
			fmt.Printf("  PCIe byte counters: %d\n", ret)
			return
		}
		valueType = values[1].ValueType
		now := n.Uint64()
		if reads > 0 {
			if now != last {
				changes++
			}
			if now < last {
				turns++
			}
			grown += uint64(uint32(now) - uint32(last))
		}
		last = now
		reads++
	}
	window := time.Since(begin)
	tx, ret1 := d.handle.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
	rx, ret2 := d.handle.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	fmt.Printf("  PCIe received: %d reads in %v, type %d, %d changes, %d times round, %.0f kB/s; sampled tx %d rx %d KB/s (%d, %d)\n",
		reads, window, valueType, changes, turns, float64(grown)/1000/window.Seconds(), tx, rx, ret1, ret2)
}
