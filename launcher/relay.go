package launcher

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RelayName is the name (the first word of the command line) of a launcher that only passes on what descendants of an
// ended workload still write.
const RelayName = "graphsignal-run: relay"

// relayFirst is the descriptor of the first stream in the relay.
const relayFirst = 3

// startRelay hands streams over to a detached copy of the launcher, so that a descendant that goes on writing neither
// loses its output nor dies for the want of a reader.
func startRelay(held []*stream) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // the relay has its own
	files := []uintptr{null.Fd(), 1, 2}
	args := []string{RelayName}
	for i, s := range held {
		if s.terminal != nil {
			s.terminal.plain()
		}
		files = append(files, uintptr(s.in))
		args = append(args, fmt.Sprintf("%d:%d", relayFirst+i, s.out))
	}
	_, err = syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Dir:   "/",
		Files: files,
		Env:   []string{"GOMAXPROCS=1"},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	return err
}

// Relay passes the streams named by args (descriptor:output) on until they end. It returns the exit status.
func Relay(args []string) int {
	// Descriptors that are not needed must not be held open: not the other output, not a pipe of someone else.
	needed := map[int]bool{}
	var streams []*stream
	for _, arg := range args {
		from, to, _ := strings.Cut(arg, ":")
		in, inErr := strconv.Atoi(from)
		out, outErr := strconv.Atoi(to)
		if inErr != nil || outErr != nil || in < relayFirst || out != 1 && out != 2 {
			return exitUsage
		}
		unix.CloseOnExec(in)
		needed[out] = true
		s := &stream{in: in, out: out, wake: -1, done: make(chan outcome, 1), warn: func(string, ...any) {}}
		streams = append(streams, s)
	}
	for _, fd := range inheritedDescriptors() {
		_ = unix.Close(fd)
	}
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for _, out := range []int{1, 2} {
			if !needed[out] {
				_ = unix.Dup3(null, out, 0)
			}
		}
		_ = unix.Close(null)
	}
	for _, s := range streams {
		go s.run()
	}
	for _, s := range streams {
		<-s.done
	}
	return 0
}

// holdersOf lists the processes that hold the writing end of a stream as standard output or error.
func holdersOf(held []*stream) []string {
	names := make(map[string]bool)
	for _, s := range held {
		if s.terminal != nil {
			names[s.terminal.name()] = true
		} else if link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(s.in)); err == nil {
			names[link] = true
		}
	}
	directory, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer directory.Close() //nolint:errcheck // only read
	entries, _ := directory.Readdirnames(-1)
	var holders []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry)
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, fd := range []string{"1", "2"} {
			if link, err := os.Readlink("/proc/" + entry + "/fd/" + fd); err == nil && names[link] {
				comm, _ := os.ReadFile("/proc/" + entry + "/comm")
				holders = append(holders, fmt.Sprintf("%d (%s)", pid, strings.ToValidUTF8(strings.TrimSpace(string(comm)), "?")))
				break
			}
		}
	}
	return holders
}
