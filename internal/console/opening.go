package console

import (
	"strings"
)

// kind says what an open entry is, and so what belongs to it.
type kind uint8

const (
	// kindMessage is a message that a traceback may follow.
	kindMessage kind = iota
	// kindTraceback is a Python traceback that has begun.
	kindTraceback
	// kindGroup is the boxed traceback of an exception group.
	kindGroup
	// kindLine is a line that stands for itself.
	kindLine
	// kindNative is a crash report of C or C++ with details and stack frames.
	kindNative
	// kindFault is Python's fault handler.
	kindFault
	// kindCUDA is a CUDA error, which llama.cpp prints as a block.
	kindCUDA
	// kindRust is a Rust panic.
	kindRust
	// kindMPI is a crash report of Open MPI.
	kindMPI
)

// opening is an entry that a line begins.
type opening struct {
	kind    kind
	message string
	// first is the first line of the traceback, if the opening line belongs there.
	first string
	pid   string
}

const (
	tracebackHeader = "Traceback (most recent call last):"
	groupHeader     = "Exception Group Traceback (most recent call last):"
)

// open decides whether a record or a raw line begins an entry.
func open(r *record) (opening, bool) {
	switch {
	case r.level == levelError:
		return openError(r), true
	case r.level != levelNone || isBlank(r.text):
		return opening{}, false
	}
	o, ok := openUnlevelled(r)
	if r.pid != "" {
		o.pid = r.pid
	}
	return o, ok
}

func openError(r *record) opening {
	o := opening{kind: kindMessage, message: r.text, first: r.exception, pid: r.pid}
	switch {
	case r.exception != "":
		o.kind = kindLine
	case strings.Contains(r.text, tracebackHeader):
		o.kind = kindTraceback
		if strings.HasPrefix(r.text, tracebackHeader) {
			o.message = tracebackHeader
		}
	default:
		if special, ok := openMarker(r.text, signs{}); ok {
			switch special.kind {
			case kindNative, kindFault, kindRust, kindCUDA:
				o.kind = special.kind
			}
		}
	}
	return o
}

// signs are what the colons of a text point to; each wants a closer look.
type signs struct {
	// errorWord: a colon behind what may be "error" or the like.
	errorWord bool
	// runtime: a colon before what may be the name of a GPU runtime.
	runtime bool
	// shell: ": line ".
	shell bool
	// process: "host:pid:thread ".
	process bool
	// glued is where a vLLM record begins, -1 if there is none.
	glued int
}

// maxScan bounds how far into a text signs are looked for, bytes.
const maxScan = 1024

// scanColons looks at each colon of a text once, so that the many lines without signs cost little.
func scanColons(s string) signs {
	found := signs{glued: -1}
	limit := min(len(s), maxScan)
	for c := 0; c < limit; c++ {
		i := strings.IndexByte(s[c:limit], ':')
		if i < 0 {
			break
		}
		c += i
		if c > 0 {
			switch s[c-1] {
			case 'r', 'R', 'l', 'L', 'c', 'C':
				found.errorWord = true
			}
		}
		if c+2 >= limit {
			break
		}
		switch next := s[c+1]; {
		case next == ' ':
			switch s[c+2] {
			case 'C', 'c', 'H', 'R', 'N':
				found.runtime = true
			case 'l':
				found.shell = found.shell || strings.HasPrefix(s[c+2:], "line ")
			}
		case isDigit(next):
			if found.glued < 0 {
				found.glued = vllmBefore(s, c)
			}
			found.process = found.process || isProcess(s[c+1:])
		}
	}
	return found
}

// isProcess recognises "pid:thread ".
func isProcess(s string) bool {
	n := countDigits(s)
	if n+1 >= len(s) || s[n] != ':' {
		return false
	}
	m := countDigits(s[n+1:])
	end := n + 1 + m
	return m > 0 && end < len(s) && s[end] == ' '
}

// openUnlevelled looks for an error in text without a level: a raw line, or a record of a logger that prints none.
func openUnlevelled(r *record) (opening, bool) {
	text := r.text
	if strings.HasSuffix(text, "call last):") {
		switch {
		case strings.HasPrefix(text, tracebackHeader):
			o := opening{kind: kindTraceback, message: tracebackHeader}
			if !r.start {
				o.first = tracebackHeader
			}
			return o, true
		case strings.HasSuffix(text, "+ "+groupHeader) && isBlank(strings.TrimSuffix(text, "+ "+groupHeader)):
			return opening{kind: kindGroup, message: groupHeader, first: text}, true
		case strings.HasSuffix(text, tracebackHeader) && !isIndented(text):
			return opening{kind: kindTraceback, message: text}, true
		}
	}
	if r.start && isEngineFailure(text) {
		return opening{kind: kindMessage, message: text}, true
	}
	if r.signs.errorWord && isErrorLine(text) {
		return opening{kind: kindMessage, message: text}, true
	}
	if isStandaloneException(text) {
		return opening{kind: kindLine, message: text}, true
	}
	return openMarker(text, r.signs)
}
