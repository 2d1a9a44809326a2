package signalsexporter

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links one after the other are followed.
const maxLinks = 40

// checkOutput reports what would keep the final document from being written.
func checkOutput(path string) error {
	path, err := resolveOutput(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

// outputWarning says to the user that the final document cannot be written to path: the same for one cause, whatever file
// the system names with it.
func outputWarning(path string, err error) string {
	var cause unix.Errno
	if errors.As(err, &cause) {
		err = cause
	}
	return fmt.Sprintf("the final document cannot be written to %s: %v", path, err)
}

// resolveOutput follows symbolic links, so that replacing the file keeps them, and refuses what is there and is no
// regular file. Directories on the way are left to the kernel.
func resolveOutput(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode().IsRegular() {
			return path, nil
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return "", fmt.Errorf("%s is not a regular file", path)
		}
		if err := checkLink(path); err != nil {
			return "", err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			// Not filepath.Join, which would take ".." off a directory that is itself a link.
			target = filepath.Dir(path) + "/" + target
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// checkLink refuses a link that another user left in a directory like /tmp: it could lead to any file of ours. It is the
// kernel's rule of fs.protected_symlinks, which counts only where the kernel itself follows.
func checkLink(path string) error {
	var link, dir unix.Stat_t
	if err := unix.Lstat(path, &link); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if err := unix.Stat(filepath.Dir(path), &dir); err != nil {
		return &fs.PathError{Op: "stat", Path: filepath.Dir(path), Err: err}
	}
	const open = unix.S_ISVTX | unix.S_IWOTH
	if dir.Mode&open == open && link.Uid != uint32(os.Geteuid()) && link.Uid != dir.Uid {
		return fmt.Errorf("%s is a link of user %d", path, link.Uid)
	}
	return nil
}

// writeOutput replaces the file at path as a whole: a reader sees the former content or all of data. A file that was
// there keeps its mode, a new one gets what the umask leaves.
func writeOutput(path string, data []byte) (err error) {
	path, err = resolveOutput(path)
	if err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if former, statErr := os.Stat(path); statErr == nil {
		err = file.Chmod(former.Mode().Perm())
	}
	if err == nil {
		_, err = file.Write(data)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
