package console

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Names of streams in records and entries.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
	StreamExit   = "exit"
)

// RecordKind tells the records of a segment apart.
type RecordKind uint8

const (
	// KindLine is a line that the workload printed.
	KindLine RecordKind = iota
	// KindDropped says that the launcher could not capture lines.
	KindDropped
	// KindStatus says how the workload ended.
	KindStatus
)

// Record is one record of a console segment (launcher contract, section 10).
type Record struct {
	Kind RecordKind
	// Time is when the launcher read the line or wrote the record, epoch nanoseconds.
	Time int64
	// Stream and Line are those of KindLine; the line has no newline.
	Stream, Line string
	// Dropped is how many lines were lost.
	Dropped int64
	// ExitCode and Signal are those of KindStatus; one of them is not zero unless the workload ended well.
	ExitCode, Signal int64
}

var errRecord = errors.New("not a record of a console segment")

// fields of a record that were present.
type recordFields struct {
	record                             Record
	line, dropped, exitCode, signalled bool
}

// decodeRecord decodes one line of a segment. Strings of the result may share memory with s.
func decodeRecord(s string) (Record, error) {
	if r, ok := decodeLine(s); ok {
		return r, nil
	}
	f, ok := scanRecord(s)
	if !ok {
		var err error
		if f, err = unmarshalRecord(s); err != nil {
			return Record{}, err
		}
	}
	r := f.record
	switch {
	case f.line:
		r.Kind = KindLine
		if r.Stream != StreamStdout && r.Stream != StreamStderr {
			return Record{}, errRecord
		}
	case f.exitCode || f.signalled:
		r.Kind = KindStatus
	case f.dropped:
		r.Kind = KindDropped
	default:
		return Record{}, errRecord
	}
	return r, nil
}

// decodeLine decodes a line record exactly as the launcher lays it out: nearly all.
func decodeLine(s string) (Record, bool) {
	const begin, stream, text, end = `{"ts":`, `,"stream":"`, `","line":"`, `"}`
	if !strings.HasPrefix(s, begin) || !strings.HasSuffix(s, end) {
		return Record{}, false
	}
	ts, rest, ok := scanInt(s[len(begin):])
	if !ok || !strings.HasPrefix(rest, stream) {
		return Record{}, false
	}
	rest = rest[len(stream):]
	if !strings.HasPrefix(rest, StreamStdout) && !strings.HasPrefix(rest, StreamStderr) {
		return Record{}, false
	}
	r := Record{Kind: KindLine, Time: ts, Stream: rest[:len(StreamStdout)]}
	if rest = rest[len(StreamStdout):]; len(rest) < len(text)+len(end) || rest[:len(text)] != text {
		return Record{}, false
	}
	r.Line, ok = unescape(rest[len(text) : len(rest)-len(end)])
	return r, ok
}

// unmarshalRecord decodes by the library: the way for whatever scanRecord does not understand.
func unmarshalRecord(s string) (recordFields, error) {
	var raw struct {
		Time     int64   `json:"ts"`
		Stream   *string `json:"stream"`
		Line     *string `json:"line"`
		Dropped  *int64  `json:"dropped"`
		ExitCode *int64  `json:"exit_code"`
		Signal   *int64  `json:"signal"`
	}
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		return recordFields{}, err
	}
	f := recordFields{record: Record{Time: raw.Time}}
	if raw.Stream != nil {
		f.record.Stream = *raw.Stream
	}
	if raw.Line != nil {
		f.record.Line, f.line = *raw.Line, true
	}
	if raw.Dropped != nil {
		f.record.Dropped, f.dropped = *raw.Dropped, true
	}
	if raw.ExitCode != nil {
		f.record.ExitCode, f.exitCode = *raw.ExitCode, true
	}
	if raw.Signal != nil {
		f.record.Signal, f.signalled = *raw.Signal, true
	}
	return f, nil
}

// scanRecord decodes a flat object of the known keys with plain strings and integers, which is what the launcher
// writes, several times faster than the library. Where ok is false, s may still be a record.
func scanRecord(s string) (f recordFields, ok bool) {
	s = strings.TrimRight(s, " \r")
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' {
		return f, false
	}
	s = skipSpace(s[1:])
	for {
		if s == "" || s[0] != '"' {
			return f, false
		}
		end := strings.IndexByte(s[1:], '"')
		if end < 0 {
			return f, false
		}
		key := s[1 : 1+end]
		s = skipSpace(s[end+2:])
		if s == "" || s[0] != ':' {
			return f, false
		}
		s = skipSpace(s[1:])
		switch key {
		case "ts":
			f.record.Time, s, ok = scanInt(s)
		case "stream":
			f.record.Stream, s, ok = scanString(s)
		case "line":
			f.record.Line, s, ok = scanString(s)
			f.line = true
		case "dropped":
			f.record.Dropped, s, ok = scanInt(s)
			f.dropped = true
		case "exit_code":
			f.record.ExitCode, s, ok = scanInt(s)
			f.exitCode = true
		case "signal":
			f.record.Signal, s, ok = scanInt(s)
			f.signalled = true
		default:
			return f, false
		}
		if !ok {
			return f, false
		}
		s = skipSpace(s)
		switch {
		case s == "}":
			return f, true
		case s != "" && s[0] == ',':
			s = skipSpace(s[1:])
		default:
			return f, false
		}
	}
}

func skipSpace(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	return s
}

// scanInt takes an integer off s; what does not fit is the library's business.
func scanInt(s string) (n int64, rest string, ok bool) {
	i := 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	first := i
	for i < len(s) && isDigit(s[i]) {
		n = n*10 + int64(s[i]-'0')
		i++
	}
	digits := i - first
	if digits == 0 || digits > 19 || digits > 1 && s[first] == '0' || n < 0 {
		return 0, s, false
	}
	if first == 1 {
		n = -n
	}
	return n, s[i:], true
}

// scanString takes a string literal off s.
func scanString(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	s = s[1:]
	for end := 0; ; end++ {
		i := strings.IndexByte(s[end:], '"')
		if i < 0 {
			return "", s, false
		}
		end += i
		backslashes := 0
		for backslashes < end && s[end-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			value, ok = unescape(s[:end])
			return value, s[end+1:], ok
		}
	}
}

// escapes maps the letter of a two-character escape, the quote's apart, to what it stands for.
var escapes = [256]byte{'\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape decodes the inside of a string literal.
func unescape(s string) (string, bool) {
	quotes := strings.Count(s, `"`)
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s, quotes == 0
	}
	var b strings.Builder
	b.Grow(len(s))
	for ; i >= 0; i = strings.IndexByte(s, '\\') {
		b.WriteString(s[:i])
		if i+1 == len(s) {
			return "", false
		}
		c := s[i+1]
		s = s[i+2:]
		switch {
		case c == '"':
			b.WriteByte('"')
			quotes--
		case escapes[c] != 0:
			b.WriteByte(escapes[c])
		case c == 'u':
			r, n := hexRune(s)
			if n == 0 {
				return "", false
			}
			s = s[n:]
			if utf16.IsSurrogate(r) {
				low, n := surrogate(s)
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					s = s[n:]
				}
			}
			b.WriteRune(r)
		default:
			return "", false
		}
	}
	b.WriteString(s)
	return b.String(), quotes == 0 // each quote was escaped
}

// hexRune reads four hexadecimal digits.
func hexRune(s string) (rune, int) {
	if len(s) < 4 {
		return 0, 0
	}
	n, err := strconv.ParseUint(s[:4], 16, 32)
	if err != nil || s[0] == '+' || strings.IndexByte(s[:4], '_') >= 0 {
		return 0, 0
	}
	return rune(n), 4
}

// surrogate reads the escape that may be the second half of a pair.
func surrogate(s string) (rune, int) {
	if !strings.HasPrefix(s, `\u`) {
		return 0, 0
	}
	r, n := hexRune(s[2:])
	if n == 0 {
		return 0, 0
	}
	return r, 2 + n
}
