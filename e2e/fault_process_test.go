package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestFaultKill ends each process by SIGKILL while the worker waits in the middle of its steps.
func TestFaultKill(t *testing.T) {
	steps := []string{"worker", "add:1000", "lines:3", "await:@go", "add:500", "lines:3", "exit:3"}

	t.Run("workload", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, steps...)
		f.seen("fault_steps", 1000)
		kill(t, f.workload(), syscall.SIGKILL)
		if status := f.wait().Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Errorf("the launcher ended with %#x", status)
		}
		f.silent()
		f.expectTotal("fault_steps", 1000)
		if d := f.final(); !hasError(d, "SIGKILL") {
			t.Errorf("the end is not among the errors: %v", d.Errors)
		}
		f.nothingLeft()
	})

	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, steps...)
		f.seen("fault_steps", 1000)
		first := f.sidecar()
		kill(t, first, syscall.SIGKILL)
		eventually(t, "another sidecar starts", func() bool {
			return !slices.Contains(children(f.cmd.Process.Pid), first) && len(children(f.cmd.Process.Pid)) == 2
		})
		f.seen("fault_steps", 1000)
		f.touch("go")
		f.ended(3, numbered(3)+numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 1500)
		if !hasError(f.final(), "non-zero code 3") {
			t.Errorf("the end is not among the errors: %v", f.final().Errors)
		}
		f.nothingLeft()
	})

	t.Run("sidecar, twice", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, steps...)
		for range 2 {
			f.seen("fault_steps", 1000)
			victim := f.sidecar()
			kill(t, victim, syscall.SIGKILL)
			eventually(t, "it is gone", func() bool { return !slices.Contains(children(f.cmd.Process.Pid), victim) })
		}
		eventually(t, "the launcher says so", func() bool { return f.stderr.String() != "" })
		f.touch("go")
		f.ended(3, numbered(3)+numbered(3))
		f.says("sidecar ended again (signal 9)")
		f.nothingLeftAfterNextRun()
	})

	t.Run("launcher", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, steps...)
		f.seen("fault_steps", 1000)
		kill(t, f.cmd.Process.Pid, syscall.SIGKILL)
		f.wait()
		f.nothingLeft()
		f.expectTotal("fault_steps", 1000)
	})

	t.Run("launcher and sidecar", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, steps...)
		f.seen("fault_steps", 1000)
		sidecar := f.sidecar()
		kill(t, f.cmd.Process.Pid, syscall.SIGSTOP) // so that it does not start another
		kill(t, sidecar, syscall.SIGKILL)
		kill(t, f.cmd.Process.Pid, syscall.SIGKILL)
		f.wait()
		f.nothingLeftAfterNextRun()
	})
}

// TestFaultStop stops each process and lets it go on.
func TestFaultStop(t *testing.T) {
	t.Run("workload", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "lines:3")
		before := f.seen("fault_steps", 1000)
		pid := f.workload()
		kill(t, pid, syscall.SIGSTOP)
		f.signalsWhen("/signals goes on", func(d *document) bool {
			m := d.find("host_memory_usage_bytes")
			return m != nil && string(m.UpdatedNS) > string(before.find("host_memory_usage_bytes").UpdatedNS) && d.total("fault_steps") == 1000
		})
		kill(t, pid, syscall.SIGCONT)
		f.touch("go")
		f.ended(0, numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 1500)
		f.nothingLeft()
	})

	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "lines:100000", "touch:@printed", "await:@end", "add:20", "exit:3")
		f.seen("fault_steps", 1000)
		pid := f.sidecar()
		kill(t, pid, syscall.SIGSTOP)
		f.touch("go")
		// More than any pipe holds gets through while nobody reads the capture.
		eventually(t, "the worker prints", func() bool {
			_, err := os.Stat(f.dir + "/printed")
			return err == nil && len(f.stdout.String()) == len(numbered(100000))
		})
		kill(t, pid, syscall.SIGCONT)
		f.seen("fault_steps", 1500)
		f.touch("end")
		f.ended(3, numbered(100000))
		f.silent()
		f.expectTotal("fault_steps", 1520)
		f.nothingLeft()
	})

	t.Run("sidecar, to the end", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, "worker", "add:1000", "lines:3", "await:@go", "exit:3")
		f.seen("fault_steps", 1000)
		kill(t, f.sidecar(), syscall.SIGSTOP)
		f.touch("go")
		f.ended(3, numbered(3))
		f.says("may not have been written")
		f.nothingLeftAfterNextRun()
	})

	t.Run("launcher", func(t *testing.T) {
		t.Parallel()
		const lines = 200000 // more than the pipes hold
		f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "lines:"+strconv.Itoa(lines), "exit:3")
		f.seen("fault_steps", 1000)
		kill(t, f.cmd.Process.Pid, syscall.SIGSTOP)
		f.touch("go")
		var updated, printed string
		f.signalsWhen("the worker waits for its reader", func(d *document) bool {
			m := d.find("fault_lines")
			if m == nil || string(m.UpdatedNS) == updated {
				return false
			}
			same := m.stat("total") == printed
			updated, printed = string(m.UpdatedNS), m.stat("total")
			return same
		})
		if n, _ := strconv.Atoi(printed); n == 0 || n >= lines {
			t.Errorf("%s lines were written although nobody read them", printed)
		}
		kill(t, f.cmd.Process.Pid, syscall.SIGCONT)
		f.ended(3, numbered(lines))
		f.silent()
		f.expectTotal("fault_lines", lines)
		f.nothingLeft()
	})
}

// TestFaultWorkers: 64 programs at a time that fork, fail and end while they count; nothing of it is lost.
func TestFaultWorkers(t *testing.T) {
	t.Parallel()
	for range faultRounds(t) {
		f := startFaulty(t, nil, "worker", "add:10", "children:64,100001", "add:20", "lines:3", "exit:3")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 64*100001+30)
		var records int64
		for _, m := range f.final().Metrics {
			if m.Name == "fault_sizes" {
				n, err := strconv.ParseInt(m.stat("count"), 10, 64)
				if err != nil {
					t.Error(err)
				}
				records += n
			}
		}
		if records != 64*100001+30 {
			t.Errorf("%d records in histograms", records)
		}
		f.nothingLeft()
	}
}

// TestFaultClosedDescriptors: a daemon's habits cost neither it nor its totals anything.
func TestFaultClosedDescriptors(t *testing.T) {
	for first, printed := range map[int]string{3: numbered(2), 0: ""} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "close:"+strconv.Itoa(first), "add:500", "await:@end", "add:20", "exit:3")
			f.seen("fault_steps", 1000)
			f.touch("go")
			f.seen("fault_steps", 1500)
			f.touch("end")
			f.ended(3, strings.TrimSuffix(printed, numbered(2)))
			f.silent()
			f.expectTotal("fault_steps", 1520)
			f.nothingLeft()
		})
	}
}
