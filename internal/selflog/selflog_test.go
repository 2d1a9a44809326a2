package selflog

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/internal/store"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

var prefix = "Graphsignal " + version.Version + ": "

// fixedClock is a zapcore.Clock that tests move.
type fixedClock struct{ now time.Time }

func (c *fixedClock) Now() time.Time                         { return c.now }
func (c *fixedClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

func newLogger(h *Hub) (*zap.Logger, *fixedClock) {
	clock := &fixedClock{time.Unix(1790000000, 5)}
	return zap.New(h.Tee(zap.NewNop().Core()), zap.WithClock(clock), zap.WithFatalHook(zapcore.WriteThenPanic)), clock
}

func TestEntry(t *testing.T) {
	h := &Hub{}
	logger, _ := newLogger(h)
	logger.Debug("no")
	logger.Info("no")
	assert.Zero(t, h.Version())
	logger.Warn("Cannot read /x", zap.Error(errors.New("permission denied")), zap.Int("n", 1))
	logger.Error("Plain")
	assert.Panics(t, func() { logger.Panic("Broken", zap.String("error", "as text")) })
	tags := []store.ErrorTag{
		{Key: "scope.name", Text: "watcher"}, {Key: "logger", Text: "graphsignal"},
		{Key: "watcher.pid", Int: int64(os.Getpid()), IsInt: true},
	}
	var got []store.Error
	for i, e := range h.Entries(nil, 0) {
		assert.Equal(t, uint64(i+1), e.Sequence)
		assert.Equal(t, 1, e.Count)
		assert.NotZero(t, e.Error.Arrival)
		e.Error.Arrival = 0
		got = append(got, e.Error)
	}
	at := time.Unix(1790000000, 5).UnixNano()
	assert.Equal(t, []store.Error{
		{Level: "warning", Message: prefix + "Cannot read /x: permission denied", Exception: "permission denied", Tags: tags, Time: at},
		{Level: "error", Message: prefix + "Plain", Tags: tags, Time: at},
		{Level: "critical", Message: prefix + "Broken: as text", Exception: "as text", Tags: tags, Time: at},
	}, got)
	assert.Equal(t, uint64(3), h.Version())
}

func TestFolding(t *testing.T) {
	h := &Hub{}
	logger, clock := newLogger(h)
	one := logger.With(zap.String("otelcol.component.id", "cupti"))
	for i := range 5 {
		one.Warn("Bad file", zap.Error(fmt.Errorf("at byte %d", i)))
	}
	logger.With(zap.String("otelcol.component.id", "probe")).Warn("Bad file")
	clock.now = clock.now.Add(59 * time.Second)
	one.Warn("Bad file")
	clock.now = clock.now.Add(time.Second)
	one.Warn("Bad file")
	entries := h.Entries(nil, 0)
	assert.Len(t, entries, 3)
	assert.Equal(t, []int{6, 1, 1}, []int{entries[0].Count, entries[1].Count, entries[2].Count})
	assert.Equal(t, prefix+"Bad file: at byte 0", entries[0].Error.Message)
	assert.Equal(t, uint64(8), h.Version(), "a repeat is a change too")
	assert.Equal(t, entries[2:], h.Entries(nil, 2), "entries after a sequence")
	clock.now = clock.now.Add(-time.Hour)
	one.Warn("Bad file")
	assert.Len(t, h.Entries(nil, 3), 1, "the clock stepped back: it is a new entry")
}

func TestBounds(t *testing.T) {
	h := &Hub{}
	logger, _ := newLogger(h)
	for i := range 100 {
		logger.Warn(fmt.Sprint(i))
	}
	entries := h.Entries(nil, 0)
	assert.Len(t, entries, maxEntries)
	assert.Equal(t, prefix+"99", entries[maxEntries-1].Error.Message)
	assert.Equal(t, uint64(100), entries[maxEntries-1].Sequence)
	logger.Error(strings.Repeat("日", 2000))
	last := h.Entries(nil, 100)[0].Error.Message
	assert.Equal(t, store.MaxMessage, len([]rune(last)))
	assert.True(t, strings.HasSuffix(last, "..."))
}

// TestFailedExport: a request that will be tried again is told of, although the Collector logs it as information.
func TestFailedExport(t *testing.T) {
	h := &Hub{}
	logger, _ := newLogger(h)
	logger.Info("Exporting failed. Will retry the request after interval.", zap.Error(errors.New("connection refused")), zap.String("interval", "5s"))
	logger.Debug("Exporting failed. Will retry the request after interval.")
	entries := h.Entries(nil, 0)
	assert.Len(t, entries, 1)
	assert.Equal(t, "warning", entries[0].Error.Level)
	assert.Equal(t, prefix+"Exporting failed. Will retry the request after interval.: connection refused", entries[0].Error.Message)
}

// TestTee checks that the other core still gets everything, whatever its level.
func TestTee(t *testing.T) {
	observed, records := observer.New(zapcore.ErrorLevel)
	h := &Hub{}
	logger := zap.New(h.Tee(observed))
	logger.Warn("for the hub only")
	logger.Error("for both")
	assert.Equal(t, 1, records.Len())
	assert.Len(t, h.Entries(nil, 0), 2)
	assert.NoError(t, logger.Sync())
}
