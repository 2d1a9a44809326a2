package launcher

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// realCollector is the Collector that `make build` leaves.
const realCollector = "../bin/graphsignal-collector"

// Whichever of the three processes is killed, whenever, none is left, and the next run leaves no directory behind.
func TestFaultKillAtAnyMoment(t *testing.T) {
	if _, err := os.Stat(realCollector); err != nil {
		t.Skip("the Collector is not built")
	}
	collector, err := filepath.Abs(realCollector)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	content, err := os.ReadFile(launcherBinary)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(bin, "graphsignal-run")
	if err := os.WriteFile(binary, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(collector, filepath.Join(bin, collectorName)); err != nil {
		t.Fatal(err)
	}
	shm := t.TempDir()
	mark := "KILL_TEST=" + filepath.Base(shm) + strconv.Itoa(os.Getpid())
	s := settings{binary: binary, env: []string{mark, "GRAPHSIGNAL_SHM_PATH=" + shm, "GRAPHSIGNAL_LISTEN_PORT=18479"}}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	rounds := 15
	if testing.Short() {
		rounds = 3
	}
	if text := os.Getenv("GRAPHSIGNAL_FAULT_ROUNDS"); text != "" {
		times, err := strconv.Atoi(text)
		if err != nil || times < 1 {
			t.Fatalf("GRAPHSIGNAL_FAULT_ROUNDS=%s", text)
		}
		rounds *= times
	}
	for round := range rounds {
		l := start(t, s, "sleep", "600")
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		victim := []string{"graphsignal-run", "sleep", collectorName}[random.IntN(3)]
		killed := false
		for _, p := range marked(mark) {
			if p.name == victim {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
				killed = true
			}
		}
		if victim == collectorName || !killed {
			// The workload must not notice; it ends otherwise.
			_ = l.cmd.Process.Signal(syscall.SIGTERM)
		}
		status := l.wait()
		if victim == collectorName && killed && (!status.Signaled() || status.Signal() != syscall.SIGTERM) {
			t.Errorf("round %d (seed %d): the workload ended with %#x", round, seed, status)
		}
		await(t, "the end of all processes", func() bool { return len(marked(mark)) == 0 })
	}
	// What has just ended is left to its reader for two seconds, what was never used for five.
	l, status := runToEnd(t, s, "sleep", "5.5")
	if status.ExitStatus() != 0 || l.stderr.Len() > 0 {
		t.Errorf("the next run: %#x %q", status, l.stderr.String())
	}
	if left, _ := os.ReadDir(shm); len(left) > 0 {
		t.Errorf("left behind after %d rounds (seed %d): %v", rounds, seed, left)
	}
}

type markedProcess struct {
	pid  int
	name string
}

// marked lists the living processes with a variable in their environment.
func marked(variable string) (found []markedProcess) {
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, entry := range entries {
		environ, err := os.ReadFile(entry)
		if err != nil || !bytes.Contains(environ, []byte(variable)) {
			continue
		}
		dir := filepath.Dir(entry)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name, _, _ := strings.Cut(string(cmdline), "\x00")
		found = append(found, markedProcess{pid: pid, name: filepath.Base(name)})
	}
	return found
}

// The binary is static: it starts on any system, and at once.
func TestBinaryIsStatic(t *testing.T) {
	out, err := exec.Command("go", "version", "-m", launcherBinary).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"go.opentelemetry.io", "yaml", "google.golang.org"} {
		if strings.Contains(string(out), "dep\t"+heavy) {
			t.Errorf("graphsignal-run links %s", heavy)
		}
	}
	file, err := elf.Open(launcherBinary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("graphsignal-run needs a dynamic loader")
		}
	}
}
