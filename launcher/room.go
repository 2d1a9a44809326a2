package launcher

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownDescriptors is how many descriptors the launcher may need at a time, with some to spare.
const ownDescriptors = 40

const (
	// ownTasks is how many threads and processes launcher and sidecar may need, with some to spare.
	ownTasks = 40
	// manyTasks is a limit that needs no look at how much of it is used.
	manyTasks = 4096
)

// room checks that the launcher can have what it needs. With less it would fail in the middle of a run, by an error of
// its language's runtime that cannot be handled, and the workload would end with it.
func room() error {
	if err := roomForDescriptors(); err != nil {
		return err
	}
	return roomForTasks()
}

// roomForDescriptors checks that the launcher can have its descriptors.
func roomForDescriptors() error {
	opened := make([]int, 0, ownDescriptors)
	defer func() {
		for _, fd := range opened {
			_ = unix.Close(fd)
		}
	}()
	for len(opened) < ownDescriptors {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("the launcher needs %d descriptors and gets %d: %w", ownDescriptors, len(opened), err)
		}
		opened = append(opened, fd)
	}
	return nil
}

// roomForTasks checks the limit of threads and processes of this user, which does not bind root.
func roomForTasks() error {
	var limit unix.Rlimit
	if os.Geteuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur >= manyTasks {
		return nil
	}
	if used := tasksOf(uint32(os.Getuid())); used+ownTasks > limit.Cur {
		return fmt.Errorf("launcher and sidecar may need %d threads, and %d of the %d that this user may have are taken", ownTasks, used, limit.Cur)
	}
	return nil
}

// tasksOf counts the threads of a user's processes.
func tasksOf(uid uint32) (n uint64) {
	table, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer table.Close() //nolint:errcheck // only read
	names, _ := table.Readdirnames(-1)
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+name+"/task", &st) == nil && st.Uid == uid {
			n += uint64(max(st.Nlink, 2)) - 2 // a directory each
		}
	}
	return n
}
