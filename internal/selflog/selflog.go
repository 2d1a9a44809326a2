// Package selflog keeps the Collector's own warnings and errors for the exporters that show them: a bounded,
// process-wide hub that a zap core feeds.
package selflog

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/graphsignal/graphsignal-collector/internal/store"
	"github.com/graphsignal/graphsignal-collector/internal/version"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

const (
	// maxEntries is how many entries a Hub keeps, the newest.
	maxEntries = 64
	// foldTime is how long repeats of one cause go into one entry.
	foldTime = time.Minute
	// retryMessage is what the Collector's exporters log, at level info, of a request that failed and will be tried again.
	// Without it a wrong address would show after minutes only, when data is lost.
	retryMessage = "Exporting failed. Will retry the request after interval."
	// componentKey is the field by which the Collector's service tells whose logger it is.
	componentKey = "otelcol.component.id"
)

// Entry is one diagnostic, ready to be shown, and how often its cause was logged in its minute.
type Entry struct {
	// Sequence grows by one with every entry of a Hub; repeats do not change it.
	Sequence uint64
	Count    int
	Error    store.Error

	cause cause
}

type cause struct {
	level     zapcore.Level
	message   string
	component string
}

// Hub keeps the newest diagnostics. Its methods may be used from several goroutines.
type Hub struct {
	version atomic.Uint64

	mu       sync.Mutex
	sequence uint64
	entries  []Entry // oldest first
}

// Default is the hub of the process.
var Default = &Hub{}

// Version changes with every diagnostic. It never waits.
func (h *Hub) Version() uint64 { return h.version.Load() }

// Entries appends those with a Sequence above after to dst, oldest first.
func (h *Hub) Entries(dst []Entry, after uint64) []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.entries {
		if e.Sequence > after {
			dst = append(dst, e)
		}
	}
	return dst
}

// add records a diagnostic, or counts it in the entry of its cause.
func (h *Hub) add(entry zapcore.Entry, component, failure string) {
	now := entry.Time.UnixNano()
	c := cause{entry.Level, entry.Message, component}
	h.mu.Lock()
	defer func() {
		h.mu.Unlock()
		h.version.Add(1)
	}()
	for i := len(h.entries) - 1; i >= 0; i-- {
		// After a step of the clock back the age is below zero, for as long as the step is wide.
		if age := now - h.entries[i].Error.Time; h.entries[i].cause == c && age >= 0 && age < int64(foldTime) {
			h.entries[i].Count++
			return
		}
	}
	text := "Graphsignal " + version.Version + ": " + entry.Message
	if failure != "" {
		text += ": " + failure
	}
	h.sequence++
	if len(h.entries) == maxEntries {
		h.entries = slices.Delete(h.entries, 0, 1)
	}
	h.entries = append(h.entries, Entry{Sequence: h.sequence, Count: 1, cause: c, Error: store.Error{
		Level:     levelWord(entry.Level),
		Message:   store.CutMessage(text),
		Exception: failure,
		Tags: []store.ErrorTag{
			{Key: "scope.name", Text: "watcher"},
			{Key: "logger", Text: "graphsignal"},
			{Key: "watcher.pid", Int: int64(os.Getpid()), IsInt: true},
		},
		Time:    now,
		Arrival: time.Now().UnixNano(),
	}})
}

func levelWord(level zapcore.Level) string {
	switch {
	case level >= zapcore.DPanicLevel:
		return "critical"
	case level == zapcore.ErrorLevel:
		return "error"
	}
	return "warning"
}

// Tee returns a core that writes to c and hands records of level warning and above to h, and those of failed exports.
func (h *Hub) Tee(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, &core{hub: h}) }

// core is the zapcore.Core of a Hub.
type core struct {
	hub       *Hub
	component string
	failure   string
	expected  bool // the record tells of the workload's end, which is no failure
}

func (*core) Enabled(level zapcore.Level) bool { return level >= zapcore.InfoLevel }

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	clone := *c
	clone.take(fields)
	return &clone
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Level >= zapcore.WarnLevel || entry.Level == zapcore.InfoLevel && entry.Message == retryMessage {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	clone := *c
	clone.take(fields)
	if !clone.expected {
		c.hub.add(entry, clone.component, clone.failure)
	}
	return nil
}

func (*core) Sync() error { return nil }

// take reads the fields that matter: the component and the failure.
func (c *core) take(fields []zapcore.Field) {
	for _, f := range fields {
		switch {
		case f.Key == componentKey && f.Type == zapcore.StringType:
			c.component = f.String
		case f.Type == zapcore.ErrorType:
			if err, ok := f.Interface.(error); ok && err != nil {
				c.failure = strings.ToValidUTF8(err.Error(), "\uFFFD")
				c.expected = c.expected || errors.Is(err, workload.ErrEnded)
			}
		case f.Key == "error" && f.Type == zapcore.StringType:
			c.failure = f.String
		}
	}
}
