package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fakeCollector stands in for graphsignal-collector: it records its configuration, environment and descriptors, says
// ready, waits for the end of the control channel, records the console's segments and ends. FAKE_MODE changes that.
func fakeCollector() int {
	dir, mode := os.Getenv("FAKE_RECORD"), os.Getenv("FAKE_MODE")
	if os.Args[1] == "validate" {
		if mode == "crash-with-user" {
			fmt.Fprintln(os.Stderr, "Error: unknown\ntype nosuch")
			return 3
		}
		return 0
	}
	write := func(name, content string) {
		// Complete when it is seen.
		temporary := filepath.Join(dir, "."+name)
		if os.WriteFile(temporary, []byte(content), 0o600) == nil {
			_ = os.Rename(temporary, filepath.Join(dir, name))
		}
	}
	life := 0
	for ; ; life++ {
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("life-%d", life)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_, _ = fmt.Fprint(file, os.Getpid())
			_ = file.Close()
			break
		}
		if !os.IsExist(err) {
			return 9
		}
	}
	write("args", strings.Join(os.Args[1:], "\n"))
	write("environ", strings.Join(os.Environ(), "\n"))
	write("descriptors", descriptors())
	session, _ := unix.Getsid(0)
	write("session", strconv.Itoa(session))
	config, err := os.ReadFile(strings.TrimPrefix(os.Args[1], "--config=file:"))
	if err != nil {
		return 9
	}
	write("config.json", string(config))

	userConfig := strings.Contains(strings.Join(os.Args, " "), "--feature-gates")
	switch {
	case mode == "crash", mode == "crash-once" && life == 0, mode == "crash-with-user" && userConfig:
		return 3
	case mode == "ignore-end":
		say("ready")
		for {
			time.Sleep(time.Hour)
		}
	case mode == "bind-failed":
		say("bind_failed 127.0.0.1:18259: address already in use")
		say("bind_failed 127.0.0.1:18259: address already in use")
	}
	say("ready")
	write("ready-"+strconv.Itoa(life), "ready")
	buffer := make([]byte, 16)
	for {
		n, err := syscall.Read(4, buffer)
		if err != syscall.EINTR && n <= 0 {
			break
		}
	}
	switch mode {
	case "crash-at-end":
		return 3
	case "warn-at-end":
		say("warning there is a reason")
		say("warning there is a reason")
		return 1
	}
	write("console.jsonl", consoleRecords(config))
	write("drained", "drained")
	return 0
}

func say(line string) { _, _ = syscall.Write(4, []byte(line+"\n")) }

// consoleRecords reads the segments of the directory that a configuration names.
func consoleRecords(config []byte) string {
	_, rest, ok := strings.Cut(string(config), `"directory":"`)
	if !ok {
		return "no console\n"
	}
	directory, _, _ := strings.Cut(rest, `"`)
	var all strings.Builder
	for n := range 10000 {
		content, err := os.ReadFile(filepath.Join(directory, fmt.Sprintf("log_%d.jsonl", n)))
		if err == nil {
			all.Write(content)
		}
	}
	// Never empty, so that it can be waited for.
	return all.String() + "\n"
}

// descriptors lists what this process has inherited.
func descriptors() string {
	var found []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		link, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		link, _, _ = strings.Cut(link, ":")
		found = append(found, entry.Name()+" "+link)
	}
	return strings.Join(found, "\n")
}
