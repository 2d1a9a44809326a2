// Package apikey reads the key of an account on the platform. No error holds any of it.
package apikey

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxFile bounds a key file, in bytes.
const maxFile = 64 << 10

// Clean returns a key without the blanks and line ends around it, which secrets often come with. What is left must be one
// line that a request's header can hold.
func Clean(key string) (string, error) {
	key = strings.TrimSpace(key)
	switch {
	case key == "":
		return "", errors.New("there is no key in it")
	case strings.ContainsAny(key, "\r\n"):
		return "", errors.New("there is more than one line in it")
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "", errors.New("there is a control character in the key")
	}
	return key, nil
}

// ReadFile returns the key that a file holds. A pipe is none: it can be read once only, and by the process that has it.
func ReadFile(name string) (string, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxFile:
		return "", fmt.Errorf("%s is too large for a key", name)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return "", err
	}
	key, err := Clean(string(raw))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}
