package workload

import (
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/redact"
)

// maxCommandLine is the most bytes kept of a command line; what shows it cuts at 2,500 characters.
const maxCommandLine = 16 << 10

// CommandLine is the form in which the arguments of a process may be shown: joined by single blanks, secrets redacted,
// valid UTF-8, at most 16 KiB.
func CommandLine(argv []string) string {
	line := redact.CommandLine(argv)
	if len(line) > maxCommandLine {
		line = line[:maxCommandLine]
	}
	return strings.ToValidUTF8(line, "\uFFFD")
}
