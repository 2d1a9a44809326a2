package console

import (
	"strings"
)

// maxLine bounds what is looked at of one line, bytes; it is the launcher's own limit.
const maxLine = 64 << 10

const escape = '\x1b'

// cleanLine removes what a terminal would not show: line ends, everything before the last carriage return (a
// progress bar that was overwritten) and escape sequences.
func cleanLine(line string) string {
	if len(line) > maxLine {
		line = line[:maxLine]
	}
	for line != "" && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	if strings.IndexByte(line, '\r') >= 0 {
		line = line[strings.LastIndexByte(line, '\r')+1:]
	}
	if strings.IndexByte(line, escape) < 0 {
		return line
	}
	var b strings.Builder
	b.Grow(len(line))
	for {
		i := strings.IndexByte(line, escape)
		if i < 0 {
			b.WriteString(line)
			return b.String()
		}
		b.WriteString(line[:i])
		line = line[i+escapeLen(line[i:]):]
	}
}

// escapeLen is the length of the escape sequence (ECMA-48) that s starts with; an unfinished one reaches to the end.
func escapeLen(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[': // CSI: parameters and intermediates, then one final byte
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', '_', '^', 'X': // a string, ended by BEL or ESC \
		for i := 2; i < len(s); i++ {
			if s[i] == '\a' {
				return i + 1
			}
			if s[i] == escape && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
		return len(s)
	}
	for i := 1; i < len(s); i++ { // intermediates, then one final byte
		if s[i] < 0x20 || s[i] > 0x2f {
			return i + 1
		}
	}
	return len(s)
}

// worker is what a line's prefix says about who printed it.
type worker struct {
	name string
	pid  string
}

// Bounds of worker prefixes.
const (
	maxWorkerPrefix   = 120 // bytes
	maxWorkerPrefixes = 3
)

// splitWorker takes worker prefixes off a line: "(name pid=N) " of vLLM and Ray, "(raylet) ", "[rankN]: " of PyTorch
// and torchrun, "[job,rank]<stream>:" of mpirun, "N: " of srun. The last one names the worker.
func splitWorker(line string) (worker, string) {
	var w worker
	for range maxWorkerPrefixes {
		if line == "" {
			break
		}
		next, rest, ok := worker{}, "", false
		switch line[0] {
		case '(':
			if next, rest, ok = pidPrefix(line); !ok {
				next, rest, ok = rayletPrefix(line)
			}
		case '[':
			next, rest, ok = rankPrefix(line)
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			next, rest, ok = taskPrefix(line)
		}
		if !ok {
			break
		}
		if next.pid == "" {
			next.pid = w.pid
		}
		w, line = next, rest
	}
	return w, line
}

// pidPrefix splits "(EngineCore_DP0 pid=41) text" and "(f pid=41, ip=10.0.0.2) text".
func pidPrefix(line string) (w worker, rest string, ok bool) {
	limit := line[:min(len(line), maxWorkerPrefix)]
	end := strings.IndexByte(limit, ')')
	at := strings.Index(limit, "pid=")
	if end < 0 || at < 0 || at > end || at > 1 && limit[at-1] != ' ' {
		return w, line, false
	}
	pid := limit[at+len("pid=") : end]
	digits := countDigits(pid)
	if digits == 0 || digits > 10 || digits < len(pid) && pid[digits] != ',' {
		return w, line, false
	}
	w = worker{name: strings.TrimSpace(limit[1:at]), pid: pid[:digits]}
	return w, strings.TrimPrefix(line[end+1:], " "), true
}

// rayletPrefix splits "(raylet) text" and "(raylet, ip=10.0.0.2) text": Ray's own daemon, whose lines Ray copies to the
// program that asked it for workers.
func rayletPrefix(line string) (w worker, rest string, ok bool) {
	inside, ok := strings.CutPrefix(line[:min(len(line), maxWorkerPrefix)], "(raylet")
	if !ok || inside == "" || inside[0] != ')' && inside[0] != ',' {
		return w, line, false
	}
	end := strings.Index(line, ") ")
	if end < 0 || end > maxWorkerPrefix {
		return w, line, false
	}
	return worker{name: "raylet"}, line[end+2:], true
}

// rankPrefix splits "[rank1]: text", "[default0]:text" and "[1,0]<stderr>: text".
func rankPrefix(line string) (w worker, rest string, ok bool) {
	end := strings.IndexByte(line[:min(len(line), 32)], ']')
	if end < 3 {
		return w, line, false
	}
	name, rest := line[1:end], line[end+1:]
	letters := 0
	for letters < len(name) && name[letters] >= 'a' && name[letters] <= 'z' {
		letters++
	}
	switch {
	case letters > 0 && letters < len(name) && letters+countDigits(name[letters:]) == len(name):
	case letters == 0 && isRankPair(name):
		var tagged bool
		for _, stream := range [...]string{"<stdout>", "<stderr>"} {
			if r, cut := strings.CutPrefix(rest, stream); cut {
				rest, tagged = r, true
			}
		}
		if !tagged {
			return w, line, false
		}
	default:
		return w, line, false
	}
	if rest == "" || rest[0] != ':' {
		return w, line, false
	}
	return worker{name: name}, strings.TrimPrefix(rest[1:], " "), true
}

// maxTaskDigits bounds the number of a task.
const maxTaskDigits = 5

// taskPrefix splits "12: text", which srun --label puts before each line of a task.
func taskPrefix(line string) (w worker, rest string, ok bool) {
	n := countDigits(line[:min(len(line), maxTaskDigits+1)])
	if n > maxTaskDigits || n+2 >= len(line) || line[n] != ':' || line[n+1] != ' ' {
		return w, line, false
	}
	return worker{name: line[:n]}, line[n+2:], true
}

func isRankPair(s string) bool {
	n := countDigits(s)
	return n > 0 && n+1 < len(s) && s[n] == ',' && n+1+countDigits(s[n+1:]) == len(s)
}

// isBlank reports whether s has nothing but white space.
func isBlank(s string) bool {
	for i := range len(s) {
		if s[i] != ' ' && s[i] != '\t' {
			return strings.TrimSpace(s[i:]) == ""
		}
	}
	return true
}

func isIndented(s string) bool { return s != "" && (s[0] == ' ' || s[0] == '\t') }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWord reports whether c can be part of an identifier.
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c >= 0x80
}

// countDigits is the number of ASCII digits that s starts with.
func countDigits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}
