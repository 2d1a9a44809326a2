package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// stranger is another user of the machine.
var stranger = []string{"setpriv", "--reuid=" + podUser, "--regid=" + podUser, "--clear-groups", "--no-new-privs"}

// asStranger runs a shell command as another user.
func asStranger(script string) (output string, ok bool) {
	out, err := exec.Command(stranger[0], append(stranger[1:], "sh", "-c", script)...).CombinedOutput()
	return string(out), err == nil
}

func needStranger(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	if out, ok := asStranger("true"); !ok {
		t.Skipf("cannot become another user: %s", out)
	}
}

// TestOtherUsersReadTheEndpointOnly: whatever the umask is, what we keep in shared memory, the sidecar's configuration and
// its environment are closed to other users of the machine, who see /signals and our command lines.
func TestOtherUsersReadTheEndpointOnly(t *testing.T) {
	needStranger(t)
	demo := filepath.Join(root, "bin", "graphsignal-demo")
	if _, err := os.Stat(demo); err != nil {
		t.Fatal("the demo engine is missing: run `make native` first")
	}
	old := syscall.Umask(0)
	_, url := platform(t, nil)
	r := start(t, []string{"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + url},
		demo, "--port", strconv.Itoa(freeport.Get(t)))
	syscall.Umask(old)
	sidecar := r.sidecar()
	d := r.signalsWhen("probes are read", func(d *document) bool { return d.find("demo_tokens") != nil })
	pid, err := strconv.Atoi(d.find("demo_tokens").Tags["process.pid"])
	if err != nil {
		t.Fatal(err)
	}

	dirs := []string{fmt.Sprintf("/dev/shm/graphsignal_%d", pid), fmt.Sprintf("/dev/shm/graphsignal_log_%d", pid)}
	files := []string{fmt.Sprintf("/proc/%d/fd/3", sidecar)}
	for _, process := range []int{sidecar, pid, r.cmd.Process.Pid} {
		files = append(files, fmt.Sprintf("/proc/%d/environ", process), fmt.Sprintf("/proc/%d/mem", process))
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s has mode %v", dir, info.Mode())
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) < 2 {
			t.Fatalf("%s holds %v, %v", dir, entries, err)
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // replaced just now
			}
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("%s/%s has mode %v, %v", dir, entry.Name(), info.Mode(), err)
			}
			files = append(files, filepath.Join(dir, entry.Name()))
		}
		if out, ok := asStranger("ls " + dir); ok {
			t.Errorf("another user lists %s: %s", dir, out)
		}
	}
	for _, file := range files {
		if out, ok := asStranger("head -c 1 " + file + " >/dev/null"); ok || !strings.Contains(out, "ermission denied") {
			t.Errorf("another user reads %s: %s", file, out)
		}
	}
	for _, process := range []int{sidecar, r.cmd.Process.Pid} {
		if out, ok := asStranger(fmt.Sprintf("kill -TERM %d", process)); ok {
			t.Errorf("another user ends process %d: %s", process, out)
		}
		out, ok := asStranger(fmt.Sprintf("cat /proc/%d/cmdline", process))
		if ok && strings.Contains(out, apiKey) {
			t.Errorf("the key is in the command line %q", out)
		}
	}
	// That other users read the endpoint is said in docs/security.md.
	if out, ok := asStranger(fmt.Sprintf("curl -s -f http://127.0.0.1:%d/signals", r.port)); !ok || !strings.Contains(out, "demo_tokens") {
		t.Errorf("another user reads of the endpoint: %.200s", out)
	}
}

// TestOnePortOnLoopback: without being asked, nothing of ours listens anywhere but on the endpoint's loopback port.
func TestOnePortOnLoopback(t *testing.T) {
	r := start(t, nil, "sleep", "60")
	r.signalsWhen("the run is up", func(d *document) bool { return len(d.Resources) > 0 })
	sidecar := r.sidecar()
	if got, want := listeners(t, sidecar), []string{fmt.Sprintf("0100007F:%04X", r.port)}; !slices.Equal(got, want) {
		t.Errorf("the sidecar listens on %q, want %q", got, want)
	}
	if got := listeners(t, r.cmd.Process.Pid); len(got) > 0 {
		t.Errorf("the launcher listens on %q", got)
	}
}

// listeners returns the local addresses, as the kernel writes them, on which a process takes connections or datagrams.
func listeners(t *testing.T, pid int) (found []string) {
	t.Helper()
	own := make(map[string]bool)
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("descriptors of %d: %v, %v", pid, links, err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	const tcpListen, udpOpen = "0A", "07"
	for table, state := range map[string]string{"tcp": tcpListen, "tcp6": tcpListen, "udp": udpOpen, "udp6": udpOpen} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == state && own[fields[9]] {
				found = append(found, fields[1])
			}
		}
	}
	return found
}

// TestSweepFollowsNoLink: what is left of a dead process is removed, and nothing that it points to.
func TestSweepFollowsNoLink(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	pid := gone.ProcessState.Pid()
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.MkdirAll(precious, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(precious, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	shm := t.TempDir()
	stale, link := filepath.Join(shm, fmt.Sprintf("graphsignal_%d", pid)), filepath.Join(shm, fmt.Sprintf("graphsignal_log_%d", pid))
	if err := os.MkdirAll(filepath.Join(stale, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(stale, "link"), filepath.Join(stale, "below", "link"), link} {
		if err := os.Symlink(precious, name); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * time.Hour).Format("200601021504")
	if out, err := exec.Command("touch", "-h", "-t", old, filepath.Join(stale, "link"), filepath.Join(stale, "below"), stale, link, precious).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	r := start(t, []string{"GRAPHSIGNAL_SHM_PATH=" + shm}, "sleep", "60")
	r.signalsWhen("the run is up", func(d *document) bool { return len(d.Resources) > 0 })
	eventually(t, "the stale directory is swept", func() bool {
		_, err := os.Lstat(stale)
		return errors.Is(err, fs.ErrNotExist)
	})
	if raw, err := os.ReadFile(filepath.Join(precious, "file")); err != nil || string(raw) != "kept" {
		t.Errorf("what the links point to: %q, %v", raw, err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Errorf("a link in a directory's place is no directory of ours: %v", err)
	}
}

// TestForgedDocuments: another user who takes the run directory of a process puts no numbers into its signals, and the
// document says that the directory is not the process's own.
func TestForgedDocuments(t *testing.T) {
	needStranger(t)
	r := start(t, nil, "sleep", "60")
	pid := r.workload()
	dir := fmt.Sprintf("/dev/shm/graphsignal_%d", pid)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	script := fmt.Sprintf("mkdir -m 755 %s && cat >%[1]s/app.json <<'END'\n%s\"metrics\":[{\"name\":\"forged\",\"type\":\"counter\",\"value\":1}]}\nEND", dir, header(pid))
	if out, ok := asStranger(script); !ok {
		t.Fatal(out)
	}
	d := r.signalsWhen("the directory is refused", func(d *document) bool {
		return slices.ContainsFunc(d.Errors, func(e errorEntry) bool {
			return e.Tags["scope.name"] == "watcher" && strings.Contains(e.Message, "another user")
		})
	})
	if d.find("forged") != nil {
		t.Error("numbers of another user are among the signals")
	}
}
