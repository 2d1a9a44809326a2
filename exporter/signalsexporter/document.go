package signalsexporter

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

const (
	// renderInterval is the least time between two renderings, and so how far a reply may be behind.
	renderInterval = 100 * time.Millisecond
	// renderShare is the least time between two renderings as a multiple of what one takes, so that a large
	// document does not take more than about a tenth of a core.
	renderShare = 10
	// interestTime is how long after a request the document is rendered ahead of the next.
	interestTime = 10 * time.Second
)

// document holds what is known and renders it. A reply consists of a head with the time of the reply and of a
// snapshot with all the rest, which is made at most every renderInterval and shared by requests.
type document struct {
	store  *store.Store
	errors *store.Errors
	own    *selflog.Hub
	now    func() time.Time

	prefix   []byte // up to the time of the reply
	constant []byte // from there to the metrics

	interval time.Duration
	share    time.Duration

	current atomic.Pointer[snapshot]
	asked   atomic.Int64 // when a request came last, ns since base
	zipped  atomic.Int64 // when one for the compressed form did
	base    time.Time    // for monotonic time

	renderMu sync.Mutex
	wake     chan struct{}
}

// versions identifies the content of a snapshot.
type versions struct{ store, errors, own uint64 }

// snapshot is the document from the time of the reply on.
type snapshot struct {
	versions versions
	until    time.Duration // since base; no other is made before
	rest     []byte

	zipOnce sync.Once
	zip     []byte
}

func newDocument(tags map[string]string, own *selflog.Hub, now func() time.Time) *document {
	d := &document{
		store:    store.NewWithClock(now),
		errors:   store.NewErrors(now),
		own:      own,
		now:      now,
		interval: renderInterval,
		share:    renderShare,
		base:     time.Now(),
		wake:     make(chan struct{}, 1),
	}
	d.asked.Store(-int64(interestTime))
	d.zipped.Store(-int64(interestTime))

	d.prefix = append(d.prefix, `{"profiler": {"version": `...)
	d.prefix = store.AppendString(d.prefix, version.Version)
	d.prefix = append(d.prefix, `}, "payload_ns": `...)

	var sorted []series.Tag
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		sorted = append(sorted, series.Tag{Key: key, Value: tags[key]})
	}
	d.constant = append(d.constant, `, "start_ns": `...)
	d.constant = strconv.AppendInt(d.constant, now().UnixNano(), 10)
	d.constant = append(d.constant, `, "context": `...)
	d.constant = store.AppendTags(d.constant, sorted)
	d.constant = append(d.constant, `, "metrics": [`...)
	return d
}

func (d *document) versions() versions {
	return versions{d.store.Version(), d.errors.Version(), d.own.Version()}
}

// head is the first part of a reply, with the time of now.
func (d *document) head(dst []byte) []byte {
	return strconv.AppendInt(append(dst, d.prefix...), d.now().UnixNano(), 10)
}

// reply returns a snapshot to answer a request with. It renders one only when none is being made ahead.
func (d *document) reply() *snapshot {
	since := time.Since(d.base)
	d.asked.Store(int64(since))
	s := d.current.Load()
	if s == nil {
		return d.refresh(true)
	}
	if s.versions == d.versions() || since < s.until {
		return s
	}
	return d.refresh(false)
}

// refresh renders a snapshot. Unless wait is set it never waits for an update of the store or for another
// rendering, and returns the former snapshot instead.
func (d *document) refresh(wait bool) *snapshot {
	if wait {
		d.renderMu.Lock()
	} else if !d.renderMu.TryLock() {
		return d.current.Load()
	}
	defer d.renderMu.Unlock()
	former := d.current.Load()
	if former != nil && former.versions == d.versions() {
		return former
	}
	begin := time.Since(d.base)
	s := &snapshot{}
	size := len(d.constant) + 4096
	if former != nil {
		size = len(former.rest) + len(former.rest)/64 + 4096
	}
	fill := func(view store.View) {
		s.versions = versions{view.Version(), d.errors.Version(), d.own.Version()}
		s.rest = append(make([]byte, 0, size), d.constant...)
		s.rest = view.AppendMetrics(s.rest)
		s.rest = append(s.rest, `], "errors": [`...)
		s.rest = store.AppendErrors(s.rest, d.errors.Window(d.ownErrors()))
		s.rest = append(s.rest, `], "resources": [`...)
		s.rest = view.AppendResources(s.rest)
		s.rest = append(s.rest, "]}"...)
	}
	if wait {
		d.store.View(fill)
	} else if !d.store.TryView(fill) {
		return former
	}
	s.until = begin + d.pause(begin)
	d.current.Store(s)
	return s
}

// pause is the least time from begin, when a rendering that now ends began, to the next.
func (d *document) pause(begin time.Duration) time.Duration {
	return max(d.interval, d.share*(time.Since(d.base)-begin))
}

// ownErrors are this process's diagnostics, with a note where one stands for several.
func (d *document) ownErrors() []store.Error {
	entries := d.own.Entries(nil, 0)
	own := make([]store.Error, 0, len(entries))
	for _, e := range entries {
		if e.Count > 1 {
			note := fmt.Sprintf(" (%d times in a minute)", e.Count)
			e.Error.Message = series.Truncate(e.Error.Message, store.MaxMessage-len(note)) + note
		}
		own = append(own, e.Error)
	}
	return own
}

// render returns the whole document as it is now.
func (d *document) render() []byte {
	head := d.head(nil)
	return append(head, d.refresh(true).rest...)
}

// changed wakes the renderer if somebody has asked lately.
func (d *document) changed() {
	if time.Since(d.base)-time.Duration(d.asked.Load()) < interestTime {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// renderAhead makes snapshots ahead of requests until stop is closed.
func (d *document) renderAhead(stop <-chan struct{}) {
	rested := time.NewTimer(0)
	defer rested.Stop()
	for {
		select {
		case <-stop:
			return
		case <-d.wake:
		}
		select {
		case <-stop:
			return
		case <-rested.C:
		}
		begin := time.Since(d.base)
		s := d.refresh(true)
		if time.Since(d.base)-time.Duration(d.zipped.Load()) < interestTime {
			s.compressed()
		}
		rested.Reset(d.pause(begin))
	}
}
