package console

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Entry is one error of the workload.
type Entry struct {
	// Time is when the launcher read the entry's first line, epoch nanoseconds.
	Time int64
	// Stream is stdout, stderr or exit.
	Stream string
	// PID is the process that the line names, "" if it names none.
	PID string
	// Message has at most MaxMessage characters.
	Message string
	// Exception is the traceback or stack trace, "" if there is none, at most MaxException characters.
	Exception string
}

// Limits of an Entry, characters. A longer traceback keeps its head and its tail.
const (
	MaxMessage   = 1024
	MaxException = 4096
)

// How a long traceback is cut, characters: the last line keeps maxLastLine of its head.
const (
	exceptionHead = 1536
	maxLastLine   = 2048
)

// excerpt collects the lines of a traceback in bounded memory.
type excerpt struct {
	head  []string
	tail  []string
	chars int // of all lines, with a newline between
	kept  int // of the lines in tail
	last  string
	lines int
}

// add appends a line. It keeps copies, so that the reader's buffers can go.
func (x *excerpt) add(line string) {
	if x.lines > 0 {
		x.chars++
	}
	x.lines++
	n := utf8.RuneCountInString(line)
	x.chars += n
	line = strings.Clone(cutRunes(line, MaxException))
	n = min(n, MaxException)
	x.last = line
	if x.chars <= MaxException {
		x.head = append(x.head, line)
		return
	}
	if len(x.tail) == 0 && len(x.head) == 0 {
		x.head = append(x.head, line)
		return
	}
	x.tail = append(x.tail, line)
	x.kept += n + 1
	for len(x.tail) > 1 && x.kept > 2*MaxException {
		x.kept -= utf8.RuneCountInString(x.tail[0]) + 1
		x.tail[0] = ""
		x.tail = x.tail[1:]
	}
}

// text is the traceback, whole or as head and tail of together MaxException characters.
func (x *excerpt) text() string {
	if x.chars <= MaxException {
		return strings.Join(x.head, "\n")
	}
	head := []rune(strings.Join(x.head, "\n"))
	if len(x.tail) == 0 {
		return string(head[:min(len(head), MaxException)])
	}
	end := len(x.tail) - 1
	last := cutRunes(x.tail[end], maxLastLine)
	tail := []rune(strings.Join(append(append([]string(nil), x.tail[:end]...), last), "\n"))
	cut := min(exceptionHead, len(head))
	for cut > 0 && head[cut-1] != '\n' { // end the head with a whole line
		cut--
	}
	mark := omission(x.chars - MaxException)
	room := MaxException - cut - len(mark)
	if room > len(tail) { // the middle of few, very long lines: give the room to the head
		cut = min(len(head), cut+room-len(tail))
		room = min(MaxException-cut-len(mark), len(tail))
	}
	return string(head[:cut]) + mark + string(tail[len(tail)-room:])
}

// omission is the line that stands for the characters that were left out: excess and as many as itself.
func omission(excess int) string {
	line := func(n int) string { return fmt.Sprintf("... %d characters left out ...\n", n) }
	return line(excess + len(line(excess)))
}

// cutRunes returns at most the first n characters of s.
func cutRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// openEntry is an entry that further lines may extend.
type openEntry struct {
	opening
	source  source
	time    int64
	begun   time.Time
	touched time.Time
	trace   excerpt

	// muted entries are tracebacks of warnings: recognised so that their lines are not errors, never published.
	muted bool
	// closed says that the traceback has had its last line; only a chained one can follow.
	closed bool
	// chained says that the sentence that announces another traceback has been seen.
	chained bool
	// adjacent says that the line before was part of the entry.
	adjacent bool
	// framed says that the line before was an indented line of a traceback.
	framed bool
	// detail says that the line before announces one that belongs to the entry.
	detail bool
	// blanks says that blank lines came since the last line of the entry.
	blanks bool
	// foreign counts lines of others since the last line of the entry.
	foreign int
	// extra counts lines behind the last line of a traceback.
	extra int
}

// Bounds of an open entry.
const (
	// maxForeign is how many lines of others may interrupt a traceback.
	maxForeign = 32
	// maxExtra is how many further lines of an exception's text are kept.
	maxExtra = 32
)

// entry is what is published; ok is false when there is nothing to say.
func (e *openEntry) entry() (Entry, bool) {
	message := strings.TrimRight(e.message, " \t")
	exception := e.trace.text()
	if message == "" {
		if exception == "" {
			return Entry{}, false
		}
		message = e.trace.last
	}
	pid := e.pid
	if e.source.worker.pid != "" {
		pid = e.source.worker.pid
	}
	return Entry{
		Time:      e.time,
		Stream:    e.source.stream,
		PID:       pid,
		Message:   strings.ToValidUTF8(cutRunes(message, MaxMessage), "\uFFFD"),
		Exception: strings.ToValidUTF8(exception, "\uFFFD"),
	}, !e.muted
}

// deadline is when e must be published.
func (e *openEntry) deadline() time.Time {
	idle, longest := e.touched.Add(idleAfter), e.begun.Add(openAtMost)
	if longest.Before(idle) {
		return longest
	}
	return idle
}

// append adds a line to the traceback.
func (e *openEntry) append(content string) {
	gap := e.blanks && e.trace.lines > 0
	e.blanks = false
	if e.muted {
		return
	}
	if gap {
		e.trace.add("")
	}
	e.trace.add(content)
}
