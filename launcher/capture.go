package launcher

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// maxLine is the longest line that is captured whole, in bytes; a longer one is cut.
	maxLine = 64 << 10
	// captureChunk is how much is taken from a stream at a time, in bytes.
	captureChunk = 64 << 10
	// captureInterval is how long output gathers before it is captured.
	captureInterval = 50 * time.Millisecond
	// rotationInterval is the least time between two segments. The sidecar reads 20 times a second and there are two
	// segments, so that it sees all that is written at this pace.
	rotationInterval = 25 * time.Millisecond
)

// capture cuts copies of the streams into lines and writes them to segments, in its own time: it never delays a stream.
type capture struct {
	segments *segments
	queues   []*captureQueue
	wake     chan struct{}
	done     chan struct{}
	// hurry is closed at the end of the run, when no pace is kept any more.
	hurry chan struct{}
}

func newCapture(s *segments) *capture {
	return &capture{segments: s, wake: make(chan struct{}, 1), done: make(chan struct{}), hurry: make(chan struct{})}
}

// add returns the queue for a stream; all are added before run.
func (c *capture) add(stream string) *captureQueue {
	q := &captureQueue{stream: stream, wake: c.wake}
	c.queues = append(c.queues, q)
	return q
}

// run works until all streams have ended.
func (c *capture) run() {
	defer close(c.done)
	cutters := make([]lineCutter, len(c.queues))
	for i := range cutters {
		cutters[i].stream = c.queues[i].stream
	}
	buffer := make([]byte, captureChunk)
	var records []byte
	open := len(c.queues)
	ended := make([]bool, len(c.queues))
	for open > 0 {
		busy := false
		for i, q := range c.queues {
			if ended[i] {
				continue
			}
			t := q.take(buffer)
			c.segments.dropped += t.lost
			if t.gap {
				cutters[i].reset()
			}
			records = records[:0]
			lines := 0
			if len(t.data) > 0 {
				busy = true
				records, lines = cutters[i].cut(records, t.data, t.time)
			}
			if t.ended {
				var last int
				records, last = cutters[i].flush(records)
				lines += last
				ended[i] = true
				open--
			}
			if len(records) > 0 {
				c.segments.write(records, lines, c.pace)
			}
		}
		if !busy && open > 0 {
			<-c.wake
			c.rest(captureInterval)
		}
	}
}

// pace is called before a new segment replaces the one that began at a time.
func (c *capture) pace(began time.Time) {
	c.rest(rotationInterval - time.Since(began))
}

// rest waits, unless the run is at its end.
func (c *capture) rest(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.hurry:
	}
}

// finish waits for the last lines, at most the given time, and writes how the workload ended.
func (c *capture) finish(limit time.Duration, record []byte) bool {
	close(c.hurry)
	for _, q := range c.queues {
		q.close()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		return false
	}
	if len(record) > 0 {
		c.segments.write(record, 1, nil)
	}
	c.segments.close()
	return true
}

// lineCutter makes records of a stream's bytes, one for each line.
type lineCutter struct {
	stream string
	// part is the line that has no end yet, read from time on.
	part []byte
	time int64
	// afterReturn says that the last line ended with a carriage return.
	afterReturn bool
	// head is the beginning of a record of headTime: lines that were read together share it.
	head     []byte
	headTime int64
}

// cut appends the records of the lines that end in data, which was read at a time (epoch ns).
func (l *lineCutter) cut(records, data []byte, now int64) ([]byte, int) {
	lines := 0
	emit := func(line []byte) {
		records = l.appendLine(records, line)
		l.part = l.part[:0]
		lines++
	}
	for len(data) > 0 {
		if len(l.part) == 0 {
			l.time = now
		}
		end := lineEnd(data[:min(len(data), maxLine-len(l.part))])
		if end < 0 {
			n := min(len(data), maxLine-len(l.part))
			l.part = append(l.part, data[:n]...)
			data = data[n:]
			l.afterReturn = false
			if len(l.part) == maxLine {
				emit(l.part)
			}
			continue
		}
		line, by := data[:end], data[end]
		if len(l.part) > 0 {
			l.part = append(l.part, line...)
			line = l.part
		}
		data = data[end+1:]
		switch {
		case by == '\r' && len(line) == 0:
			// The start of a progress bar's next state, or an empty line with both ends.
		case by == '\n' && l.afterReturn && len(line) == 0:
			// The line ended already.
			l.afterReturn = false
		default:
			emit(line)
			l.afterReturn = by == '\r'
		}
	}
	return records, lines
}

// lineEnd returns the index of the first newline or carriage return, or -1.
func lineEnd(data []byte) int {
	end := bytes.IndexByte(data, '\n')
	if end >= 0 {
		data = data[:end]
	}
	if early := bytes.IndexByte(data, '\r'); early >= 0 {
		return early
	}
	return end
}

// flush appends the record of a line that got no end.
func (l *lineCutter) flush(records []byte) ([]byte, int) {
	if len(l.part) == 0 {
		return records, 0
	}
	records = l.appendLine(records, l.part)
	l.reset()
	return records, 1
}

// reset forgets an unfinished line.
func (l *lineCutter) reset() {
	l.part = l.part[:0]
	l.afterReturn = false
}

// appendLine appends the record of a line.
func (l *lineCutter) appendLine(records, line []byte) []byte {
	if l.headTime != l.time || len(l.head) == 0 {
		l.head = append(l.head[:0], `{"ts":`...)
		l.head = strconv.AppendInt(l.head, l.time, 10)
		l.head = append(l.head, `,"stream":"`...)
		l.head = append(l.head, l.stream...)
		l.head = append(l.head, `","line":"`...)
		l.headTime = l.time
	}
	records = append(records, l.head...)
	records = appendJSONText(records, line)
	return append(records, "\"}\n"...)
}

// statusRecord says how the workload ended; there is none for success.
func statusRecord(now int64, signalled bool, number int) []byte {
	key := "exit_code"
	if signalled {
		key = "signal"
	} else if number == 0 {
		return nil
	}
	return []byte(`{"ts":` + strconv.FormatInt(now, 10) + `,"` + key + `":` + strconv.Itoa(number) + "}\n")
}

// isPlainWord reports whether none of eight bytes needs care. A byte that does may spoil the verdict on the next ones
// by its borrow, but it decides already.
func isPlainWord(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, backslash := w^ones*'"', w^ones*'\\'
	low := w - ones*0x20
	return (w|low|(quote-ones)|(backslash-ones))&highs == 0
}

// needsCare marks the bytes that cannot simply be copied into a JSON string.
var needsCare = func() (table [256]bool) {
	for b := range table {
		table[b] = b < 0x20 || b >= utf8.RuneSelf || b == '"' || b == '\\'
	}
	return table
}()

const hexDigits = "0123456789abcdef"

// appendJSONText appends the inside of a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendJSONText(out, text []byte) []byte {
	plain := 0 // the start of what needs no change
	for i := 0; i < len(text); {
		for len(text)-i >= 8 && isPlainWord(binary.LittleEndian.Uint64(text[i:])) {
			i += 8
		}
		if i == len(text) {
			break
		}
		b := text[i]
		if !needsCare[b] {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			out = append(append(out, text[plain:i]...), "\uFFFD"...)
			i++
			plain = i
			continue
		}
		out = append(out, text[plain:i]...)
		switch b {
		case '"', '\\':
			out = append(out, '\\', b)
		case '\t':
			out = append(out, `\t`...)
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		plain = i
	}
	return append(out, text[plain:]...)
}
