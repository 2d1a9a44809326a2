package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// place is a mount namespace of its own, held by a process. Runs in it have /dev/shm to themselves.
type place struct {
	t *testing.T
	// holder is the pid of the process.
	holder int
	// dir is a directory for the test's files, the same in and outside of the namespace, open to all users.
	dir string
}

// newPlace makes a place and runs a shell script in it, where $DIR is the place's directory.
func newPlace(t *testing.T, script string) *place {
	t.Helper()
	if os.Geteuid() != 0 || exec.Command("unshare", "-m", "true").Run() != nil {
		t.Skip("needs root and mount namespaces")
	}
	p := &place{t: t, dir: openDir(t)}
	ready := filepath.Join(p.dir, ".ready")
	holder := exec.Command("unshare", "-m", "sh", "-ec", "mount --make-rprivate /\n"+script+"\n: > "+ready+"\nexec sleep 1000")
	holder.Env = append(os.Environ(), "DIR="+p.dir)
	var said syncBuffer
	holder.Stdout, holder.Stderr = &said, &said
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	p.holder = holder.Process.Pid
	ended := make(chan struct{})
	go func() {
		_ = holder.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		<-ended
	})
	eventually(t, "the place is prepared", func() bool {
		select {
		case <-ended:
			t.Skipf("cannot be prepared here: %s", said.String())
		default:
		}
		_, err := os.Stat(ready)
		return err == nil
	})
	return p
}

// openDir is a directory of the test's that all users can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// enter is the command that runs another one in the place.
func (p *place) enter() []string {
	return []string{"nsenter", "-t", strconv.Itoa(p.holder), "-m", "--wd=" + p.dir, "--"}
}

// sh runs a shell script in the place.
func (p *place) sh(script string) {
	p.t.Helper()
	words := append(p.enter(), "sh", "-ec", script)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// path is where a file of the place is seen from outside.
func (p *place) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", p.holder, name) }

// start is startFaulty in the place, where shared memory is /dev/shm, under a further command, if any.
func (p *place) start(under, env []string, args ...string) *faulty {
	p.t.Helper()
	f := &faulty{run: &run{t: p.t}, dir: p.dir, shm: p.path("/dev/shm"), output: filepath.Join(p.dir, "signals.json"), mark: "FAULT_TEST=" + p.dir}
	f.env = append([]string{f.mark, "XDG_RUNTIME_DIR=" + p.dir}, env...)
	p.t.Cleanup(func() {
		for _, pid := range f.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	f.run = startUnder(p.t, append(p.enter(), under...), f.env, append([]string{"--output", f.output}, f.steps(args)...)...)
	return f
}

// steps is faulty.command for commands in which a shell script may hold an @ of its own.
func (f *faulty) steps(args []string) []string {
	steps := slices.Clone(args)
	for i, arg := range steps {
		for _, verb := range []string{"await:", "touch:"} {
			if file, ok := strings.CutPrefix(arg, verb+"@"); ok {
				steps[i] = verb + filepath.Join(f.dir, file)
			}
		}
		if arg == "worker" {
			path, err := worker()
			if err != nil {
				f.t.Fatal(err)
			}
			steps[i] = path
		}
	}
	return steps
}

// smallSHM is a shared memory of 64 MiB, where writers want 16 MiB to stay free.
const smallSHM = "mount -t tmpfs -o size=64m,mode=1777 none /dev/shm"

// TestFaultFullSharedMemory fills shared memory while the worker waits in the middle of its steps. Nothing of the
// program's is lost; what is measured is behind until there is room again.
func TestFaultFullSharedMemory(t *testing.T) {
	t.Run("nearly", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.start(nil, nil, "worker", "add:1000", "await:@go", "lines:3", "add:500", "await:@end", "exit:3")
		f.seen("fault_steps", 1000)
		p.sh("head -c 49m /dev/zero > /dev/shm/fill")
		f.touch("go")
		eventually(t, "the writer says that it waits", func() bool { return strings.Contains(f.stderr.String(), "nearly full") })
		if d, _, err := f.signals(); err != nil || d.total("fault_steps") != 1000 {
			t.Errorf("/signals: %v", err)
		}
		p.sh("rm /dev/shm/fill")
		d := f.seen("fault_steps", 1500)
		if n := d.total("graphsignal_writer_skipped_writes"); n < 1 {
			t.Errorf("skipped writes: %d", n)
		}
		f.touch("end")
		f.ended(3, numbered(3))
		f.says("nearly full")
		f.expectTotal("fault_steps", 1500)
		f.nothingLeft()
	})

	t.Run("full", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.start(nil, nil, "worker", "add:1000", "await:@go", "lines:5000", "touch:@printed", "await:@on", "lines:3", "await:@end", "exit:3")
		f.seen("fault_steps", 1000)
		p.sh("head -c 64m /dev/zero > /dev/shm/fill || true")
		f.touch("go")
		eventually(t, "all is printed and a write was skipped", func() bool {
			_, err := os.Stat(filepath.Join(f.dir, "printed"))
			return err == nil && f.stdout.String() == numbered(5000) && strings.Contains(f.stderr.String(), "nearly full")
		})
		if _, _, err := f.signals(); err != nil {
			t.Errorf("/signals: %v", err)
		}
		eventually(t, "the capture has tried", func() bool {
			segments, _ := filepath.Glob(f.shm + "/graphsignal_log_*/log_*.jsonl")
			return len(segments) > 0
		})
		p.sh("rm /dev/shm/fill")
		f.touch("on")
		// Of the console's lines, the writer's complaint among them, what could not be kept is counted, in a record before
		// the first one that could.
		captured, lost := 0, 0
		eventually(t, "all lines are captured or marked as lost", func() bool {
			captured, lost = f.captured()
			return captured+lost == 5003+1
		})
		if lost == 0 {
			t.Log("the capture was so far behind that there was room again")
		}
		f.seen("fault_lines", 5003)
		f.touch("end")
		f.ended(3, numbered(5000)+numbered(3))
		f.says("nearly full")
		f.expectTotal("fault_lines", 5003)
		if d := f.final(); !hasError(d, "non-zero code 3") {
			t.Errorf("the end is not among the errors: %v", d.Errors)
		}
		f.nothingLeft()
	})

	// What cannot be written in shared memory from the start on is captured elsewhere, and nothing but the probes is missing.
	t.Run("from the start", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM+"\nhead -c 64m /dev/zero > /dev/shm/fill || true")
		f := p.start(nil, nil, "worker", "add:1000", "lines:3", "exit:3")
		f.ended(3, numbered(3))
		if d := f.final(); d.total("fault_steps") != -1 || !hasError(d, "non-zero code 3") {
			t.Errorf("%d steps, errors %v", d.total("fault_steps"), d.Errors)
		}
		p.sh("rm /dev/shm/fill")
		f.nothingLeft()
	})
}

// captured counts the lines in the console segments of a run, and those that the loss markers there tell of.
func (f *faulty) captured() (lines, lost int) {
	files, _ := filepath.Glob(f.shm + "/graphsignal_log_*/log_*.jsonl")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		for record := range bytes.Lines(raw) {
			var r struct {
				Line    *string
				Dropped int
			}
			if err := json.Unmarshal(record, &r); err != nil {
				f.t.Errorf("%q: %v", record, err)
			}
			if r.Line != nil {
				lines++
			}
			lost += r.Dropped
		}
	}
	return lines, lost
}

// TestFaultUnusableSharedMemory runs where shared memory is read-only, absent, or full of files.
func TestFaultUnusableSharedMemory(t *testing.T) {
	for _, tc := range []struct{ name, script string }{
		{"read-only", "mount -t tmpfs -o ro none /dev/shm"},
		{"absent", "mount -t tmpfs none /dev\nfor n in null:3 zero:5 urandom:9 random:8; do mknod -m 666 /dev/${n%:*} c 1 ${n#*:}; done"},
		{"no inodes", "mount -t tmpfs -o nr_inodes=1 none /dev/shm"},
		{"a file", "mount -t tmpfs none /dev\nfor n in null:3 zero:5 urandom:9 random:8; do mknod -m 666 /dev/${n%:*} c 1 ${n#*:}; done\n: > /dev/shm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, tc.script)
			f := p.start(nil, nil, "worker", "add:1000", "lines:3", "await:@go", "exit:3")
			d := f.signalsWhen("the process is seen", func(d *document) bool { return d.process(f.workload()) != nil })
			if d.find("process_memory_usage_bytes") == nil {
				t.Error("the process has no metrics")
			}
			f.touch("go")
			f.ended(3, numbered(3))
			f.says("probes is off: run directory /dev/shm/graphsignal_")
			if d := f.final(); !hasError(d, "non-zero code 3") {
				t.Errorf("the end is not among the errors: %v", d.Errors)
			}
			if left, _ := filepath.Glob(f.dir + "/graphsignal-0/*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}

	// While it is read-only nothing is updated, and then everything is made up for.
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.start(nil, nil, "worker", "add:1000", "await:@go", "lines:3", "add:500", "await:@end", "exit:3")
		f.seen("fault_steps", 1000)
		p.sh("mount -o remount,ro /dev/shm")
		f.touch("go")
		eventually(t, "the writer says that it cannot write", func() bool { return strings.Contains(f.stderr.String(), "Read-only") })
		if d, _, err := f.signals(); err != nil || d.total("fault_steps") != 1000 {
			t.Errorf("/signals: %v", err)
		}
		p.sh("mount -o remount,rw /dev/shm")
		if d := f.seen("fault_steps", 1500); d.total("graphsignal_writer_skipped_writes") < 1 {
			t.Error("no write is counted as skipped")
		}
		f.touch("end")
		f.ended(3, numbered(3))
		f.says("Read-only file system: probes.json is not updated for now")
		f.nothingLeft()
	})

	t.Run("until the end", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.start(nil, nil, "worker", "add:1000", "await:@go", "lines:3", "add:500", "exit:3")
		f.seen("fault_steps", 1000)
		p.sh("mount -o remount,ro /dev/shm")
		f.touch("go")
		f.ended(3, numbered(3))
		f.expectTotal("fault_steps", 1000)
		p.sh("mount -o remount,rw /dev/shm")
		eventually(t, "all processes end", func() bool { return len(f.processes()) == 0 })
		eventually(t, "a next run removes the directories", func() bool {
			next := p.start(nil, nil, "sleep", "0.3")
			if code := next.wait().ExitCode(); code != 0 || next.stderr.String() != "" {
				t.Errorf("the next run: exit code %d, stderr %q", code, next.stderr.String())
			}
			return len(f.directories()) == 0
		})
	})
}

// TestFaultOutputFile: a final document that cannot be written costs one line, which says why.
func TestFaultOutputFile(t *testing.T) {
	for _, tc := range []struct{ name, script, file, reason string }{
		{"full disk", "mkdir $DIR/d && mount -t tmpfs -o size=16k none $DIR/d\nhead -c 16k /dev/zero > $DIR/d/fill || true", "d/x.json", "no space left on device"},
		{"read-only", "mkdir $DIR/d && mount -t tmpfs -o ro none $DIR/d", "d/x.json", "read-only file system"},
		{"no such directory", "", "absent/x.json", "no such file or directory"},
		{"a directory", "mkdir $DIR/d", "d", "not a regular file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, smallSHM+"\n"+tc.script)
			file := filepath.Join(p.dir, tc.file)
			f := p.start(nil, nil, "--output", file, "worker", "add:1000", "lines:3", "exit:3")
			f.ended(3, numbered(3))
			f.says("the final document cannot be written to " + file + ": ")
			f.says(tc.reason)
			if entries, _ := os.ReadDir(p.path(p.dir) + "/d"); tc.script != "" {
				for _, e := range entries {
					if e.Name() != "fill" {
						t.Errorf("left behind: %s", e.Name())
					}
				}
			}
			f.nothingLeft()
		})
	}
}

// installed is a prefix of the test's own, with the programs and the libraries of this build, for all users.
func installed(t *testing.T) string {
	t.Helper()
	prefix := filepath.Join(openDir(t), "prefix")
	for from, to := range map[string]string{bin: "bin", filepath.Join(root, "lib", "graphsignal"): "lib/graphsignal"} {
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(prefix, to), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			source, target := filepath.Join(from, e.Name()), filepath.Join(prefix, to, e.Name())
			if os.Link(source, target) == nil {
				continue
			}
			if err := copyFile(source, target); err != nil {
				t.Fatal(err)
			}
		}
	}
	return prefix
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// from is the command in front of a run that has the launcher of another prefix take its place.
func from(prefix string) []string {
	return []string{"sh", "-c", `shift; exec "$0" "$@"`, filepath.Join(prefix, "bin", "graphsignal-run")}
}

// damage replaces a file by its first bytes.
func damage(t *testing.T, file string, bytes int64, mode os.FileMode) {
	t.Helper()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil { // which may be a link to the one that other tests use
		t.Fatal(err)
	}
	if bytes < 0 {
		return
	}
	if err := os.WriteFile(file, whole[:min(bytes, int64(len(whole)))], mode); err != nil {
		t.Fatal(err)
	}
}

// TestFaultDamagedInstallation: files of ours that are missing, cut short or not executable. The program runs, and one
// line says what is off.
func TestFaultDamagedInstallation(t *testing.T) {
	const all = 1 << 40
	probe, cupti, rocm := "lib/graphsignal/libgraphsignal_probe.so", "lib/graphsignal/libgraphsignal_cupti.so", "lib/graphsignal/libgraphsignal_rocm.so"
	collector := "bin/graphsignal-collector"
	for _, tc := range []struct {
		name, file string
		bytes      int64 // that are left, -1 for no file
		mode       os.FileMode
		says       string
		env        []string
	}{
		{"no collector", collector, -1, 0, "graphsignal-collector", nil},
		{"collector not executable", collector, 100, 0o644, "graphsignal-collector", nil},
		{"collector empty", collector, 0, 0o755, "graphsignal-collector", nil},
		{"collector cut short", collector, 1 << 20, 0o755, "ended", nil},
		{"collector another program", collector, 64, 0o755, "graphsignal-collector", nil},
		{"no probe library", probe, -1, 0, "", nil},
		{"probe library empty", probe, 0, 0o755, "probe", nil},
		{"probe library cut short", probe, 20000, 0o755, "cut short", nil},
		{"no CUDA library", cupti, -1, 0, "", []string{"CUDA_HOME=/nonexistent"}},
		{"CUDA library empty", cupti, 0, 0o755, "no CUDA profiling", []string{"CUDA_HOME=/nonexistent"}},
		{"CUDA library cut short", cupti, 30000, 0o755, "no CUDA profiling", []string{"CUDA_HOME=/nonexistent"}},
		{"ROCm library cut short", rocm, 30000, 0o755, "no ROCm profiling", []string{"ROCM_PATH=/"}},
		{"library without the right to execute", probe, all, 0o644, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			prefix := installed(t)
			damage(t, filepath.Join(prefix, tc.file), tc.bytes, tc.mode)
			script := `echo "CUDA $CUDA_INJECTION64_PATH ROCm $ROCP_TOOL_LIBRARIES"; exec "$0" add:1000 lines:3 exit:3`
			f := startFaultyUnder(t, from(prefix), append([]string{"PATH=/usr/bin:/bin"}, tc.env...), "sh", "-c", script, "worker")
			f.ended(3, "CUDA  ROCm \n"+numbered(3))
			if tc.says == "" {
				f.silent()
			} else {
				f.says(tc.says)
			}
			if tc.file != collector {
				want := int64(-1)
				if tc.file != probe || tc.bytes == all {
					want = 1000
				}
				f.expectTotal("fault_steps", want)
				f.nothingLeft()
			} else {
				f.nothingLeftAfterNextRun()
			}
		})
	}
}

// startFaultyUnder is startFaulty under a command.
func startFaultyUnder(t *testing.T, under, env []string, args ...string) *faulty {
	t.Helper()
	f := &faulty{run: &run{t: t}, dir: openDir(t)}
	f.shm, f.output = filepath.Join(f.dir, "shm"), filepath.Join(f.dir, "signals.json")
	if err := os.Mkdir(f.shm, 0o1777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.shm, 0o777|os.ModeSticky); err != nil { // whatever the umask
		t.Fatal(err)
	}
	f.mark = "FAULT_TEST=" + f.dir
	f.env = append([]string{f.mark, "GRAPHSIGNAL_SHM_PATH=" + f.shm, "XDG_RUNTIME_DIR=" + f.dir}, env...)
	t.Cleanup(func() {
		for _, pid := range f.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	f.run = startUnder(t, under, f.env, append([]string{"--output", f.output}, f.steps(args)...)...)
	return f
}

// TestFaultPreload: what the user preloads, or fails to, concerns the program alone.
func TestFaultPreload(t *testing.T) {
	t.Parallel()
	path, err := worker()
	if err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage.so")
	if err := os.WriteFile(garbage, []byte("not a library"), 0o755); err != nil {
		t.Fatal(err)
	}
	preload := "LD_PRELOAD=" + garbage + " /nonexistent/x.so"
	alone := exec.Command(path, "lines:3", "exit:3")
	alone.Env = append(cleanEnv(), preload)
	var stdout, stderr strings.Builder
	alone.Stdout, alone.Stderr = &stdout, &stderr
	_ = alone.Run()
	f := startFaulty(t, []string{preload}, "worker", "lines:3", "exit:3")
	f.ended(alone.ProcessState.ExitCode(), stdout.String())
	if got := f.stderr.String(); got != stderr.String() {
		t.Errorf("standard error is %q, without us %q", got, stderr.String())
	}
	f.expectTotal("fault_lines", 3)
	f.nothingLeft()
}

// TestFaultLimits gives the program, or the launcher with it, less than they want to have. The program always does what
// it does without us.
func TestFaultLimits(t *testing.T) {
	path, err := worker()
	if err != nil {
		t.Fatal(err)
	}
	steps := []string{"add:1000", "lines:3", "exit:3"}

	t.Run("address space of the program", func(t *testing.T) {
		t.Parallel()
		// From the least that the program itself can start with up to where all can be had.
		started := false
		for kib := 2048; kib <= 64<<10; kib += kib / 4 {
			limited := []string{"prlimit", fmt.Sprintf("--as=%d", kib<<10), "--", path}
			alone := exec.Command(limited[0], append(limited[1:], steps...)...)
			alone.Env = cleanEnv()
			if out, _ := alone.Output(); alone.ProcessState.ExitCode() != 3 || string(out) != numbered(3) {
				continue
			}
			started = true
			f := startFaulty(t, nil, append(limited, steps...)...)
			f.ended(3, numbered(3))
			if said := f.stderr.String(); said != "" && !strings.Contains(said, "probes is off") {
				t.Errorf("with %d KiB standard error is %q", kib, said)
			}
			f.nothingLeft()
		}
		if !started {
			t.Error("the program ran with no limit")
		}
	})

	t.Run("threads of the program", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("needs root, to become another user")
		}
		// A user that nobody else is, and who may have one process.
		limited := append(asUser(61001), "prlimit", "--nproc=1:1", "--", workerForAll(t))
		f := startFaultyUnder(t, from(installed(t)), nil, append(limited, steps...)...)
		f.ended(3, numbered(3))
		f.says("no thread")
		f.nothingLeftAfterNextRun()
	})

	// A limit that the launcher would fall over in the middle of the run, and the program with it.
	for i, n := range []int{10, 20, 100} {
		t.Run(fmt.Sprintf("%d threads of all", n), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, smallSHM)
			uid := 61002 + i
			f := p.startAs(uid, []string{"prlimit", fmt.Sprintf("--nproc=%d:%d", n, n), "--"}, nil, append([]string{workerForAll(t)}, steps...)...)
			f.ended(3, numbered(3))
			if n < 100 {
				f.says("no profiling in this run")
			} else {
				f.silent()
				f.expectTotal("fault_steps", 1000)
			}
			f.nothingLeft()
		})
	}

	for _, size := range []int{0, 1, 512, 1024} {
		t.Run(fmt.Sprintf("file size of the program %d", size), func(t *testing.T) {
			t.Parallel()
			limited := []string{"prlimit", fmt.Sprintf("--fsize=%d", size), "--", path}
			f := startFaulty(t, nil, append(limited, steps...)...)
			f.ended(3, numbered(3))
			f.nothingLeft()
		})
		t.Run(fmt.Sprintf("file size of all %d", size), func(t *testing.T) {
			t.Parallel()
			f := startFaultyUnder(t, []string{"prlimit", fmt.Sprintf("--fsize=%d", size), "--"}, nil, append([]string{path}, steps...)...)
			f.ended(3, numbered(3))
			if !strings.Contains(f.stderr.String(), "no profiling in this run") {
				t.Errorf("standard error is %q", f.stderr.String())
			}
			for _, name := range f.directories() {
				if strings.HasPrefix(name, "graphsignal_log_") {
					t.Errorf("left in shared memory: %s", name)
				}
			}
		})
	}

	t.Run("descriptors of the program", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, append([]string{"prlimit", "--nofile=4", "--", path}, steps...)...)
		f.ended(3, numbered(3))
		f.nothingLeftAfterNextRun()
	})

	for _, n := range []int{4, 6, 8, 10, 16, 24, 32, 40, 48, 64} {
		t.Run(fmt.Sprintf("%d descriptors of all", n), func(t *testing.T) {
			t.Parallel()
			f := startFaultyUnder(t, []string{"prlimit", fmt.Sprintf("--nofile=%d", n), "--"}, nil, append([]string{path}, steps...)...)
			f.ended(3, numbered(3))
			if n < 40 {
				f.says("no profiling in this run")
			} else if n >= 48 {
				f.silent()
				f.expectTotal("fault_steps", 1000)
				f.nothingLeft()
			}
		})
	}

	// A sidecar that can open nothing for a while says nothing new; then it has everything.
	t.Run("descriptors of the sidecar", func(t *testing.T) {
		t.Parallel()
		f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "lines:3", "touch:@done", "await:@end", "exit:3")
		f.seen("fault_steps", 1000)
		sidecar := f.sidecar()
		var before unix.Rlimit
		if err := unix.Prlimit(sidecar, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 1 << 10}, &before); err != nil {
			t.Skip(err)
		}
		f.touch("go")
		eventually(t, "the worker has gone on", func() bool {
			_, err := os.Stat(filepath.Join(f.dir, "done"))
			return err == nil
		})
		// Two writes later, by its own clock.
		written := func() int64 { return modified(t, fmt.Sprintf("%s/graphsignal_%d/probes.json", f.shm, f.workload())) }
		for range 2 {
			last := written()
			eventually(t, "the writer writes", func() bool { return written() != last })
		}
		if err := unix.Prlimit(sidecar, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}, nil); err != nil {
			t.Fatal(err)
		}
		d := f.seen("fault_steps", 1500)
		if d.process(f.workload()) == nil {
			t.Error("the process is no longer known")
		}
		if f.sidecar() != sidecar {
			t.Error("the sidecar was started again")
		}
		f.touch("end")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_steps", 1500)
		f.nothingLeft()
	})
}

// modified is when a file was last written; 0 for no file.
func modified(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.ModTime().UnixNano()
}
