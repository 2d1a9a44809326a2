package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// TestFaultKill ends each process by SIGKILL while the worker waits in the middle of its steps.
func TestFaultKill(t *testing.T) {
	t.Parallel()
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

	t.Run("workload, by _exit", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "alone")
		f.seen("fault_steps", 1000)
		f.touch("go")
		f.ended(0, "")
		f.silent()
		if total := f.final().total("fault_steps"); total < 1000 || total > 1500 {
			t.Errorf("%d of 1500 steps, 1000 of them written", total)
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
	t.Parallel()
	t.Run("workload", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "lines:3")
		before := f.seen("fault_steps", 1000).hostTime()
		pid := f.workload()
		kill(t, pid, syscall.SIGSTOP)
		f.signalsWhen("/signals goes on", func(d *document) bool {
			return d.hostTime() > before && d.total("fault_steps") == 1000
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
		f := startFaulty(t, nil, "worker", "add:10", "children:64,50001,@go", "add:20", "lines:3", "exit:3")
		f.seen("fault_steps", 64*50001+10)
		f.touch("go")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 64*100002+30)
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
		if records != 64*100002+30 {
			t.Errorf("%d records in histograms", records)
		}
		f.nothingLeft()
	}
}

// TestFaultBriefProcesses: what orphans count that live for milliseconds is there, whether the process table was looked at or
// not, and their directories are not left.
func TestFaultBriefProcesses(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, nil, "worker", "add:10", "brief:40,25", "lines:1", "exit:3")
	f.ended(3, numbered(1))
	f.silent()
	f.expectTotal("fault_steps", 40*25+10)
	f.nothingLeft()
}

// TestFaultClosedDescriptors: a daemon's habits cost neither it nor its totals anything.
func TestFaultClosedDescriptors(t *testing.T) {
	t.Parallel()
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

// TestFaultKillAtRandomMoments kills any process at any moment of a busy run: what is served is never more than was counted.
func TestFaultKillAtRandomMoments(t *testing.T) {
	t.Parallel()
	const steps, lines = 20_000_000, 20_000
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 2 * faultRounds(t) {
		f := startFaulty(t, nil, "worker", "lines:"+strconv.Itoa(lines), "add:"+strconv.Itoa(steps), "exit:3")
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
		launcher := f.cmd.Process.Pid
		all := append(children(launcher), launcher)
		victim := all[random.IntN(len(all))]
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", victim))
		name := strings.TrimSpace(string(comm))
		_ = syscall.Kill(victim, syscall.SIGKILL) // it may have ended by itself
		state := f.wait()
		if strings.HasPrefix(name, "graphsignal-col") && (state.ExitCode() != 3 || f.stdout.String() != numbered(lines)) {
			t.Errorf("without its sidecar: %v, %d bytes of output", state, len(f.stdout.String()))
		}
		if !strings.HasPrefix(numbered(lines), f.stdout.String()) {
			t.Errorf("the output ends in %.100q", f.stdout.String()[max(0, len(f.stdout.String())-100):])
		}
		f.nothingLeftAfterNextRun()
		if _, err := os.Stat(f.output); err != nil {
			continue // the next run writes one, and the sidecar may have been the victim
		}
		if total := f.final().total("fault_steps"); total > steps {
			t.Errorf("%s killed: %d of %d steps", name, total, steps)
		}
	}
}

// TestFaultOutOfMemory: the kernel ends a sidecar that may have no more memory, and the next one goes on. Where memory
// cgroups cannot be made, a limit on its address space is the stand-in.
func TestFaultOutOfMemory(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "lines:3", "exit:3")
	f.seen("fault_steps", 1000)
	first, workload := f.sidecar(), f.workload()
	badness := func(pid int) int {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if own := badness(os.Getpid()); badness(first) != max(500, own) || badness(workload) != own {
		t.Errorf("oom_score_adj is %d for the sidecar and %d for the workload, here %d", badness(first), badness(workload), own)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", first))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains("\x00"+string(environ), "\x00GOMEMLIMIT=128MiB\x00") {
		t.Error("the sidecar has no limit of its own")
	}
	if how := starve(t, first); how != "" {
		t.Logf("starved by %s", how)
	}
	// A document that needs more memory than is left.
	var frames strings.Builder
	for i := range 60000 {
		fmt.Fprintf(&frames, `%q:[%d,1],`, strconv.Itoa(i)+strings.Repeat("k", 100), i)
	}
	big := header(workload) + `"metrics":[{"name":"big_nanoseconds","type":"profile","frames":{` + strings.TrimSuffix(frames.String(), ",") + `}}]}`
	if err := os.WriteFile(fmt.Sprintf("%s/graphsignal_%d/big.json", f.shm, workload), []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sidecar ends", func() bool { return !slices.Contains(children(f.cmd.Process.Pid), first) })
	f.signalsWhen("the next one reads both documents", func(d *document) bool {
		return d.total("fault_steps") == 1000 && d.find("big_nanoseconds") != nil
	})
	f.touch("go")
	f.ended(3, numbered(3))
	f.silent()
	f.expectTotal("fault_steps", 1500)
	f.nothingLeft()
}

// starve takes a process all memory that it does not have yet.
func starve(t *testing.T, pid int) (how string) {
	t.Helper()
	for _, c := range []struct{ base, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		dir := fmt.Sprintf("%s/graphsignal-fault-%d", c.base, pid)
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		// It is empty, and so can be removed, when the process has been reaped.
		t.Cleanup(func() { eventually(t, "the cgroup is removed", func() bool { return os.Remove(dir) == nil }) })
		if os.WriteFile(dir+"/"+c.limit, []byte("2097152"), 0) == nil &&
			os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0) == nil {
			// Where there is swap, it is no way out.
			_ = os.WriteFile(dir+"/memory.swap.max", []byte("0"), 0)
			_ = os.WriteFile(dir+"/memory.memsw.limit_in_bytes", []byte("2097152"), 0)
			return dir
		}
	}
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, &limit, nil); err != nil {
		t.Skipf("neither memory cgroups nor limits: %v", err)
	}
	return "RLIMIT_AS"
}

// TestFaultTwoLaunchers: of two runs with one port the second serves when the first has ended; each sees its own.
func TestFaultTwoLaunchers(t *testing.T) {
	t.Parallel()
	first := startFaulty(t, nil, "worker", "add:1000", "await:@go", "lines:3", "exit:3")
	first.seen("fault_steps", 1000)
	second := startFaulty(t, nil, "--listen-port", strconv.Itoa(first.port), "worker", "add:20", "await:@go", "lines:2", "exit:4")
	second.port = first.port
	eventually(t, "the second says what is off", func() bool { return second.stderr.String() != "" })
	first.seen("fault_steps", 1000)
	first.touch("go")
	first.ended(3, numbered(3))
	first.silent()
	first.expectTotal("fault_steps", 1000)
	first.nothingLeft()
	second.seen("fault_steps", 20)
	second.touch("go")
	second.ended(4, numbered(2))
	second.says("address already in use")
	second.expectTotal("fault_steps", 20)
	second.nothingLeft()
}

// TestFaultNestedLaunchers: a launcher below a launcher counts nothing twice, with an endpoint of its own or without.
func TestFaultNestedLaunchers(t *testing.T) {
	t.Parallel()
	launcher := filepath.Join(bin, "graphsignal-run")
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, launcher, launcher, "worker", "add:1000", "await:@go", "add:500", "lines:3", "exit:3")
		f.seen("fault_steps", 1000)
		if n := len(f.processes()); n != 3 {
			t.Errorf("%d processes, want launcher, sidecar and workload", n)
		}
		f.touch("go")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 1500)
		f.nothingLeft()
	})
	t.Run("own endpoint", func(t *testing.T) {
		t.Parallel()
		port := freeport.Get(t)
		f := startFaulty(t, nil, launcher, "--listen-port", strconv.Itoa(port), "--output", "@inner", "worker", "add:1000", "await:@go", "add:500", "lines:3", "exit:3")
		f.seen("fault_steps", 1000)
		inner := &run{t: t, port: port}
		inner.signalsWhen("the inner one serves the same", func(d *document) bool { return d.total("fault_steps") == 1000 })
		f.touch("go")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 1500)
		f.output = filepath.Join(f.dir, "inner")
		f.expectTotal("fault_steps", 1500)
		f.nothingLeft()
	})
}

// TestFaultPrivateWorkload: a program that lets nobody of its user look into it is counted all the same.
func TestFaultPrivateWorkload(t *testing.T) {
	t.Parallel()
	f := wrapped(t, nil, func(f *faulty, cmd *exec.Cmd) {
		if os.Geteuid() != 0 {
			return
		}
		// As root everything can be looked into.
		const nobody = 65534
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		for _, dir := range []string{filepath.Dir(bin), filepath.Dir(f.dir), f.dir} {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(f.shm, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}, "worker", "private", "add:1000", "touch:@added", "await:@go", "add:500", "lines:3", "exit:3")
	pid := strconv.Itoa(f.workload())
	f.seen("fault_steps", 1000)
	f.signalsWhen("its process is described", func(d *document) bool {
		return d.find("process_cpu_usage_percent", "process.pid="+pid) != nil && d.find("process_threads", "process.pid="+pid) != nil
	})
	f.touch("go")
	f.ended(3, numbered(3))
	f.silent()
	f.expectTotal("fault_steps", 1500)
	f.nothingLeft()
}

// TestFaultPidReused: another process with the pid of one that has just died starts from nothing.
func TestFaultPidReused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || exec.Command("unshare", "-pf", "--mount-proc", "sh", "-c", "echo 9 >/proc/sys/kernel/ns_last_pid").Run() != nil {
		t.Skip("needs root and pid namespaces")
	}
	path, err := worker()
	if err != nil {
		t.Fatal(err)
	}
	script := `w=` + path + `; d=@
$w add:1000 await:${d}first & p=$!
wait $p
for i in 1 2 3 4 5 6 7 8 9; do
  echo $((p - 1)) >/proc/sys/kernel/ns_last_pid
  $w await:${d}second add:20 await:${d}end & q=$!
  [ $q = $p ] && break
  kill $q; wait $q
done
[ $q = $p ] && echo same || echo other
touch ${d}second
wait $q
exit 3`
	f := wrapped(t, []string{"unshare", "-pf", "--mount-proc", "--kill-child"}, func(*faulty, *exec.Cmd) {}, "sh", "-c", script)
	d := f.seen("fault_steps", 1000)
	before := d.find("fault_steps")
	f.touch("first")
	eventually(t, "the second process starts", func() bool { return f.stdout.String() != "" })
	if f.stdout.String() != "same\n" {
		t.Skip("another process or thread took the pid")
	}
	d = f.seen("fault_steps", 20)
	if now := d.find("fault_steps"); now.Tags["process.pid"] != before.Tags["process.pid"] {
		t.Errorf("the process is %v, was %v", now.Tags, before.Tags)
	}
	f.touch("end")
	f.ended(3, "same\n")
	f.silent()
	f.expectTotal("fault_steps", 20)
	f.nothingLeft()
}
