package launcher

import (
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

func TestExitStatusIsTheWorkloads(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
		signal syscall.Signal
	}{
		{script: "exit 0"},
		{script: "exit 7", code: 7},
		{script: "exit 255", code: 255},
		{script: "kill -TERM $$", signal: syscall.SIGTERM},
		{script: "kill -HUP $$", signal: syscall.SIGHUP},
		{script: "kill -KILL $$", signal: syscall.SIGKILL},
		{script: "kill -SEGV $$", signal: syscall.SIGSEGV},
		{script: "kill -ABRT $$", signal: syscall.SIGABRT},
		{script: "kill -PIPE $$", signal: syscall.SIGPIPE},
		{script: "kill -USR1 $$", signal: syscall.SIGUSR1},
		{script: "kill -40 $$", signal: 40},
	} {
		t.Run(c.script, func(t *testing.T) {
			t.Parallel()
			l, status := runToEnd(t, settings{}, "sh", "-c", c.script)
			switch {
			case c.signal != 0 && (!status.Signaled() || status.Signal() != c.signal || status.CoreDump()):
				t.Errorf("ended with %#x, want death by signal %d without a core", status, c.signal)
			case c.signal == 0 && (!status.Exited() || status.ExitStatus() != c.code):
				t.Errorf("ended with %#x, want exit code %d", status, c.code)
			}
			record := lastLine(l.recorded("console.jsonl"))
			switch {
			case c.signal != 0 && !strings.HasSuffix(record, fmt.Sprintf(`,"signal":%d}`, c.signal)),
				c.code != 0 && !strings.HasSuffix(record, fmt.Sprintf(`,"exit_code":%d}`, c.code)),
				c.code == 0 && c.signal == 0 && strings.Contains(record, "exit"):
				t.Errorf("final record %q", record)
			}
		})
	}
}

func TestProcessOneOfAContainer(t *testing.T) {
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if exec.Command(unshare[0], append(unshare[1:], "true")...).Run() != nil {
		t.Skip("no pid namespace can be made here")
	}
	// No signal of its own kills process 1: the code says it. The orphan is reaped meanwhile.
	l, status := runToEnd(t, settings{wrapper: unshare, dir: t.TempDir()}, "sh", "-c",
		`sh -c 'sleep 0.05 & echo $! >orphan' ; p=$(cat orphan); while [ -e /proc/$p ]; do sleep 0.01; done; echo reaped; kill -TERM $$`)
	if status.ExitStatus() != 143 || !strings.Contains(l.stdout.String(), "reaped") {
		t.Errorf("ended with %#x, stdout %q, stderr %q", status, l.stdout.String(), l.stderr.String())
	}
}

func TestSubreaper(t *testing.T) {
	script := `sh -c 'sleep 0.2 & echo $! >orphan'; p=$(cat orphan); awk '{print "parent " $4}' /proc/$p/stat; echo launcher $PPID; while [ -e /proc/$p ]; do sleep 0.01; done; echo reaped`
	l, _ := runToEnd(t, settings{dir: t.TempDir(), env: []string{"GRAPHSIGNAL_SUBREAPER=1"}}, "sh", "-c", script)
	out := l.stdout.String()
	parent, launcher := "", ""
	for line := range strings.Lines(out) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "parent "); ok {
			parent = n
		}
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "launcher "); ok {
			launcher = n
		}
	}
	if parent == "" || parent != launcher || !strings.Contains(out, "reaped") {
		t.Errorf("the orphan was not adopted and reaped: %q", out)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		status int
		stderr string
	}{
		{"nothing", nil, 2, "no command"},
		{"only options", []string{"--listen-port", "18400"}, 2, "no command"},
		{"bad port", []string{"--metrics-port", "x", "true"}, 2, `--metrics-port: "x"`},
		{"port zero", []string{"--listen-port=0", "true"}, 2, `"0"`},
		{"port too large", []string{"--listen-port=65536", "true"}, 2, `"65536"`},
		{"empty port", []string{"--listen-port=", "true"}, 2, "1 to 65535"},
		{"empty host", []string{"--listen-host=", "true"}, 2, "--listen-host"},
		{"bad mode", []string{"--cuda-graph-trace", "all", "true"}, 2, "graph or node"},
		{"no value", []string{"--listen-port"}, 2, "needs a value"},
		{"unknown option", []string{"--nonsense", "true"}, 2, `"--nonsense"`},
		{"not found", []string{"no-such-program-here"}, 127, "not found"},
		{"not found by path", []string{"./no-such-program-here"}, 127, "not found"},
		{"directory", []string{"/"}, 126, "directory"},
		{"not executable", []string{"/etc/passwd"}, 126, "not executable"},
		{"empty command", []string{""}, 127, "not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, status := runToEnd(t, settings{}, c.args...)
			if status.ExitStatus() != c.status || !strings.Contains(l.stderr.String(), c.stderr) || l.stdout.Len() > 0 {
				t.Errorf("status %d stdout %q stderr %q", status.ExitStatus(), l.stdout.String(), l.stderr.String())
			}
			if !strings.HasPrefix(l.stderr.String(), "graphsignal-run: ") {
				t.Errorf("stderr %q", l.stderr.String())
			}
			if left, _ := os.ReadDir(l.record); len(left) > 0 {
				t.Error("a sidecar was started")
			}
		})
	}
}

// TestWithoutPath: programs are found where they are without us.
func TestWithoutPath(t *testing.T) {
	l, status := runToEnd(t, settings{wrapper: []string{"env", "-u", "PATH"}}, "sh", "-c", "echo out; exit 5")
	if status.ExitStatus() != 5 || l.stdout.String() != "out\n" || l.stderr.Len() > 0 {
		t.Errorf("status %#x stdout %q stderr %q", status, l.stdout.String(), l.stderr.String())
	}
}

func TestHelpAndVersion(t *testing.T) {
	for option, want := range map[string]string{"--version": "graphsignal-run ", "-V": "graphsignal-run ", "--help": "Usage:", "-h": "Usage:"} {
		l, status := runToEnd(t, settings{}, option)
		if status.ExitStatus() != 0 || !strings.HasPrefix(l.stdout.String(), want) || l.stderr.Len() > 0 {
			t.Errorf("%s: status %d, %q, %q", option, status.ExitStatus(), l.stdout.String(), l.stderr.String())
		}
	}
	if l, _ := runToEnd(t, settings{}, "printf", "%s", "--version"); l.stdout.String() != "--version" {
		t.Errorf("the workload's option was taken: %q", l.stdout.String())
	}
}

// What the workload gets is what it would get without the launcher.
func TestWorkloadSeesNoDifference(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain.py", "import sys; print('python', sys.argv[1:])\n", 0o644)
	write("noshebang", "echo by the shell $1\n", 0o755)
	write("badinterpreter", "#!/no/such/interpreter\n", 0o755)
	for _, c := range []struct{ name, script string }{
		{"arguments", `exec $R printf '[%s]' a '' 'b  c' "$(printf 'x\ny')" '$HOME' "--" -- --listen-port`},
		{"separator", `exec $R -- sh -c 'echo $0' --odd`},
		{"name as typed", `exec $R sh -c 'tr "\0" " " </proc/$$/cmdline'`},
		{"directory", `cd /usr && exec $R pwd`},
		{"limits", `ulimit -Sn 256; ulimit -c 0; ulimit -s 4096; umask 027; exec $R sh -c 'ulimit -Sn; ulimit -Hn; ulimit -c; ulimit -s; umask'`},
		{"stdin", `echo line | exec $R cat`},
		{"no stdin", `exec $R cat </dev/null`},
		{"nice", `exec nice -n 3 $R nice`},
		{"ignored signals", `trap '' TERM PIPE QUIT USR1 HUP INT TSTP WINCH RTMIN+5; exec $R grep -E 'Sig(Ign|Blk)' /proc/self/status`},
		{"no ignored signals", `exec $R grep -E 'Sig(Ign|Blk)' /proc/self/status`},
		{"blocked signals", `exec python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGRTMIN + 3])
os.execvp(sys.argv[1], sys.argv[1:])' $R grep SigBlk /proc/self/status`},
		{"session and group", `exec $R ps -o sid=,pgid= -p $$`},
		{"no interpreter line", `cd ` + dir + `; exec $R ./noshebang yes`},
		{"sigpipe", `$R sh -c 'trap "" PIPE; exec yes' 2>/dev/null | head -1`},
		{"environment", `exec env -i A=1 'B=x y' FAKE_RECORD=$FAKE_RECORD PATH=$PATH PYTHONUNBUFFERED= $R env`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			outputs := make([]string, 2)
			for i, run := range []string{"", launcherBinary} {
				cmd := exec.Command("bash", "-c", strings.ReplaceAll(c.script, "$R", run))
				cmd.Env = environWith("FAKE_RECORD=" + t.TempDir())
				out, err := cmd.Output()
				outputs[i] = fmt.Sprintf("%s\n%v", filtered(string(out)), err)
			}
			if c.name == "session and group" {
				// $$ is the shell in both: the same for the launcher, which it becomes.
				outputs[0], outputs[1] = onlySpaces(outputs[0]), onlySpaces(outputs[1])
			}
			if outputs[0] != outputs[1] {
				t.Errorf("without the launcher\n%s\nwith it\n%s", outputs[0], outputs[1])
			}
		})
	}
	t.Run("script", func(t *testing.T) {
		l, status := runToEnd(t, settings{dir: dir}, "plain.py", "a b")
		if status.ExitStatus() != 0 || l.stdout.String() != "python ['a b']\n" {
			t.Errorf("%d %q %q", status.ExitStatus(), l.stdout.String(), l.stderr.String())
		}
	})
	t.Run("interpreter missing", func(t *testing.T) {
		l, status := runToEnd(t, settings{dir: dir}, "./badinterpreter")
		if status.ExitStatus() != 126 || !strings.Contains(l.stderr.String(), "interpreter") {
			t.Errorf("%d %q", status.ExitStatus(), l.stderr.String())
		}
	})
}

// filtered drops what differs from run to run.
func filtered(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "FAKE_RECORD=") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func onlySpaces(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

func TestWorkloadStaysInTheProcessGroup(t *testing.T) {
	l, _ := runToEnd(t, settings{}, "sh", "-c", "ps -o pgid=,sid= -p $$; ps -o pgid=,sid= -p $PPID")
	lines := strings.Split(strings.TrimSpace(l.stdout.String()), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != strings.Join(strings.Fields(lines[1]), " ") {
		t.Errorf("group and session of workload and launcher: %q", lines)
	}
}

func TestInheritedDescriptors(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	l := start(t, settings{files: []*os.File{write}}, workload("descriptors")...)
	_ = write.Close()
	l.wait()
	if want := "3 pipe"; !strings.Contains(l.stdout.String(), want) {
		t.Errorf("the workload has %q", l.stdout.String())
	}
	if got := l.recorded("descriptors"); strings.Contains(got, "5 ") || !strings.Contains(got, "4 socket") || strings.Count(got, "null") != 3 {
		t.Errorf("the sidecar has %q", got)
	}
}

// A program that closes an inherited descriptor, as readiness protocols have it, is heard at the other end.
func TestLauncherHoldsNoInheritedDescriptor(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stdin, stdinWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, settings{files: []*os.File{write}, stdin: stdin}, workload("close-and-wait")...)
	_ = write.Close()
	_ = stdin.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(read)
		ended <- err
	}()
	await(t, "the end of the pipe", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	select {
	case <-l.ended:
		t.Fatal("the workload was to live on")
	default:
	}
	_ = stdinWrite.Close()
	l.wait()
}

func TestSocketActivation(t *testing.T) {
	listener, err := os.CreateTemp(t.TempDir(), "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// As systemd does it: the variable holds the pid of the process that it executes.
	wrapper := []string{"sh", "-c", `LISTEN_PID=$$ LISTEN_PIDFDID=7 LISTEN_FDS=1 LISTEN_FDNAMES=web exec "$@"`, "sh"}
	l, status := runToEnd(t, settings{files: []*os.File{listener}, wrapper: wrapper}, "sh", "-c",
		`[ "$LISTEN_PID" = $$ ] && echo "$0 mine $LISTEN_FDS $LISTEN_FDNAMES.$LISTEN_PIDFDID"; echo through >&3; exit 9`)
	content, _ := os.ReadFile(listener.Name())
	if l.stdout.String() != "sh mine 1 web.\n" || string(content) != "through\n" || status.ExitStatus() != 9 {
		t.Errorf("%q %q %#x %q", l.stdout.String(), content, status, l.stderr.String())
	}
	// Those of another process are left alone.
	l, _ = runToEnd(t, settings{env: []string{"LISTEN_PID=1"}}, "sh", "-c", "echo $LISTEN_PID")
	if l.stdout.String() != "1\n" {
		t.Errorf("%q", l.stdout.String())
	}
}

// Every signal reaches the workload's leader once.
func TestForwardedSignals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "signals")
	l := start(t, settings{}, workload("count", file)...)
	awaitFile(t, file)
	count := func() []string {
		content, _ := os.ReadFile(file)
		return strings.Fields(string(content))[2:]
	}
	var want []string
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGALRM,
		syscall.SIGTERM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGPWR, syscall.SIGTERM, 36, 50, 64} {
		if err := l.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		want = append(want, strconv.Itoa(int(sig)))
		await(t, "signal "+sig.String(), func() bool { return len(count()) >= len(want) })
	}
	if err := l.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	l.wait()
	if got := count(); !slices.Equal(got, append(want, strconv.Itoa(int(syscall.SIGUSR2)))) {
		t.Errorf("arrived %v, want %v", got, want)
	}
}

func TestSignalOfTheWorkloadToItsGroupIsNotReturned(t *testing.T) {
	l, status := runToEnd(t, settings{attr: &syscall.SysProcAttr{Setpgid: true}}, "sh", "-c",
		`n=0; trap 'n=$((n+1))' USR1; kill -USR1 0; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done; echo "times $n"`)
	if status.ExitStatus() != 0 || l.stdout.String() != "times 1\n" {
		t.Errorf("%#x %q", status, l.stdout.String())
	}
}

func TestIgnoredSignalIsPassedOn(t *testing.T) {
	// nohup: the launcher survives, and a program that handles the signal all the same gets it.
	file := filepath.Join(t.TempDir(), "signals")
	l := start(t, settings{wrapper: []string{"sh", "-c", `trap '' HUP; exec "$@"`, "sh"}}, workload("count", file)...)
	awaitFile(t, file)
	_ = l.cmd.Process.Signal(syscall.SIGHUP)
	await(t, "the hang-up", func() bool { return strings.HasSuffix(awaitFile(t, file), "\n1\n") })
	_ = l.cmd.Process.Signal(syscall.SIGUSR2)
	if status := l.wait(); status.ExitStatus() != 0 {
		t.Errorf("%#x", status)
	}
}

func TestKilledLauncher(t *testing.T) {
	file := filepath.Join(t.TempDir(), "signals")
	l := start(t, settings{}, workload("count", file)...)
	awaitFile(t, file)
	l.recorded("ready-0")
	_ = l.cmd.Process.Kill()
	await(t, "SIGTERM in the workload", func() bool { return strings.HasSuffix(awaitFile(t, file), "\n15\n") })
	l.recorded("drained")
	pid, _ := strconv.Atoi(strings.Fields(awaitFile(t, file))[1])
	_ = syscall.Kill(pid, syscall.SIGKILL)
	// The Collector removes the directory; its stand-in does not.
	var config struct {
		Receivers struct {
			Console struct{ Directory string }
		}
	}
	if err := json.Unmarshal([]byte(l.recorded("config.json")), &config); err != nil {
		t.Fatal(err)
	}
	_ = os.RemoveAll(config.Receivers.Console.Directory)
}

func TestNestedLauncherBecomesTheProgram(t *testing.T) {
	l, status := runToEnd(t, settings{}, "sh", "-c", launcherBinary+` sh -c 'ps -o comm= -p $PPID; exit 4'`)
	if status.ExitStatus() != 4 || l.stdout.String() != "sh\n" {
		t.Errorf("%d %q %q", status.ExitStatus(), l.stdout.String(), l.stderr.String())
	}
	if lives, _ := filepath.Glob(filepath.Join(l.record, "life-*")); len(lives) != 1 {
		t.Errorf("%d sidecars", len(lives))
	}
	// With an endpoint of its own it runs in full.
	l, _ = runToEnd(t, settings{}, launcherBinary, "--listen-port", "18401", "sh", "-c", "ps -o comm= -p $PPID")
	if l.stdout.String() != "graphsignal-run\n" {
		t.Errorf("%q", l.stdout.String())
	}
}

// What NVIDIA's tools cannot follow through a launcher takes its place.
func TestBelowAToolThatFollowsIt(t *testing.T) {
	for _, variable := range []string{"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "NV_SANITIZER_INJECTION_TRANSPORT_TYPE"} {
		l, status := runToEnd(t, settings{env: []string{variable + "=/opt"}}, "sh", "-c", "echo $$; exit 4")
		if status.ExitStatus() != 4 || l.stdout.String() != fmt.Sprintln(l.cmd.Process.Pid) || !strings.Contains(l.stderr.String(), "no profiling in this run: ") {
			t.Errorf("%d %q %q", status.ExitStatus(), l.stdout.String(), l.stderr.String())
		}
		if lives, _ := filepath.Glob(filepath.Join(l.record, "life-*")); len(lives) != 0 {
			t.Errorf("%d sidecars", len(lives))
		}
	}
}

// A descendant that outlives the workload neither delays the end nor dies for want of a reader.
func TestDescendantHoldsTheOutput(t *testing.T) {
	dir := t.TempDir()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	fifo := filepath.Join(dir, "go-on")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l := start(t, settings{stdout: output, dir: dir}, "sh", "-c", "(read line <go-on; echo late; echo alive >late.txt) 2>/dev/null & echo started; exit 3")
	if status := l.wait(); status.ExitStatus() != 3 {
		t.Fatalf("%#x", status)
	}
	if content := awaitFile(t, output.Name()); content != "started\n" {
		t.Errorf("output %q", content)
	}
	if len(openers(output.Name())) == 0 {
		t.Fatal("nobody passes the output on")
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, filepath.Join(dir, "late.txt"))
	await(t, "the late line", func() bool { return awaitFile(t, output.Name()) == "started\nlate\n" })
	await(t, "the relay's end", func() bool { return len(openers(output.Name())) == 0 })
}

// openers lists the processes, but for this one, that have a file open as standard output or error.
func openers(name string) (pids []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/[12]")
	for _, link := range links {
		pid := strings.Split(link, "/")[2]
		if target, err := os.Readlink(link); err == nil && target == name && pid != strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestKilledLeaderLeavesWorkers(t *testing.T) {
	dir := t.TempDir()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	l := start(t, settings{stdout: output, dir: dir}, "sh", "-c", "sleep 600 2>&1 & echo $! >worker; kill -KILL $$")
	status := l.wait()
	worker := strings.TrimSpace(awaitFile(t, filepath.Join(dir, "worker")))
	pid, _ := strconv.Atoi(worker)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("%#x", status)
	}
	if syscall.Kill(pid, 0) != nil {
		t.Error("the worker was killed")
	}
	if want := worker + " (sleep)"; !strings.Contains(l.stderr.String(), want) {
		t.Errorf("stderr %q does not name %q", l.stderr.String(), want)
	}
	if !strings.Contains(l.recorded("console.jsonl"), `"signal":9}`) {
		t.Error("no final record")
	}
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}
