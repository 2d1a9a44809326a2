package launcher

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// descriptor is a file descriptor for blocking use. The inherited ones must not be given to os.File, which may change
// their mode for all who share them, and whose writes to a closed standard output end the process.
type descriptor int

// Read implements io.Reader. A terminal whose other side has gone counts as ended.
func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := d.wait(unix.POLLIN); err != nil {
				return 0, err
			}
		case err == unix.EIO || err == nil && n == 0:
			return 0, io.EOF
		case err != nil:
			return 0, err
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer. It writes all, also to a descriptor that somebody has made non-blocking.
func (d descriptor) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := unix.Write(int(d), p[written:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := d.wait(unix.POLLOUT); err != nil {
				return written, err
			}
		case err != nil:
			return written, err
		default:
			written += n
		}
	}
	return written, nil
}

// wait waits for readiness without limit.
func (d descriptor) wait(events int16) error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(d), Events: events}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// isTerminal reports whether a descriptor is a terminal.
func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// isAnonymousPipe reports whether a descriptor is a pipe without a name, one that nobody can open again.
func isAnonymousPipe(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC
}
