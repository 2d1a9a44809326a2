package console

import (
	"strings"
	"time"
)

// When a pending entry is published.
const (
	// idleAfter is how long after its last line.
	idleAfter = time.Second
	// openAtMost is how long after its first line, if lines keep coming.
	openAtMost = 1500 * time.Millisecond
)

// maxOpen bounds the entries that are open at a time; beyond it the one that waited longest is published.
const maxOpen = 256

// source is one writer: workers share a stream and interleave.
type source struct {
	stream string
	worker worker
}

// Extractor groups lines into entries. It is not safe for concurrent use.
type Extractor struct {
	emit func(now time.Time, e Entry)
	open map[source]*openEntry
}

// NewExtractor returns an Extractor that hands each finished entry to emit.
func NewExtractor(emit func(now time.Time, e Entry)) *Extractor {
	return &Extractor{emit: emit, open: make(map[source]*openEntry)}
}

// Line takes one line of a stream. ts is when the launcher read it, epoch nanoseconds; now is the caller's clock.
// It keeps no part of its arguments, which may be overwritten afterwards.
func (x *Extractor) Line(now time.Time, ts int64, stream, line string) {
	w, content := splitWorker(cleanLine(line))
	var r record
	blank := isBlank(content)
	if !blank {
		w = recognise(&r, w, content)
	}
	src := source{stream, w}
	var e *openEntry
	if len(x.open) > 0 {
		e = x.open[src]
	}
	if blank {
		if e != nil {
			e.blanks = true
		}
		return
	}
	if e != nil {
		if e.extend(now, &r) {
			return
		}
		if e.muted && r.start {
			delete(x.open, src)
			e = nil
		}
	}
	o, opens := open(&r)
	switch {
	case opens:
		x.begin(now, ts, src, o, e, false)
	case r.level != levelNone && strings.HasSuffix(r.text, tracebackHeader):
		x.begin(now, ts, src, opening{kind: kindTraceback}, e, true)
	case e != nil && !e.interrupted():
		x.finish(now, e)
	}
}

// recognise parses a line behind its worker prefix into r and returns who printed it. A vLLM record is found behind
// other text too.
func recognise(r *record, w worker, content string) worker {
	*r = parseRecord(content)
	if r.level != levelNone {
		return w
	}
	r.signs = scanColons(r.text)
	if r.start || r.signs.glued <= 0 {
		return w
	}
	inner, content := splitGlued(content, r.signs.glued)
	*r = parseRecord(content)
	if inner != (worker{}) {
		return inner
	}
	return w
}

// begin opens an entry in the place of e.
func (x *Extractor) begin(now time.Time, ts int64, s source, o opening, e *openEntry, muted bool) {
	if e != nil {
		x.finish(now, e)
	}
	if len(x.open) >= maxOpen {
		x.finish(now, x.oldest())
	}
	s.worker.name, s.worker.pid = strings.Clone(s.worker.name), strings.Clone(s.worker.pid)
	s.stream = strings.Clone(s.stream)
	first := o.first
	o.message = strings.Clone(cutRunes(o.message, MaxMessage))
	o.pid = strings.Clone(o.pid)
	o.first = ""
	n := &openEntry{opening: o, source: s, time: ts, begun: now, touched: now, muted: muted, adjacent: true}
	switch {
	case o.kind == kindMPI:
		n.first = strings.Clone(first) // the prefix of the report's lines
	case first != "":
		for line := range strings.SplitSeq(strings.TrimRight(first, "\n"), "\n") {
			n.trace.add(line)
		}
	}
	x.open[s] = n
}

// finish publishes e.
func (x *Extractor) finish(now time.Time, e *openEntry) {
	delete(x.open, e.source)
	if entry, ok := e.entry(); ok {
		x.emit(now, entry)
	}
}

// oldest is the open entry that must be published first.
func (x *Extractor) oldest() *openEntry {
	var first *openEntry
	for _, e := range x.open {
		if first == nil || e.deadline().Before(first.deadline()) || e.deadline().Equal(first.deadline()) && e.time < first.time {
			first = e
		}
	}
	return first
}

// Expire publishes the entries that got no line for a second, or that were open long enough.
func (x *Extractor) Expire(now time.Time) {
	for len(x.open) > 0 {
		e := x.oldest()
		if now.Before(e.deadline()) {
			return
		}
		x.finish(now, e)
	}
}

// Deadline is when Expire has something to do next.
func (x *Extractor) Deadline() (time.Time, bool) {
	if len(x.open) == 0 {
		return time.Time{}, false
	}
	return x.oldest().deadline(), true
}

// Flush publishes all open entries.
func (x *Extractor) Flush(now time.Time) {
	for len(x.open) > 0 {
		x.finish(now, x.oldest())
	}
}

// extend takes a line into the entry, or consumes it as part of what the entry reports. It reports whether it did.
func (e *openEntry) extend(now time.Time, r *record) bool {
	if r.level != levelNone && r.level < levelError {
		return false // what is not an error belongs to no error
	}
	if e.muted && r.start {
		return false
	}
	if isBlank(r.text) {
		e.blanks = true
		return true
	}
	if !e.takes(r) {
		return e.kind == kindMessage && e.skipsContinuation(r)
	}
	e.touched, e.adjacent, e.foreign = now, true, 0
	return true
}

// interrupted notes a line of others and reports whether the entry stays open: a traceback may be interrupted by
// other threads of its process, and a chained one follows after hints.
func (e *openEntry) interrupted() bool {
	e.adjacent, e.framed = false, false
	if e.kind != kindTraceback && e.kind != kindGroup || e.closed && !e.chained {
		return false
	}
	e.foreign++
	return e.foreign <= maxForeign
}

// takes decides by the entry's kind.
func (e *openEntry) takes(r *record) bool {
	content := r.text
	if e.takesDetail(r) {
		return true
	}
	switch e.kind {
	case kindMessage:
		return e.takesHeader(content) || e.takesFrame(content)
	case kindTraceback, kindGroup:
		if e.closed {
			return e.takesAfter(r)
		}
		return e.takesTrace(r)
	case kindNative:
		if isIndented(content) || isNativeFrame(content) || isHint(content) {
			e.append(content)
			return true
		}
		return false
	case kindFault:
		if isIndented(content) || strings.HasPrefix(content, "Current thread 0x") || strings.HasPrefix(content, "Thread 0x") ||
			strings.HasPrefix(content, "Python runtime state: ") || strings.HasPrefix(content, "Current thread's C stack trace") {
			e.append(content)
			return true
		}
		return isHint(content)
	case kindCUDA:
		if r.start && r.level != levelError {
			return false
		}
		if isIndented(content) || isCUDAPlace(content) || isNativeFrame(content) {
			e.append(content)
			return true
		}
		return isHint(content) || e.takesHeader(content)
	case kindRust:
		return e.takesPanic(r)
	case kindMPI:
		if rest, ok := strings.CutPrefix(content, e.first); ok {
			e.append(strings.TrimPrefix(rest, " "))
			return true
		}
		return false
	case kindLine:
		return !r.start && isHint(content)
	}
	return false
}

// takesDetail takes further lines of NCCL's text of an error.
func (e *openEntry) takesDetail(r *record) bool {
	announced := e.detail && e.adjacent
	e.detail = false
	if e.kind != kindNative && e.kind != kindLine && !e.closed || !announced && !isErrorDetail(r.text) {
		return false
	}
	e.detail = r.text == lastError
	e.append(r.text)
	return true
}

// isCUDAPlace recognises the last line of llama.cpp's error block: "pool.cu:98: CUDA error".
func isCUDAPlace(content string) bool {
	place, _, ok := strings.Cut(content, ": ")
	return ok && endsInLine(place) && isCUDAError(content)
}

// takesHeader starts a traceback with its header.
func (e *openEntry) takesHeader(content string) bool {
	switch {
	case strings.HasPrefix(content, tracebackHeader):
		e.kind = kindTraceback
	case isGroupHeader(content):
		e.kind = kindGroup
	default:
		return false
	}
	e.append(content)
	e.closed, e.chained, e.framed, e.extra = false, false, false, 0
	return true
}

// takesFrame takes a frame of a C++ stack trace behind a message.
func (e *openEntry) takesFrame(content string) bool {
	if !isNativeFrame(content) {
		return false
	}
	e.append(content)
	return true
}

// skipsContinuation passes over indented lines right behind a message: further lines of it, before its traceback, or
// output of others. They are not kept, since nothing tells the two apart.
func (e *openEntry) skipsContinuation(r *record) bool {
	if r.start || !isIndented(r.text) || !e.adjacent || e.blanks || e.extra >= maxExtra {
		return false
	}
	e.extra++
	return true
}

// takesTrace takes a line of a traceback that has not had its last line.
func (e *openEntry) takesTrace(r *record) bool {
	content := r.text
	if isConnector(content) && e.adjacent {
		e.append(content)
		e.chained, e.framed = true, false
		return true
	}
	if e.takesHeader(content) {
		return true
	}
	if e.chained {
		return false
	}
	if isIndented(content) {
		if r.start && r.level == levelNone {
			return false
		}
		e.append(content)
		e.framed = true
		return true
	}
	if e.kind == kindGroup {
		return false // a box has no last line; what is not indented is behind it
	}
	if r.start && r.level == levelNone {
		return false
	}
	if isExceptionLine(content) || e.framed && isOddExceptionLine(content) {
		e.append(content)
		e.closed, e.framed = true, false
		return true
	}
	return false
}

// takesAfter takes what may follow the last line of a traceback: a sentence that announces a chained one, further
// lines of the exception's text, and hints.
func (e *openEntry) takesAfter(r *record) bool {
	content := r.text
	switch {
	case isConnector(content):
		e.blanks = true // Python's blank line, which some loggers swallow
		e.append(content)
		e.closed, e.chained, e.framed = false, true, false
		return true
	case isHint(content):
		return true
	case isIndented(content) && e.adjacent && !e.blanks && (!r.start || r.level == levelError):
		if e.extra++; e.extra <= maxExtra {
			e.append(content)
		}
		return true
	case e.extra > 0 && e.adjacent && !r.start && isExceptionLine(content): // the cause inside a remote error
		e.append(content)
		e.extra = 0
		return true
	}
	return false
}

// takesPanic takes the message and the backtrace of a Rust panic.
func (e *openEntry) takesPanic(r *record) bool {
	content := r.text
	switch {
	case r.start:
		return false
	case isHint(content):
		return true
	case isIndented(content), content == "stack backtrace:", isNativeFrame(content):
		e.append(content)
		return true
	case e.trace.lines == 0 && e.adjacent && strings.HasSuffix(e.message, ":"):
		e.append(content)
		return true
	}
	return false
}
