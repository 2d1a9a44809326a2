package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a real pseudoterminal with an interactive shell on it, driven as a person would.
type terminal struct {
	t      *testing.T
	master *os.File
	fd     int
	shell  *exec.Cmd
	record string
	dir    string

	mu     sync.Mutex
	output []byte
	read   int
}

// openTerminal starts bash on a terminal of 24 rows and 80 columns.
func openTerminal(t *testing.T, env ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudoterminals here:", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	// So that closing it interrupts the reader.
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	slave, err := openPeer(fd)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, master: os.NewFile(uintptr(fd), "terminal"), fd: fd, record: t.TempDir(), dir: t.TempDir()}
	term.resize(24, 80)
	slaveFile := os.NewFile(uintptr(slave), "terminal")
	term.shell = exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	term.shell.Env = environWith(append([]string{"FAKE_RECORD=" + term.record, "PS1=ready> ", "TERM=xterm", "R=" + launcherBinary, "T=" + testBinary,
		"HISTFILE="}, env...)...)
	term.shell.Dir = term.dir
	term.shell.Stdin, term.shell.Stdout, term.shell.Stderr = slaveFile, slaveFile, slaveFile
	term.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.shell.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slaveFile.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, err := term.master.Read(buffer)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.output = append(term.output, buffer[:n]...)
			term.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = term.shell.Process.Kill()
		_ = term.shell.Wait()
		_ = term.master.Close()
		<-done
	})
	term.expect("ready> ")
	return term
}

// resize changes the size, as a terminal emulator does.
func (term *terminal) resize(rows, columns uint16) {
	term.t.Helper()
	if err := unix.IoctlSetWinsize(term.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		term.t.Fatal(err)
	}
}

// send types.
func (term *terminal) send(text string) {
	term.t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

// expect waits for text after what was expected before, and returns what came up to its end.
func (term *terminal) expect(text string) string {
	term.t.Helper()
	for end := time.Now().Add(deadline); ; time.Sleep(2 * time.Millisecond) {
		term.mu.Lock()
		rest := string(term.output[term.read:])
		if at := strings.Index(rest, text); at >= 0 {
			term.read += at + len(text)
			term.mu.Unlock()
			return rest[:at+len(text)]
		}
		term.mu.Unlock()
		if time.Now().After(end) {
			term.t.Fatalf("waited in vain for %q; the terminal shows %q", text, rest)
		}
	}
}

// seen returns all that the terminal has shown.
func (term *terminal) seen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.output)
}

// workload types the command line of this binary's part under the launcher.
func (term *terminal) workload(part string, args ...string) {
	term.send(`$R $T workload:` + part + " " + strings.Join(args, " ") + "\n")
}

func TestTerminalIsATerminal(t *testing.T) {
	term := openTerminal(t)
	term.workload("terminal")
	for _, want := range []string{"fd0 terminal true\r\n", "fd1 terminal true\r\n", "fd2 terminal true\r\n", "dev-tty true\r\n",
		"foreground true\r\n", "size 24x80\r\n"} {
		term.expect(want)
	}
	term.send("hello\n")
	// The echo of the terminal, then the program's answer.
	term.expect("hello\r\n")
	term.expect("got \"hello\"\r\n")
	term.resize(30, 100)
	term.expect("size 30x100\r\n")
	term.resize(31, 101)
	term.expect("size 31x101\r\n")
	term.send("q\n")
	term.expect("ready> ")
	term.send("echo status $?\n")
	term.expect("status 0\r\n")
	if strings.Contains(term.seen(), "\r\r\n") {
		t.Error("output was processed twice")
	}
}

func TestMixedStreams(t *testing.T) {
	term := openTerminal(t)
	term.send(`$R $T workload:terminal 2>/dev/null </dev/null` + "\n")
	term.expect("fd0 terminal false")
	term.expect("fd1 terminal true")
	term.expect("fd2 terminal false")
	term.expect("ready> ")
	term.send(`$R $T workload:terminal </dev/null | cat` + "\n")
	term.expect("fd1 terminal false")
	term.expect("fd2 terminal true")
	term.expect("ready> ")
}

// One Ctrl-C is one SIGINT for every process, and the shell sees the death by it.
func TestKeyboardInterrupt(t *testing.T) {
	term := openTerminal(t)
	file := filepath.Join(term.dir, "signals")
	term.workload("count", file)
	awaitFile(t, file)
	for i := range 3 {
		term.send("\x03")
		await(t, "SIGINT", func() bool {
			return strings.Count(awaitFile(t, file), "\n2\n") > 0 && strings.Count(awaitFile(t, file), "\n") >= i+2
		})
	}
	term.send("\x1c")
	await(t, "SIGQUIT", func() bool { return strings.HasSuffix(awaitFile(t, file), "\n3\n") })
	var pid int
	_, _ = fmt.Sscanf(awaitFile(t, file), "pid %d", &pid)
	_ = syscall.Kill(pid, syscall.SIGUSR2)
	term.expect("ready> ")
	if got := awaitFile(t, file); got != fmt.Sprintf("pid %d\n2\n2\n2\n3\n12\n", pid) {
		t.Errorf("arrived %q", got)
	}
	term.send("$R sleep 600\n")
	await(t, "the sidecar", func() bool { return exists(filepath.Join(term.record, "ready-1")) })
	term.send("\x03")
	term.expect("ready> ")
	term.send("echo status $?\n")
	term.expect("status 130\r\n")
}

func TestKeyboardStopAndForeground(t *testing.T) {
	term := openTerminal(t)
	term.workload("terminal")
	term.expect("size 24x80\r\n")
	for round := range 3 {
		term.send("\x1a")
		term.expect("Stopped")
		term.expect("ready> ")
		term.send("jobs\n")
		term.expect("Stopped")
		term.expect("ready> ")
		if round == 1 {
			term.resize(40, 90)
		}
		term.send("fg\n")
		term.expect("workload:terminal")
		if round == 1 {
			term.expect("size 40x90\r\n")
		}
		// It has the terminal again.
		text := fmt.Sprintf("round %d", round)
		term.send(text + "\n")
		term.expect(fmt.Sprintf("got %q\r\n", text))
	}
	term.send("q\n")
	term.expect("ready> ")
	term.send("echo status $?\n")
	term.expect("status 0\r\n")
}

func TestBackgroundJob(t *testing.T) {
	term := openTerminal(t)
	file := filepath.Join(term.dir, "signals")
	term.send("$R sh -c 'read line; echo line was $line >" + file + "' &\n")
	// Reading from the background stops a job.
	await(t, "a stopped job", func() bool {
		term.send("jobs\n")
		time.Sleep(20 * time.Millisecond)
		return strings.Contains(term.seen(), "Stopped")
	})
	term.send("fg\n")
	term.expect("fg\r\n")
	term.send("abc\n")
	if got := awaitFile(t, file); got != "line was abc\n" {
		t.Errorf("%q", got)
	}
	term.send("echo status $?\n")
	term.expect("status 0\r\n")
}

// A program that sets the modes of the terminal at standard output sets those of the real one.
func TestModesOfStandardOutput(t *testing.T) {
	term := openTerminal(t)
	echo := func() bool {
		modes, err := unix.IoctlGetTermios(term.fd, unix.TCGETS)
		return err == nil && modes.Lflag&unix.ECHO != 0 && modes.Oflag&unix.OPOST != 0
	}
	term.workload("modes")
	term.expect("echo is off\r\n")
	await(t, "no echo", func() bool { return !echo() })
	term.send("secret\n")
	term.expect("echo is on\r\n")
	await(t, "echo", echo)
	term.send("\n")
	term.expect("ready> ")
	if strings.Contains(term.seen(), "secret") {
		t.Error("the typed secret was shown")
	}
}

func TestInteractivePrograms(t *testing.T) {
	t.Run("python", func(t *testing.T) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip(err)
		}
		term := openTerminal(t, "PYTHON_BASIC_REPL=1")
		term.send("$R python3 -q\n")
		term.expect(">>> ")
		term.send("21*2\n")
		term.expect("42")
		term.expect(">>> ")
		term.send("import os; os.isatty(1), os.get_terminal_size()[0]\n")
		term.expect("(True, 80)")
		term.expect(">>> ")
		term.send("\x03")
		term.expect("KeyboardInterrupt")
		term.expect(">>> ")
		term.send("\x04")
		term.expect("ready> ")
	})
	t.Run("curses", func(t *testing.T) {
		if exec.Command("python3", "-c", "import curses").Run() != nil {
			t.Skip("no curses")
		}
		term := openTerminal(t)
		// Curses sets the modes at standard output and reads standard input.
		script := `import curses
def main(s):
    s.addstr(0, 0, "press"); s.refresh()
    while True:
        k = s.getkey()
        s.erase(); s.addstr(1, 0, "%dx%d[%s]" % (s.getmaxyx() + (k,))); s.refresh()
        if k == "q": return
curses.wrapper(main)`
		if err := os.WriteFile(filepath.Join(term.dir, "c.py"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		term.send("$R python3 c.py\n")
		term.expect("press")
		term.send("x")
		term.expect("24x80[x]")
		term.resize(30, 90)
		term.expect("KEY_RESIZE")
		term.send("q")
		term.expect("ready> ")
		term.send("echo status $?\n")
		term.expect("\r\nstatus 0\r\n")
	})
	t.Run("more", func(t *testing.T) {
		if _, err := exec.LookPath("more"); err != nil {
			t.Skip(err)
		}
		term := openTerminal(t)
		term.send("seq 1 1000 >numbers; $R more numbers\n")
		term.expect("%)")
		term.send(" ")
		term.expect("\n44")
		term.expect("%)")
		term.send("q")
		term.expect("ready> ")
	})
	t.Run("less", func(t *testing.T) {
		if _, err := exec.LookPath("less"); err != nil {
			t.Skip(err)
		}
		term := openTerminal(t)
		term.send("seq 1 1000 >numbers; $R less numbers\n")
		term.expect("\n23")
		term.send("G")
		term.expect("1000")
		term.send("\x1a")
		term.expect("Stopped")
		term.expect("ready> ")
		term.send("fg\n")
		term.expect("1000")
		term.send("q")
		term.expect("ready> ")
		term.send("stty -a | grep -c ' echo '; seq 1 500 | $R less\n")
		term.expect("\n23")
		term.send("q")
		term.expect("ready> ")
	})
	t.Run("shell", func(t *testing.T) {
		term := openTerminal(t)
		term.send("PS1='inner> ' $R bash --norc --noprofile --noediting -i\n")
		term.expect("inner> ")
		term.send("sleep 600\n")
		term.expect("sleep 600\r\n")
		await(t, "the sleep in the foreground", func() bool {
			out, _ := exec.Command("pgrep", "-f", "^sleep 600$").Output()
			return len(out) > 0
		})
		term.send("\x1a")
		term.expect("Stopped")
		term.expect("inner> ")
		term.send("kill %1; wait; tty <&1; exit 5\n")
		term.expect("/dev/pts/")
		term.expect("ready> ")
		term.send("echo status $?\n")
		term.expect("status 5\r\n")
	})
}

func TestHangUp(t *testing.T) {
	term := openTerminal(t)
	file := filepath.Join(term.dir, "signals")
	term.workload("count", file)
	awaitFile(t, file)
	await(t, "the sidecar", func() bool { return exists(filepath.Join(term.record, "ready-0")) })
	_ = term.master.Close()
	await(t, "SIGHUP", func() bool { return strings.Contains(awaitFile(t, file), "\n1\n") })
	var pid int
	_, _ = fmt.Sscanf(awaitFile(t, file), "pid %d", &pid)
	_ = syscall.Kill(pid, syscall.SIGUSR2)
	await(t, "the drain", func() bool { return exists(filepath.Join(term.record, "drained")) })
}

// A launcher that leads the session is the only one whom a hang-up reaches, and passes it on.
func TestHangUpOfTheSessionLeader(t *testing.T) {
	term := openTerminal(t)
	file := filepath.Join(term.dir, "signals")
	term.send("exec $R $T workload:count " + file + "\n")
	awaitFile(t, file)
	await(t, "the sidecar", func() bool { return exists(filepath.Join(term.record, "ready-0")) })
	_ = term.master.Close()
	await(t, "SIGHUP", func() bool { return strings.Contains(awaitFile(t, file), "\n1\n") })
	var pid int
	_, _ = fmt.Sscanf(awaitFile(t, file), "pid %d", &pid)
	_ = syscall.Kill(pid, syscall.SIGUSR2)
	await(t, "the drain", func() bool { return exists(filepath.Join(term.record, "drained")) })
}

func TestTerminalOutputIsCaptured(t *testing.T) {
	term := openTerminal(t)
	term.send(`$R sh -c 'printf "one\ntwo\r\n\033[31mred\033[0m\n"; echo three >&2; exit 3'` + "\n")
	term.expect("red")
	term.expect("ready> ")
	await(t, "the drain", func() bool { return exists(filepath.Join(term.record, "drained")) })
	got := awaitFile(t, filepath.Join(term.record, "console.jsonl"))
	for _, want := range []string{`"stdout","line":"one"}`, `"line":"two"}`, `"stderr","line":"three"}`, `"exit_code":3}`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

func TestNohup(t *testing.T) {
	term := openTerminal(t)
	file := filepath.Join(term.dir, "signals")
	term.send("nohup $R $T workload:count " + file + " >out 2>&1 </dev/null &\n")
	awaitFile(t, file)
	await(t, "the sidecar", func() bool { return exists(filepath.Join(term.record, "ready-0")) })
	var pid int
	_, _ = fmt.Sscanf(awaitFile(t, file), "pid %d", &pid)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var parent int
	_, _ = fmt.Sscanf(regexp.MustCompile(`^.*\) \S `).ReplaceAllString(string(status), ""), "%d", &parent)
	_ = syscall.Kill(parent, syscall.SIGHUP)
	await(t, "SIGHUP", func() bool { return strings.Contains(awaitFile(t, file), "\n1\n") })
	_ = term.master.Close()
	_ = syscall.Kill(pid, syscall.SIGUSR2)
	await(t, "the drain", func() bool { return exists(filepath.Join(term.record, "drained")) })
}
