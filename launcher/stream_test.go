package launcher

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBytesPassUnchanged(t *testing.T) {
	input := filepath.Join(t.TempDir(), "input")
	file, err := os.Create(input)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*i>>3 ^ i)
	}
	for i := range 32 {
		block[0] = byte(i)
		if _, err := io.MultiWriter(file, sum).Write(block); err != nil {
			t.Fatal(err)
		}
	}
	_ = file.Close()
	for _, stream := range []string{"", ">&2"} {
		cmd := exec.Command("bash", "-c", fmt.Sprintf(`%s sh -c 'cat %s %s' 2>&1 | sha256sum`, launcherBinary, input, stream))
		cmd.Env = environWith("FAKE_RECORD=" + t.TempDir())
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), fmt.Sprintf("%x", sum.Sum(nil))) {
			t.Errorf("%q %v", out, err)
		}
	}
}

func TestOutputPassesAsItComes(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	input, inputWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, settings{stdin: input, stdout: write}, "sh", "-c", `printf '\rfetching 0%%'; read a; printf '\rfetching 50%%'; read a; echo; exit 0`)
	_ = write.Close()
	_ = input.Close()
	buffer := make([]byte, 100)
	for _, want := range []string{"\rfetching 0%", "\rfetching 50%"} {
		got := ""
		for len(got) < len(want) {
			n, err := read.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			got += string(buffer[:n])
		}
		if got != want {
			t.Errorf("got %q", got)
		}
		_, _ = inputWrite.WriteString("\n")
	}
	_ = inputWrite.Close()
	l.wait()
	if got := lines(parseRecords(t, l.recorded("console.jsonl"))); fmt.Sprintf("%q", got) != `["fetching 0%" "fetching 50%"]` {
		t.Errorf("captured %q", got)
	}
}

func TestClosedConsoleReachesTheWorkload(t *testing.T) {
	cmd := exec.Command("bash", "-c", `"$0" yes | head -1; echo ${PIPESTATUS[0]}; "$0" sh -c 'trap "" PIPE; yes 2>/dev/null; echo status $? >&2' | head -1`, launcherBinary)
	cmd.Env = environWith("FAKE_RECORD=" + t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	// With SIGPIPE ignored the write fails.
	if err != nil || string(out) != "y\n141\ny\n" || stderr.String() != "status 1\n" {
		t.Errorf("%q %q %v", out, stderr.String(), err)
	}
}

func TestReaderGoneBeforeTheNextWrite(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	input, inputWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, settings{stdin: input, stdout: write}, "sh", "-c", `read line; echo never read; exit 0`)
	_ = write.Close()
	_ = input.Close()
	_ = read.Close()
	// The stream is closed once the launcher has noticed; then the workload's first write already fails.
	var pid int
	if _, rest, ok := strings.Cut(l.recorded("config.json"), `"pid":`); ok {
		pid, _ = strconv.Atoi(rest[:strings.IndexAny(rest, ",}")])
	}
	pipe, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
	if err != nil || !strings.HasPrefix(pipe, "pipe:") {
		t.Fatal(pid, pipe, err)
	}
	await(t, "the closing of the stream", func() bool {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", l.cmd.Process.Pid))
		for _, link := range links {
			if target, _ := os.Readlink(link); target == pipe {
				return false
			}
		}
		return true
	})
	_, _ = inputWrite.WriteString("go\n")
	_ = inputWrite.Close()
	if status := l.wait(); !status.Signaled() || status.Signal() != unix.SIGPIPE {
		t.Errorf("%#x", status)
	}
}

func TestFullDiskLosesOutputOnly(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	l, status := runToEnd(t, settings{stdout: full}, "sh", "-c", "seq 1 100000; echo ERROR told; exit 4")
	if status.ExitStatus() != 4 || strings.Count(l.stderr.String(), "\n") != 1 || !strings.Contains(l.stderr.String(), "no space") {
		t.Errorf("%#x %q", status, l.stderr.String())
	}
	if got := lines(parseRecords(t, l.recorded("console.jsonl"))); got[len(got)-1] != "ERROR told" {
		t.Error("not captured")
	}
}

func TestNonBlockingConsole(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	// Somebody who shares the console made it non-blocking; that must stay so and lose nothing.
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_, _ = read.Close(), write.Close()
	if err := unix.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(uintptr(fds[1]), "console")
	l := start(t, settings{stdout: out}, "seq", "1", "300000")
	all := make(chan []byte)
	_ = out.Close()
	go func() {
		reader := os.NewFile(uintptr(fds[0]), "reader")
		content, _ := io.ReadAll(reader)
		_ = reader.Close()
		all <- content
	}()
	content := <-all
	l.wait()
	if !bytes.HasSuffix(content, []byte("\n300000\n")) || bytes.Count(content, newline) != 300000 {
		t.Errorf("%d bytes", len(content))
	}
}

func TestTailIsNotCut(t *testing.T) {
	l, status := runToEnd(t, settings{}, "sh", "-c", "seq 1 200000; exit 5")
	if status.ExitStatus() != 5 || !strings.HasSuffix(l.stdout.String(), "\n200000\n") {
		t.Errorf("%#x %q", status, lastLine(l.stdout.String()))
	}
}

// One endless line costs bounded memory, and a flood never delays: what the capture loses it counts.
func TestFloodIsBoundedAndCounted(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	l, _ := runToEnd(t, settings{stdout: null}, "sh", "-c",
		`head -c 100000000 /dev/zero | tr '\0' x; echo; seq 1 3000000; echo 'ERROR the last'; grep VmHWM /proc/$PPID/status >&2`)
	fields := strings.Fields(l.stderr.String())
	if len(fields) < 2 {
		t.Fatalf("%q", l.stderr.String())
	}
	if peak, _ := strconv.Atoi(fields[1]); peak == 0 || peak > 64<<10 {
		t.Errorf("peak memory %d KiB", peak)
	}
	records := parseRecords(t, l.recorded("console.jsonl"))
	var dropped int64
	for _, r := range records {
		dropped += r.Dropped
	}
	texts := lines(records)
	if texts[len(texts)-2] != "ERROR the last" && texts[len(texts)-1] != "ERROR the last" && !strings.HasPrefix(texts[len(texts)-1], "VmHWM") {
		t.Errorf("captured at the end: %.200q", texts[len(texts)-2:])
	}
	if dropped == 0 {
		t.Log("this machine lost nothing of the flood")
	}
}

func TestCaptureDirectory(t *testing.T) {
	shm := t.TempDir()
	script := `while [ ! -s ` + shm + `/graphsignal_log_$$/.owner ]; do sleep 0.01; done; ls -ldn ` + shm + `/graphsignal_log_$$ | cut -d' ' -f1; ls -lan ` + shm + `/graphsignal_log_$$ | grep owner | cut -d' ' -f1; cat ` + shm + `/graphsignal_log_$$/.owner`
	l, _ := runToEnd(t, settings{env: []string{"GRAPHSIGNAL_SHM_PATH=" + shm}}, "sh", "-c", script)
	out := l.stdout.String()
	if !strings.HasPrefix(out, "drwx------\n-rw-------\n") || !strings.Contains(out, `"boot_id"`) {
		t.Errorf("%q %q", out, l.stderr.String())
	}
	if left, _ := os.ReadDir(shm); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCaptureWithoutSharedMemory(t *testing.T) {
	private := t.TempDir()
	env := []string{"GRAPHSIGNAL_SHM_PATH=" + private + "/absent", "XDG_RUNTIME_DIR=" + private}
	l, status := runToEnd(t, settings{env: env}, "sh", "-c", "echo boom; exit 3")
	if status.ExitStatus() != 3 || l.stdout.String() != "boom\n" || l.stderr.Len() > 0 {
		t.Errorf("%#x %q %q", status, l.stdout.String(), l.stderr.String())
	}
	records := parseRecords(t, l.recorded("console.jsonl"))
	if len(records) != 2 || *records[0].Line != "boom" || records[1].ExitCode != 3 {
		t.Errorf("%+v", records)
	}
	if !strings.Contains(l.recorded("config.json"), private+"/graphsignal-"+strconv.Itoa(os.Geteuid())+"/graphsignal_log_") {
		t.Error("not in the private directory")
	}
	// Another's directory, or a link, is not used.
	for _, parent := range []string{"open", "link"} {
		base := filepath.Join(private, parent)
		if err := os.Mkdir(base, 0o755); err != nil {
			t.Fatal(err)
		}
		mine := filepath.Join(base, "graphsignal-"+strconv.Itoa(os.Geteuid()))
		var err error
		if parent == "open" {
			err = os.Mkdir(mine, 0o777)
			_ = os.Chmod(mine, 0o777)
		} else {
			err = os.Symlink(private, mine)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := privateDirectory(mine); err == nil {
			t.Errorf("%s was accepted", parent)
		}
	}
}

func TestCaptureOff(t *testing.T) {
	l, _ := runToEnd(t, settings{env: []string{"GRAPHSIGNAL_CONSOLE_CAPTURE=0"}}, "sh", "-c", `readlink /proc/$$/fd/1`)
	if got := l.recorded("config.json"); strings.Contains(got, "console") {
		t.Error("a console receiver is configured")
	}
	if !strings.HasPrefix(l.stdout.String(), "pipe:") {
		t.Errorf("%q", l.stdout.String())
	}
}
