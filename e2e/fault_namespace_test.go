package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asUser is the command that runs another one as a user without rights.
func asUser(uid int) []string {
	return []string{"setpriv", "--reuid=" + strconv.Itoa(uid), "--regid=" + strconv.Itoa(uid), "--clear-groups", "--"}
}

// workerForAll is the worker where every user can run it.
func workerForAll(t *testing.T) string {
	t.Helper()
	path, err := worker()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(openDir(t), "worker")
	if err := copyFile(path, copied); err != nil {
		t.Fatal(err)
	}
	return copied
}

// startAs is a run of a user without rights, under a further command, if any, with a file for the final document and a
// private directory of that user's.
func (p *place) startAs(uid int, under, env []string, args ...string) *faulty {
	p.t.Helper()
	home := filepath.Join(p.dir, "home"+strconv.Itoa(uid))
	if err := os.Mkdir(home, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chown(home, uid, uid); err != nil {
		p.t.Fatal(err)
	}
	output := filepath.Join(home, "signals.json")
	f := p.start(append(append(asUser(uid), under...), from(installed(p.t))...), append([]string{"XDG_RUNTIME_DIR=" + home}, env...),
		append([]string{"--output", output}, args...)...)
	f.output = output
	return f
}

// TestFaultRights runs parts of a run as users with fewer rights.
func TestFaultRights(t *testing.T) {
	const nobody, other = 61010, 61011

	t.Run("all without rights", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.startAs(nobody, nil, nil, workerForAll(t), "add:1000", "await:"+p.dir+"/go", "lines:3", "exit:3")
		f.seen("fault_steps", 1000)
		f.signalsWhen("the process is described", func(d *document) bool {
			return d.process(f.workload()) != nil && d.find("process_memory_usage_bytes") != nil
		})
		f.touch("go")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_lines", 3)
		f.nothingLeft()
	})

	// The sidecar of root reads what a workload of another user writes, and removes it.
	t.Run("workload of another user", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.start(from(installed(t)), nil, append(asUser(nobody), workerForAll(t), "add:1000", "await:"+p.dir+"/go", "lines:3", "exit:3")...)
		f.seen("fault_steps", 1000)
		f.touch("go")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_lines", 3)
		f.nothingLeft()
	})

	t.Run("no right to shared memory", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, "mount -t tmpfs -o size=64m,mode=755 none /dev/shm")
		f := p.startAs(nobody, nil, nil, workerForAll(t), "add:1000", "lines:3", "exit:3")
		f.ended(3, numbered(3))
		f.says("probes is off")
		if d := f.final(); !hasError(d, "non-zero code 3") {
			t.Errorf("the end is not among the errors: %v", d.Errors)
		}
		f.nothingLeft()
	})

	// The run directory, and what is in it, loses its rights for a while.
	t.Run("no right to the run directory", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.startAs(nobody, nil, nil, workerForAll(t), "add:1000", "await:"+p.dir+"/go", "lines:3", "add:500", "await:"+p.dir+"/end", "exit:3")
		f.seen("fault_steps", 1000)
		p.sh("chmod 000 /dev/shm/graphsignal_*")
		f.touch("go")
		eventually(t, "the writer says that it cannot write", func() bool { return strings.Contains(f.stderr.String(), "can be opened") })
		if _, _, err := f.signals(); err != nil {
			t.Errorf("/signals: %v", err)
		}
		p.sh("chmod 700 /dev/shm/graphsignal_*")
		f.seen("fault_steps", 1500)
		f.touch("end")
		f.ended(3, numbered(3))
		f.says("can be opened")
		f.expectTotal("fault_steps", 1500)
		f.nothingLeft()
	})

	// Another user's process, of the same pid before or in another tree, is none of ours.
	t.Run("files of another user", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.startAs(nobody, nil, nil, "sleep", "1000")
		pid := f.workload()
		f.signalsWhen("the process is seen", func(d *document) bool { return d.process(pid) != nil })
		dir := fmt.Sprintf("/dev/shm/graphsignal_%d", pid)
		forged := header(pid) + `"metrics":[{"name":"forged","type":"counter","value":1}]}`
		p.sh(fmt.Sprintf("mkdir -m 777 %s; chown %d %s; echo '%s' > %s/app.json; chown %d %s/app.json; chmod 644 %s/app.json",
			dir, other, dir, forged, dir, other, dir, dir))
		d := f.signalsWhen("the refusal is told", func(d *document) bool { return hasError(d, "files were skipped") })
		if d.find("forged") != nil {
			t.Error("a file of another user was taken")
		}
		kill(t, pid, syscall.SIGKILL)
		f.wait()
		if left := f.directories(); !slices.Equal(left, []string{filepath.Base(dir)}) {
			t.Errorf("in shared memory: %v", left)
		}
	})
}

// TestFaultHostileUser: another user was there before and made what our directories are called, for every pid that may
// be the workload's. Nothing of it is followed, read, waited for, or removed.
func TestFaultHostileUser(t *testing.T) {
	for _, tc := range []struct{ name, script, told string }{
		{"directories", `mkdir -m 777 $1 && mkfifo $1/probes.json $1/.owner $1/probes.json.tmp`, "files were skipped"},
		{"directories with files", `mkdir -m 777 $1 && truncate -s 1T $1/x.json && cp $VICTIM/probes.json $1/z.json`, "files were skipped"},
		{"directories with links", `mkdir -m 777 $1 && ln -s $VICTIM/probes.json $1/y.json && ln $MINE $1/z.json`, "files were skipped"},
		{"links to directories", `ln -s $VICTIM $1`, ""},
		{"links to nowhere", `ln -s $VICTIM/absent $1`, ""},
		{"pipes", `mkfifo $1`, ""},
		{"huge files", `truncate -s 1T $1`, ""},
		{"hard links", `ln $MINE $1`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, smallSHM+`
mkdir $DIR/victim && echo '{"version":1,"metrics":[{"name":"stolen","type":"gauge","value":1}]}' > $DIR/victim/probes.json`)
			hostile := `VICTIM=` + p.dir + `/victim MINE=/dev/shm/mine; echo x > $MINE
made() { ` + tc.script + `; }
for pid in $(seq 2 60); do made /dev/shm/graphsignal_$pid; made /dev/shm/graphsignal_log_$pid; done`
			p.sh(strings.Join(asUser(61020), " ") + " sh -ec '" + strings.ReplaceAll(hostile, "'", `'"'"'`) + "'")
			before := p.listing()
			// In a pid namespace of its own the workload gets one of these pids.
			f := p.start([]string{"unshare", "-p", "-f", "--mount-proc", "--"}, nil, "worker", "add:1000", "lines:3", "await:@go", "exit:3")
			d := f.signalsWhen("the process is seen, and what is refused told of", func(d *document) bool {
				return (tc.told == "" || hasError(d, tc.told)) && slices.ContainsFunc(d.Resources, func(r resource) bool {
					return r.Kind == "process" && strings.Contains(r.Attributes["process.command_line"], "add:1000")
				})
			})
			if d.find("stolen") != nil {
				t.Error("the file of another user was read")
			}
			f.touch("go")
			f.ended(3, numbered(3))
			f.says("probes is off")
			if d := f.final(); !hasError(d, "non-zero code 3") || d.total("fault_steps") != -1 {
				t.Errorf("%d steps, errors %v", d.total("fault_steps"), d.Errors)
			}
			if after := p.listing(); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// listing is what there is in shared memory and in the directory that a hostile user points to.
func (p *place) listing() string {
	p.t.Helper()
	out, err := exec.Command("find", p.path("/dev/shm"), p.path(p.dir+"/victim"), "-printf", "%p %i %s %m %u %l\n").CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestFaultProcessTable runs where /proc hides processes of other users, is not there, or goes away.
func TestFaultProcessTable(t *testing.T) {
	const nobody = 61030

	t.Run("hidden", func(t *testing.T) {
		t.Parallel()
		// A table of this place's own, so that the machine's stays as it is.
		p := newPlace(t, smallSHM+"\nmount -t proc -o hidepid=2 none /proc")
		f := p.startAs(nobody, nil, nil, workerForAll(t), "add:1000", "await:"+p.dir+"/go", "lines:3", "exit:3")
		f.seen("fault_steps", 1000)
		f.signalsWhen("the process is described", func(d *document) bool { return d.process(f.workload()) != nil })
		f.touch("go")
		f.ended(3, numbered(3))
		f.silent()
		f.expectTotal("fault_lines", 3)
		f.nothingLeft()
	})

	t.Run("absent", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM+"\nmount -t tmpfs none /proc")
		f := p.start(nil, nil, "worker", "add:1000", "lines:3", "exit:3")
		f.ended(3, numbered(3))
		f.says("no profiling in this run: /proc is not mounted")
		p.sh("umount /proc")
		eventually(t, "all processes end", func() bool { return len(f.processes()) == 0 })
	})

	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, smallSHM)
		f := p.start(nil, nil, "worker", "add:1000", "await:@go", "lines:3", "add:500", "await:@end", "exit:3")
		f.seen("fault_steps", 1000)
		pid, sidecar := f.workload(), f.sidecar()
		p.sh("mount -t tmpfs none /proc")
		f.touch("go")
		f.seen("fault_steps", 1500)
		p.sh("umount /proc")
		before := time.Now().Unix()
		f.signalsWhen("the process is seen again", func(d *document) bool {
			r := d.process(pid)
			return r != nil && r.Last > before
		})
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

// TestFaultReadOnlyRoot: no file system can be written but shared memory, or not even that.
func TestFaultReadOnlyRoot(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		steps        int64
		says         []string
	}{
		{"shared memory alone", smallSHM, 1000, nil},
		{"nothing", "mount -t tmpfs -o ro none /dev/shm", -1, []string{"errors on the console are not reported: /dev/shm cannot be written", "probes is off"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// The test's own directory stays as it is, so that the final document can be read.
			p := newPlace(t, tc.script+"\nmount --bind $DIR $DIR\nmount -o remount,bind,ro /")
			f := p.start([]string{"env", "-u", "XDG_RUNTIME_DIR", "-u", "TMPDIR"}, nil, "worker", "add:1000", "lines:3", "exit:3")
			f.ended(3, numbered(3))
			if said := f.stderr.String(); strings.Count(said, "\n") != len(tc.says) {
				t.Errorf("standard error is %q", said)
			}
			for _, text := range tc.says {
				if !strings.Contains(f.stderr.String(), text) {
					t.Errorf("standard error is %q, without %q", f.stderr.String(), text)
				}
			}
			f.expectTotal("fault_steps", tc.steps)
			f.nothingLeft()
		})
	}
}

// TestFaultSamePID: two runs in pid namespaces of their own, where all have the same pids, share one /dev/shm. None
// takes anything of the other's.
func TestFaultSamePID(t *testing.T) {
	t.Parallel()
	p := newPlace(t, smallSHM)
	apart := []string{"unshare", "-p", "-f", "--mount-proc", "--"}
	// The worker's pid is 1000. Where a thread of another program has taken that number for good, the run is started again.
	as1000 := []string{"sh", "-c", `while echo 999 > /proc/sys/kernel/ns_last_pid; do
	sh -c '[ $$ = 1000 ] || exit 77; exec "$0" "$@"' "$0" "$@"; status=$?
	[ $status = 77 ] || exit $status
	[ ! -e /proc/1000 ] || exit 78
done`}
	startAs1000 := func(begun string, options []string, steps ...string) *faulty {
		t.Helper()
		for range 20 {
			r := p.start(apart, nil, append(append(append([]string{}, options...), as1000...), append([]string{"worker", "touch:@" + begun}, steps...)...)...)
			ended := false
			eventually(t, "the worker of pid 1000 begins", func() bool {
				select {
				case <-r.waited:
					ended = true
				default:
				}
				_, err := os.Stat(filepath.Join(p.dir, begun))
				return err == nil || ended
			})
			if !ended || r.wait().ExitCode() != 78 {
				return r
			}
		}
		t.Fatal("pid 1000 is always taken")
		return nil
	}
	first := startAs1000("first", nil, "add:1000", "await:@go", "add:500", "lines:3", "exit:3")
	if d := first.seen("fault_steps", 1000); d.find("fault_steps", "process.pid=1000") == nil {
		t.Error("the worker has another pid")
	}
	output := filepath.Join(p.dir, "second.json")
	second := startAs1000("second", []string{"--output", output}, "add:7", "lines:2", "await:@end", "add:8", "exit:4")
	second.output = output
	eventually(t, "the second says that the name is taken", func() bool {
		return strings.Contains(second.stderr.String(), "in use by a process of another pid namespace")
	})
	d := second.signalsWhen("its process is seen and the other's directory is told of", func(d *document) bool {
		return d.find("process_memory_usage_bytes") != nil && hasError(d, "Run directories of processes of other pid namespaces were not read")
	})
	if n := d.total("fault_steps"); n != -1 {
		t.Errorf("the second run shows %d steps", n)
	}
	second.touch("end")
	second.ended(4, numbered(2))
	if d := second.final(); d.total("fault_steps") != -1 || !hasError(d, "non-zero code 4") {
		t.Errorf("%d steps, errors %v", d.total("fault_steps"), d.Errors)
	}
	// The end of the second took nothing away from the first.
	first.touch("go")
	first.ended(3, numbered(3))
	first.expectTotal("fault_steps", 1500)
	if d := first.final(); hasError(d, "non-zero code 4") || !hasError(d, "non-zero code 3") {
		t.Errorf("errors %v", d.Errors)
	}
	first.silent()
	first.nothingLeft()
}
