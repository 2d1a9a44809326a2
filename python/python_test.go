// Package python has the Go test that runs the tests of the Python package.
package python

import (
	"os"
	"os/exec"
	"testing"
)

// TestWatch runs the Python tests with the interpreter on PATH, on the programs that `make build` left in bin/.
func TestWatch(t *testing.T) {
	for _, program := range []string{"graphsignal-run", "graphsignal-collector", "graphsignal-demo"} {
		if _, err := os.Stat("../bin/" + program); err != nil {
			t.Fatalf("%v: run `make build` first", err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "tests").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
