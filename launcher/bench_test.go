package launcher

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// BenchmarkTee passes 1 GB through a pipe, under the launcher and, for comparison, through cat.
func BenchmarkTee(b *testing.B) {
	const size = 1_000_000_000
	produce := []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}
	for name, words := range map[string][]string{
		"launcher": append([]string{launcherBinary}, produce...),
		"cat":      {"sh", "-c", "head -c " + strconv.Itoa(size) + " /dev/zero | cat"},
		"direct":   produce,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				cmd := exec.Command(words[0], words[1:]...)
				cmd.Env = environWith("FAKE_RECORD=" + b.TempDir())
				out, err := cmd.StdoutPipe()
				if err != nil {
					b.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				buffer := make([]byte, 1<<20)
				if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, buffer); err != nil || n != size {
					b.Fatal(n, err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStart is the whole time of a program that does nothing.
func BenchmarkStart(b *testing.B) {
	for name, words := range map[string][]string{"launcher": {launcherBinary, "/bin/true"}, "direct": {"/bin/true"}} {
		b.Run(name, func(b *testing.B) {
			environ := environWith("FAKE_RECORD="+b.TempDir(), "PATH="+os.Getenv("PATH"))
			for b.Loop() {
				cmd := exec.Command(words[0], words[1:]...)
				cmd.Env = environ
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
