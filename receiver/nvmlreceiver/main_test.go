package nvmlreceiver

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/graphsignal/graphsignal-collector/internal/fakenvml"
)

// libraryPath is the stand-in for libnvidia-ml.so.1. A process can be bound to one such library only.
var libraryPath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "nvmlreceiver")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if os.Getenv(realDriver) != "" {
			return m.Run() // only the test of the real one works
		}
		if libraryPath, err = fakenvml.Build(dir, false); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		// A call that hung on purpose may still be under way.
		for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
			err := goleak.Find()
			if code != 0 || err == nil {
				return code
			}
			if time.Now().After(end) {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}())
}
