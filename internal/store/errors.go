package store

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Limits of an error entry and of the window that the document shows.
const (
	MaxMessage   = 1024
	MaxException = 4096

	ringSize      = 200
	windowSize    = 10
	ownShare      = 5 // slots that this product's own diagnostics keep at most while the workload has others to fill
	maxErrorTags  = 64
	maxErrorValue = 1024
)

// ErrorTag is one tag of an Error: a string, or an integer where IsInt is set.
type ErrorTag struct {
	Key   string
	Text  string
	Int   int64
	IsInt bool
}

// String returns the value as text.
func (t ErrorTag) String() string {
	if t.IsInt {
		return strconv.FormatInt(t.Int, 10)
	}
	return t.Text
}

// Error is one entry of the document's "errors".
type Error struct {
	// Level is debug, info, warning, error or critical, in any case; another word ranks as info.
	Level     string
	Message   string
	Exception string
	Tags      []ErrorTag
	// Time is when it happened, epoch nanoseconds; 0 means now.
	Time int64
	// Arrival orders entries; Errors.Add sets it.
	Arrival int64
}

// Errors keeps the newest entries of level warning and above.
type Errors struct {
	now     func() time.Time
	version atomic.Uint64

	mu   sync.Mutex
	ring [ringSize]Error
	next int
	full bool
}

// NewErrors returns an empty ring with its source of the current time.
func NewErrors(now func() time.Time) *Errors { return &Errors{now: now} }

// Version changes with every entry that is kept. It never waits.
func (r *Errors) Version() uint64 { return r.version.Load() }

// Shown reports whether a level, in lower case, reaches the document.
func Shown(level string) bool { return level == "warning" || level == "error" || level == "critical" }

// Add keeps e if its level is at least warning: nothing below is ever shown, and would only push others out.
// Texts over their limits are cut, a message at its end and an exception in the middle; tags are cut to bounds
// that no real entry reaches.
func (r *Errors) Add(e Error) {
	e.Level = strings.ToLower(e.Level)
	if !Shown(e.Level) {
		return
	}
	e.Message = CutMessage(e.Message)
	e.Exception = CutException(e.Exception)
	if len(e.Tags) > maxErrorTags {
		e.Tags = e.Tags[:maxErrorTags]
	}
	tags := make([]ErrorTag, 0, len(e.Tags))
	for _, t := range e.Tags {
		t.Key, t.Text = series.Truncate(t.Key, maxErrorValue), series.Truncate(t.Text, maxErrorValue)
		tags = append(tags, t)
	}
	e.Tags = tags
	e.Arrival = r.now().UnixNano()
	if e.Time == 0 {
		e.Time = e.Arrival
	}
	r.mu.Lock()
	r.ring[r.next] = e
	r.next++
	if r.next == ringSize {
		r.next, r.full = 0, true
	}
	r.mu.Unlock()
	r.version.Add(1)
}

// CutMessage cuts a message to MaxMessage characters, with three dots where something is left out.
func CutMessage(s string) string {
	cut := series.Truncate(s, MaxMessage)
	if len(cut) == len(s) {
		return s
	}
	return series.Truncate(s, MaxMessage-3) + "..."
}

// CutException cuts a stack trace to MaxException characters and keeps its head and, since the cause often
// stands last, its tail.
func CutException(s string) string {
	if len(series.Truncate(s, MaxException)) == len(s) {
		return s
	}
	const mark = "\n...\n"
	chars := []rune(s)
	head := (MaxException - len(mark)) / 2
	tail := MaxException - len(mark) - head
	return string(chars[:head]) + mark + string(chars[len(chars)-tail:])
}

// Window returns the entries to show, oldest first: the newest ten of those kept and of own, this product's own
// diagnostics (sorted by Arrival). While the workload has entries enough, own ones take five places at most.
func (r *Errors) Window(own []Error) []Error {
	r.mu.Lock()
	kept := make([]Error, 0, windowSize)
	for i := 1; i <= windowSize; i++ {
		at := r.next - i
		if at < 0 {
			if !r.full {
				break
			}
			at += ringSize
		}
		kept = append(kept, r.ring[at])
	}
	r.mu.Unlock()
	slices.Reverse(kept)

	own = own[max(0, len(own)-max(ownShare, windowSize-len(kept))):]
	merged := make([]Error, 0, len(kept)+len(own))
	for len(kept) > 0 || len(own) > 0 {
		if len(own) == 0 || len(kept) > 0 && kept[0].Arrival <= own[0].Arrival {
			merged, kept = append(merged, kept[0]), kept[1:]
			continue
		}
		merged, own = append(merged, own[0]), own[1:]
	}
	return merged[max(0, len(merged)-windowSize):]
}

// AppendErrors appends the elements of the document's "errors", without the brackets.
func AppendErrors(dst []byte, entries []Error) []byte {
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, `{"level": `...)
		dst = AppendString(dst, e.Level)
		dst = append(dst, `, "message": `...)
		dst = AppendString(dst, e.Message)
		dst = append(dst, `, "exception": `...)
		if e.Exception == "" {
			dst = append(dst, "null"...)
		} else {
			dst = AppendString(dst, e.Exception)
		}
		dst = append(dst, `, "tags": {`...)
		for j, t := range e.Tags {
			if j > 0 {
				dst = append(dst, ", "...)
			}
			dst = AppendString(dst, t.Key)
			dst = append(dst, ": "...)
			if t.IsInt {
				dst = strconv.AppendInt(dst, t.Int, 10)
			} else {
				dst = AppendString(dst, t.Text)
			}
		}
		dst = append(dst, `}, "log_ns": `...)
		dst = strconv.AppendInt(dst, e.Time, 10)
		dst = append(dst, '}')
	}
	return dst
}
