package console

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// OOMCounter tells how many processes of the workload's cgroup the kernel has ended for lack of memory.
type OOMCounter interface {
	// Kills returns the count; ok is false where it cannot be read.
	Kills() (n int64, ok bool)
}

// Real-time signals as libc numbers them.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// signalName names a signal, "" if it has no name.
func signalName(n int) string {
	if n >= sigRTMin && n <= sigRTMax {
		if n == sigRTMin {
			return "SIGRTMIN"
		}
		return fmt.Sprintf("SIGRTMIN+%d", n-sigRTMin)
	}
	if n <= 0 || n > sigRTMax {
		return ""
	}
	return unix.SignalName(syscall.Signal(n))
}

// oomDelta is what the counter says about the run: kills since its begin, or that nothing is known.
type oomDelta struct {
	kills int64
	known bool
}

// statusMessage is the message for a status record, "" for a clean exit.
func statusMessage(r Record, oom oomDelta) string {
	switch {
	case r.Signal != 0:
		message := fmt.Sprintf("Process terminated by signal %d", r.Signal)
		if name := signalName(int(r.Signal)); name != "" {
			message += " (" + name + ")"
		}
		return message + oomHint(oom, r.Signal == int64(unix.SIGKILL))
	case r.ExitCode != 0:
		message := fmt.Sprintf("Process exited with non-zero code %d", r.ExitCode)
		signal := r.ExitCode - 128
		if name := signalName(int(signal)); signal > 0 && signal < sigRTMin && name != "" {
			message += fmt.Sprintf(" (128+%d, %s)", signal, name)
		}
		return message + oomHint(oom, signal == int64(unix.SIGKILL))
	}
	return ""
}

// oomHint says what is known about lack of memory; killed tells that a SIGKILL was seen, which nobody announced.
func oomHint(oom oomDelta, killed bool) string {
	switch {
	case oom.known && oom.kills == 1:
		return ", out of memory: the kernel ended 1 process of its cgroup"
	case oom.known && oom.kills > 1:
		return fmt.Sprintf(", out of memory: the kernel ended %d processes of its cgroup", oom.kills)
	case !oom.known && killed:
		return ", possibly out of memory"
	}
	return ""
}
