package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// messages writes the launcher's own lines to standard error, one write for each, so that they stay whole between the
// workload's lines.
type messages struct{ debugOn bool }

func (m messages) warn(format string, args ...any) {
	writeLine("graphsignal-run: " + fmt.Sprintf(format, args...))
}

func (m messages) debug(format string, args ...any) {
	if m.debugOn {
		writeLine(time.Now().Format("2006-01-02 15:04:05.000") + " DEBUG graphsignal-run: " + fmt.Sprintf(format, args...))
	}
}

// writeLine goes around os.Stderr, whose writes end the process when the other side is closed.
func writeLine(text string) {
	data := []byte(strings.ReplaceAll(text, "\n", " ") + "\n")
	for len(data) > 0 {
		n, err := syscall.Write(2, data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		data = data[n:]
	}
}
