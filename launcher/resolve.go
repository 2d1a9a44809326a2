package launcher

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses of the launcher's own errors, as shells use them.
const (
	exitUsage         = 2
	exitNotExecutable = 126
	exitNotFound      = 127
)

// program is what will be executed.
type program struct {
	path string
	// argv is what the program sees, its name as typed first.
	argv []string
}

// startError says why a command cannot be run, and the exit status for it.
type startError struct {
	text   string
	status int
}

func (e *startError) Error() string { return e.text }

// resolve finds the program of a command as execvp does. A Python script that cannot be executed itself, or that lies
// in the current directory, is run by the interpreter on PATH.
func resolve(command []string, path string) (program, error) {
	name := command[0]
	found, err := lookup(name, path)
	if err == nil {
		return program{path: found, argv: command}, nil
	}
	if strings.HasSuffix(name, ".py") {
		if info, statErr := os.Stat(name); statErr == nil && info.Mode().IsRegular() {
			for _, interpreter := range []string{"python3", "python"} {
				if found, lookupErr := lookup(interpreter, path); lookupErr == nil {
					return program{path: found, argv: append([]string{interpreter}, command...)}, nil
				}
			}
			return program{}, &startError{text: name + ": neither executable nor is there a python3 or python on PATH to run it", status: exitNotExecutable}
		}
	}
	return program{}, startErrorOf(name, err)
}

// lookup finds an executable file. As execvp it goes on when a directory of PATH holds a file of that name that may
// not be executed, and then reports that permission is denied.
func lookup(name, path string) (string, error) {
	if name == "" {
		return "", fs.ErrNotExist
	}
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	result := error(fs.ErrNotExist)
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		switch err := executable(file); {
		case err == nil:
			return file, nil
		case errors.Is(err, fs.ErrPermission):
			result = err
		}
	}
	return "", result
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	return unix.Access(file, unix.X_OK)
}

// startErrorOf turns what the system said about a command into the launcher's message and exit status.
func startErrorOf(name string, err error) *startError {
	if name == "" {
		name = `""`
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &startError{text: name + ": command not found", status: exitNotFound}
	case errors.Is(err, syscall.EISDIR):
		return &startError{text: name + ": is a directory", status: exitNotExecutable}
	case errors.Is(err, fs.ErrPermission):
		return &startError{text: name + ": not executable", status: exitNotExecutable}
	case errors.As(err, &errno):
		return &startError{text: name + ": " + errno.Error(), status: exitNotExecutable}
	}
	return &startError{text: name + ": " + err.Error(), status: exitNotExecutable}
}
