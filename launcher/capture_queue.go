package launcher

import (
	"bytes"
	"sync"
	"time"
)

const (
	// captureRoom is how much of a stream waits for the capture at most, in bytes.
	captureRoom = 4 << 20
	// markSpacing is the precision of the time of a line.
	markSpacing = time.Millisecond
)

// captureQueue holds what a stream has passed and the capture has not yet taken. It never blocks the stream: when it
// is full the oldest bytes go, since what a dying program says last matters most.
type captureQueue struct {
	stream string
	wake   chan<- struct{}

	mu   sync.Mutex
	ring []byte
	// start and end are the positions in the stream of what is held; the byte of position p is at p modulo len(ring).
	start, end uint64
	marks      []mark
	lost       int64
	gap        bool
	closed     bool
}

// mark says when the bytes before a position (and after the mark before) were read.
type mark struct {
	end  uint64
	time int64
}

// put adds bytes that were just read.
func (q *captureQueue) put(data []byte) {
	now := time.Now().UnixNano()
	q.mu.Lock()
	if len(data) > captureRoom {
		// The ring holds the end of it only.
		q.forget(q.end)
		q.lost += int64(bytes.Count(data[:len(data)-captureRoom], newline))
		q.gap = true
		data = data[len(data)-captureRoom:]
	}
	if held := q.end - q.start; held+uint64(len(data)) > uint64(len(q.ring)) {
		if len(q.ring) < captureRoom {
			q.grow(int(held) + len(data))
		}
		if over := int64(held) + int64(len(data)) - int64(len(q.ring)); over > 0 {
			q.forget(q.start + uint64(over))
		}
	}
	at := int(q.end % uint64(len(q.ring)))
	copied := copy(q.ring[at:], data)
	copy(q.ring, data[copied:])
	q.end += uint64(len(data))
	if n := len(q.marks); n > 0 && now-q.marks[n-1].time < int64(markSpacing) {
		q.marks[n-1].end = q.end
	} else {
		q.marks = append(q.marks, mark{end: q.end, time: now})
	}
	q.mu.Unlock()
	q.awaken()
}

var newline = []byte{'\n'}

// grow makes the ring large enough for n bytes, up to captureRoom.
func (q *captureQueue) grow(n int) {
	size := max(64<<10, len(q.ring))
	for size < n && size < captureRoom {
		size *= 2
	}
	bigger := make([]byte, min(size, captureRoom))
	for p := q.start; p < q.end; {
		from := q.ring[p%uint64(len(q.ring)):]
		from = from[:min(uint64(len(from)), q.end-p)]
		at := p % uint64(len(bigger))
		p += uint64(copy(bigger[at:], from))
	}
	q.ring = bigger
}

// forget gives up the bytes before a position and counts the lines that end in them.
func (q *captureQueue) forget(until uint64) {
	until = min(until, q.end)
	for q.start < until {
		at := q.start % uint64(len(q.ring))
		part := q.ring[at:min(uint64(len(q.ring)), at+until-q.start)]
		q.lost += int64(bytes.Count(part, newline))
		q.start += uint64(len(part))
		q.gap = true
	}
	q.dropMarks()
}

func (q *captureQueue) dropMarks() {
	i := 0
	for i < len(q.marks) && q.marks[i].end <= q.start {
		i++
	}
	q.marks = append(q.marks[:0], q.marks[i:]...)
}

// close says that the stream has ended.
func (q *captureQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.awaken()
}

func (q *captureQueue) awaken() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// taken is a piece of a stream.
type taken struct {
	data []byte
	time int64
	// lost lines were given up before it; gap says that bytes were.
	lost int64
	gap  bool
	// ended says that the stream has ended after it.
	ended bool
}

// take moves the oldest bytes that were read at one time into buffer.
func (q *captureQueue) take(buffer []byte) taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := taken{lost: q.lost, gap: q.gap}
	q.lost, q.gap = 0, false
	if q.start < q.end {
		t.time = q.marks[0].time
		at := q.start % uint64(len(q.ring))
		n := copy(buffer, q.ring[at:min(uint64(len(q.ring)), at+q.marks[0].end-q.start)])
		t.data = buffer[:n]
		q.start += uint64(n)
		q.dropMarks()
	}
	t.ended = q.closed && q.start == q.end
	return t
}
