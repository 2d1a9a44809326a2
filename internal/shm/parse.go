package shm

import (
	"bytes"
	"slices"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Parser parses documents. It reuses its memory, so one Document at a time is valid. The zero value is ready.
type Parser struct {
	scanner
	doc Document

	// Memory of the entries' values; entries hold parts of it.
	tags   []series.Tag
	bins   []series.Bin
	frames []series.Frame

	edges, counts []uint64       // of the entry being read
	positions     map[string]int // of frame names, to find repeated ones
	values        []uint64       // of frames, to find the largest
}

// History is what the last document of one file looked like. Entries come in one order for a writer's life, so
// the text that identifies an entry is compared with the one at the same place last time, and not parsed when it
// is the same. The zero value is ready; it belongs to one file.
type History struct {
	entries []identity
}

// identity is what one entry looked like.
type identity struct {
	// raw is the entry's text from its brace to before the first member that is not name, type or tags; empty
	// when that text does not hold a usable identity.
	raw  string
	name string
	typ  series.Type
	tags []series.Tag
	// frames are the keys of its profile; "" for a name that is not its own JSON text.
	frames   []string
	distinct bool // no two frames were of one name
}

// Parse reads a document. History is that of the same file, and is brought up to date. An error is always a
// *FileError and means that nothing of the file may be used.
func (p *Parser) Parse(data []byte, last *History) (*Document, error) {
	p.data, p.pos, p.err = data, 0, nil
	p.doc = Document{Context: p.doc.Context[:0], Entries: p.doc.Entries[:0], Log: p.doc.Log[:0]}
	p.tags, p.bins, p.frames = p.tags[:0], p.bins[:0], p.frames[:0]
	ok := p.document(last)
	p.data = nil
	if !ok {
		return nil, p.err
	}
	return &p.doc, nil
}

func (p *Parser) document(last *History) bool {
	if bytes.HasPrefix(p.data, []byte("\ufeff")) {
		return p.fail("byte-order mark") // as in the reference: no writer of this format makes one
	}
	if p.peek() != '{' {
		if !p.skip() {
			return false
		}
		return p.reject(CauseVersion, "not an object")
	}
	p.pos++
	version, metrics := false, true
	for first := true; ; first = false {
		key, more, ok := p.member(first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		switch string(key) {
		case "version":
			version, ok = p.version()
		case "start_ts":
			p.doc.Start, ok = p.time()
		case "write_ts":
			p.doc.Write, ok = p.time()
		case "context":
			ok = p.context()
		case "metrics":
			metrics, ok = p.metrics(last)
		case "log":
			ok = p.log()
		default:
			ok = p.skip()
		}
		if !ok {
			return false
		}
	}
	if p.peek(); p.pos != len(p.data) {
		return p.fail("text behind the document")
	}
	if !version {
		return p.reject(CauseVersion, "")
	}
	if !metrics {
		return p.reject(CauseMetrics, "")
	}
	return true
}

func (p *Parser) reject(cause Cause, detail string) bool {
	p.err = &FileError{cause, detail}
	return false
}

// version reads the schema version: 1, 1.0 or, as in the reference, true.
func (p *Parser) version() (one, ok bool) {
	if p.peek() == 't' && p.word("true") {
		return true, true
	}
	v, kind, ok := p.numeric()
	return kind == number && v.Float64() == 1, ok
}

// time reads epoch nanoseconds; anything but a positive number is 0.
func (p *Parser) time() (int64, bool) {
	v, kind, ok := p.numeric()
	if kind != number {
		return 0, ok
	}
	return max(v.Int64(), 0), ok
}

func (p *Parser) context() bool {
	p.doc.Context = p.doc.Context[:0]
	if p.peek() != '{' {
		return p.skip()
	}
	p.pos++
	var values [16]string // by index in contextTags
	for first := true; ; first = false {
		key, more, ok := p.member(first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		i := slices.IndexFunc(contextTags, func(t struct{ key, tag string }) bool { return t.key == string(key) })
		if i < 0 {
			if !p.skip() {
				return false
			}
			continue
		}
		if values[i], _, ok = p.tagValue(); !ok {
			return false
		}
	}
	for i, t := range contextTags {
		if values[i] != "" {
			p.doc.Context = append(p.doc.Context, series.Tag{Key: t.tag, Value: values[i]})
		}
	}
	return true
}

// tagState says what a tag's value was.
type tagState uint8

const (
	tagGiven tagState = iota
	tagNull
	tagWrong
)

// tagValue reads a tag's value: a string, or a number as its JSON text, or a boolean as the reference spells it.
func (p *Parser) tagValue() (value string, state tagState, ok bool) {
	switch c := p.peek(); c {
	case '"':
		value, _, ok = p.str()
		return value, tagGiven, ok
	case '{', '[':
		return "", tagWrong, p.skip()
	}
	start := p.pos
	if !p.skip() {
		return "", tagWrong, false
	}
	switch text := p.data[start:p.pos]; string(text) {
	case "null":
		return "", tagNull, true
	case "true":
		return "True", tagGiven, true
	case "false":
		return "False", tagGiven, true
	default:
		return p.names.get(text), tagGiven, true
	}
}

// metrics reads the entries. It reports false for anything but an array.
func (p *Parser) metrics(last *History) (array, ok bool) {
	p.doc.Entries, p.doc.Skipped = p.doc.Entries[:0], [NumSkips]int{}
	p.tags, p.bins, p.frames = p.tags[:0], p.bins[:0], p.frames[:0]
	if p.peek() != '[' {
		return false, p.skip()
	}
	p.pos++
	n := 0
	for first := true; ; first = false {
		more, ok := p.element(first)
		if !ok {
			return false, false
		}
		if !more {
			break
		}
		switch {
		case p.peek() != '{':
			p.doc.Skipped[SkipShape]++
			ok = p.skip()
		case n == MaxEntries:
			p.doc.Skipped[SkipLimit]++
			ok = p.skip()
		default:
			if n == len(last.entries) {
				last.entries = append(last.entries, identity{})
			}
			ok = p.entry(&last.entries[n])
			n++
		}
		if !ok {
			return false, false
		}
	}
	clear(last.entries[n:])
	last.entries = last.entries[:n]
	return true, true
}

func (p *Parser) log() bool {
	p.doc.Log = p.doc.Log[:0]
	if p.peek() != '[' {
		return p.skip()
	}
	p.pos++
	for first := true; ; first = false {
		more, ok := p.element(first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		if p.peek() != '{' {
			ok = p.skip()
		} else {
			ok = p.logEntry()
		}
		if !ok {
			return false
		}
		if len(p.doc.Log) == 2*MaxLogEntries {
			p.doc.Log = append(p.doc.Log[:0], p.doc.Log[MaxLogEntries:]...)
		}
	}
	if extra := len(p.doc.Log) - MaxLogEntries; extra > 0 {
		p.doc.Log = append(p.doc.Log[:0], p.doc.Log[extra:]...)
	}
	return true
}

func (p *Parser) logEntry() bool {
	p.pos++
	var e LogEntry
	for first := true; ; first = false {
		key, more, ok := p.member(first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		switch string(key) {
		case "ts":
			e.Time, ok = p.time()
		case "level":
			e.Level, ok = p.optionalText()
		case "msg":
			e.Message, ok = p.optionalText()
		default:
			ok = p.skip()
		}
		if !ok {
			return false
		}
	}
	p.doc.Log = append(p.doc.Log, e)
	return true
}

// optionalText reads a string; any other value is "".
func (p *Parser) optionalText() (string, bool) {
	if p.peek() != '"' {
		return "", p.skip()
	}
	s, _, ok := p.str()
	return s, ok
}
