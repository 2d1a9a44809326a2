package store

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

const epoch = int64(1_790_000_000_000_000_000)

// fixture is a Store with a clock that tests move.
type fixture struct {
	*Store
	ns int64
}

func newFixture() *fixture {
	f := &fixture{ns: epoch}
	f.Store = NewWithClock(func() time.Time { return time.Unix(0, f.ns) })
	return f
}

func (f *fixture) metrics() (text string) {
	f.View(func(v View) { text = string(v.AppendMetrics(nil)) })
	return text
}

func (f *fixture) resources() (text string) {
	f.View(func(v View) { text = string(v.AppendResources(nil)) })
	return text
}

func (f *fixture) names() (names []string) {
	f.View(func(v View) {
		for s := range v.Series() {
			names = append(names, s.Name)
		}
	})
	return names
}

func tag(pairs ...string) []series.Tag {
	var tags []series.Tag
	for i := 0; i < len(pairs); i += 2 {
		tags = append(tags, series.Tag{Key: pairs[i], Value: pairs[i+1]})
	}
	return tags
}

func (f *fixture) gauge(name string, ts int64, tags ...string) Outcome {
	return f.Update(func(b *Batch) { b.Gauge(name, tag(tags...), series.Int(1), 0, ts) })
}

func TestExpiryRunsInsideASetOncePerMinute(t *testing.T) {
	f := newFixture()
	f.gauge("stale_first", epoch-int64(Lifetime)-1)
	assert.Empty(t, f.names(), "the first set of a store's life always cleans, also what it wrote itself")

	f.gauge("old", epoch)
	f.gauge("untimed", 0)
	f.gauge("stale", epoch-int64(Lifetime)-1)
	assert.Equal(t, []string{"old", "stale", "untimed"}, f.names(), "no second cleanup within a minute")
	assert.Contains(t, f.metrics(), `"name": "untimed", "type": "gauge", "tags": {}, "stats": {"value": 1}, "updated_ns": null}`)

	f.ns += int64(59 * time.Second)
	f.gauge("new", f.ns)
	assert.Len(t, f.names(), 4)
	f.ns += int64(time.Second)
	f.gauge("new", f.ns)
	assert.Equal(t, []string{"new", "old"}, f.names())

	f.ns = epoch + int64(Lifetime)
	f.gauge("new", f.ns)
	assert.Equal(t, []string{"new", "old"}, f.names(), "exactly at its lifetime a series stays")
	f.ns += int64(20 * time.Minute)
	assert.Len(t, f.names(), 2, "reading removes nothing")
	f.gauge("new", f.ns)
	assert.Equal(t, []string{"new"}, f.names())
}

func TestMeasurementFromTheFutureExpiresByArrival(t *testing.T) {
	f := newFixture()
	f.gauge("future", math.MaxInt64)
	f.ns += int64(Lifetime) + int64(time.Minute)
	f.gauge("now", f.ns)
	assert.Equal(t, []string{"now"}, f.names())
}

// TestClockSteps: a step of the wall clock, forward or back, removes nothing that is alive and keeps nothing that has ended.
func TestClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		f := newFixture()
		var passed time.Duration
		f.elapsed = func(time.Time, time.Time) time.Duration { return passed }
		second := func(names ...string) {
			passed += time.Second
			f.ns += int64(time.Second)
			for _, name := range names {
				f.gauge(name, f.ns)
				f.Update(func(b *Batch) { b.Resource("process", tag("process.pid", name), nil, 1, f.ns) })
			}
		}
		for range 30 {
			second("ended", "alive", "idle")
		}
		f.ns += int64(step)
		for range 120 {
			second("alive")
		}
		assert.Equal(t, []string{"alive", "ended", "idle"}, f.names(), "%v", step)
		for passed < Lifetime+3*time.Minute {
			second("alive")
		}
		assert.Equal(t, []string{"alive"}, f.names(), "%v", step)
		assert.NotContains(t, f.resources(), "ended", "%v", step)
		assert.Contains(t, f.resources(), "alive", "%v", step)
	}
}

func TestSeriesComeBackWithAnotherID(t *testing.T) {
	f := newFixture()
	id := func() (id uint64) {
		f.View(func(v View) {
			for s := range v.Series() {
				if s.Name == "a" {
					id = s.ID
				}
			}
		})
		return id
	}
	f.gauge("a", epoch)
	first := id()
	f.gauge("a", epoch+1)
	assert.Equal(t, first, id())
	f.ns += int64(Lifetime) + int64(time.Minute)
	f.gauge("b", f.ns)
	f.gauge("a", f.ns)
	assert.NotZero(t, first)
	assert.NotEqual(t, first, id())
}

func TestSeriesCap(t *testing.T) {
	f := newFixture()
	var outcome Outcome
	f.Update(func(b *Batch) {
		for i := range MaxSeries {
			b.Gauge("g", tag("i", fmt.Sprint(i)), series.Int(0), 0, epoch)
		}
	})
	outcome = f.Update(func(b *Batch) {
		b.Gauge("g", tag("i", "0"), series.Int(7), 0, epoch)
		b.Gauge("g", tag("i", "new"), series.Int(7), 0, epoch)
		b.Profile("p", nil, nil, 0, epoch)
	})
	assert.Equal(t, Outcome{DroppedSeries: 2}, outcome)
	assert.Len(t, f.names(), MaxSeries)
	assert.Contains(t, f.metrics(), `"tags": {"i": "0"}, "stats": {"value": 7}`)
}

func TestResourceCapAndExpiry(t *testing.T) {
	f := newFixture()
	f.Update(func(b *Batch) {
		for i := range MaxResources {
			b.Resource("process", tag("process.pid", fmt.Sprint(i)), nil, 1, epoch)
		}
	})
	assert.Equal(t, Outcome{DroppedResources: 1}, f.Update(func(b *Batch) {
		b.Resource("process", tag("process.pid", "new"), nil, 1, epoch)
		b.Resource("process", tag("process.pid", "0"), nil, 1, epoch+int64(Lifetime))
	}))
	f.ns += int64(Lifetime) + int64(time.Minute)
	assert.Equal(t, Outcome{}, f.Update(func(b *Batch) {
		b.Resource("device", tag("device.uuid", "G"), nil, 1, f.ns)
	}), "cleanup comes before the new one is added")
	assert.NotContains(t, f.resources(), `"process.pid": "1"`)
	assert.Contains(t, f.resources(), `"device.uuid": "G"`)
}

func TestResourceUpdates(t *testing.T) {
	f := newFixture()
	set := func(tags, attributes []series.Tag, first, last int64) {
		f.Update(func(b *Batch) { b.Resource("process", tags, attributes, first, last) })
	}
	set(tag("b", "2", "a", "1"), tag("x", "1", "y", "2"), epoch, epoch)
	f.Update(func(b *Batch) { b.Resource("host", nil, nil, 0, 0) })
	f.Update(func(b *Batch) { b.Resource("", nil, nil, 0, 0) })
	set(tag("a", "1", "b", "2"), tag("z", "3", strings.Repeat("k", 60), strings.Repeat("v", 3000), "z", "4"), epoch-1, epoch-5)
	assert.Equal(t, `{"kind": "process", "tags": {"b": "2", "a": "1"}, "attributes": {"z": "4", "`+strings.Repeat("k", 50)+`": "`+strings.Repeat("v", 2500)+
		`"}, "first_seen_ts": 1789999999, "last_seen_ts": 1790000000}, {"kind": "host", "tags": {}, "attributes": {}, "first_seen_ts": 1790000000, "last_seen_ts": 1790000000}`,
		f.resources())
	assert.Equal(t, int64(-1), floorSeconds(-1))
}

func TestReplaceWhole(t *testing.T) {
	f := newFixture()
	bins := []series.Bin{{Value: series.Int(10), Count: 1}}
	f.Update(func(b *Batch) {
		b.Histogram("h", nil, &series.Distribution{Bins: bins, HasTotals: true, HasMin: true, Count: 1, Sum: series.Int(12), Min: series.Int(12)}, 0, epoch)
	})
	bins[0].Value = series.Int(99)
	assert.Contains(t, f.metrics(), `{"count": 1, "sum": 12, "min": 12, "max": null, "mean": 12.0, "p50": 12, "p95": 12}`, "the caller's slice was copied")
	f.Update(func(b *Batch) {
		b.Histogram("h", nil, &series.Distribution{Bins: bins, HasMin: true, Min: series.Int(1)}, 0, epoch)
	})
	assert.Contains(t, f.metrics(), `{"count": null, "sum": null, "min": null, "max": null, "mean": 99.0, "p50": 99, "p95": 99}`)
	f.Update(func(b *Batch) {
		b.Histogram("h", nil, &series.Distribution{HasTotals: true, Count: 2, Sum: series.Float(3)}, 0, epoch)
	})
	assert.Contains(t, f.metrics(), `{"count": 2, "sum": 3.0, "min": null, "max": null, "mean": 1.5, "p50": null, "p95": null}`)

	f.Update(func(b *Batch) { b.Counter("c", nil, series.Int(9), 5, epoch) })
	f.Update(func(b *Batch) { b.Counter("c", nil, series.Int(3), 6, epoch-1) })
	assert.Contains(t, f.metrics(), `"stats": {"total": 3}, "updated_ns": 1789999999999999999`, "neither a lower total nor an older time is refused")
}

func TestRejections(t *testing.T) {
	f := newFixture()
	nan := series.Float(math.NaN())
	outcome := f.Update(func(b *Batch) {
		b.Gauge("g", nil, nan, 0, epoch)
		b.Counter("c", nil, series.Float(math.Inf(1)), 0, epoch)
		b.Histogram("h", nil, &series.Distribution{}, 0, epoch)
		b.Histogram("h", nil, &series.Distribution{Bins: []series.Bin{{Value: nan}}}, 0, epoch)
		b.Histogram("h", nil, &series.Distribution{HasTotals: true, Sum: nan}, 0, epoch)
		b.Histogram("h", nil, &series.Distribution{HasTotals: true, HasMax: true, Max: nan}, 0, epoch)
	})
	assert.Equal(t, Outcome{Rejected: 6}, outcome)
	assert.Empty(t, f.names())
	assert.Zero(t, f.Version())
}

func TestProfile(t *testing.T) {
	f := newFixture()
	var frames []series.Frame
	for i := range 260 {
		frames = append(frames, series.Frame{Name: fmt.Sprintf("f%03d", i), Value: uint64(i / 2)})
	}
	f.Update(func(b *Batch) { b.Profile("p", nil, frames, 0, epoch) })
	text := f.metrics()
	assert.Equal(t, series.MaxFrames, strings.Count(text, `"samples"`))
	assert.Contains(t, text, `"frames": [{"name": "f258", "value": 129, "samples": 0}, {"name": "f259", "value": 129, "samples": 0}, {"name": "f256"`)
	assert.Greater(t, len(text), maxKeptTail)
	assert.Equal(t, text, f.metrics())

	f.Update(func(b *Batch) { b.Profile("p", nil, []series.Frame{{Name: "zero"}}, 0, epoch) })
	assert.Contains(t, f.metrics(), `{"frames": [{"name": "zero", "value": 0, "samples": 0}]}`)
	f.Update(func(b *Batch) { b.Profile("p", nil, nil, 0, epoch) })
	assert.Contains(t, f.metrics(), `{"frames": []}`)
}

func TestVersionFollowsContent(t *testing.T) {
	f := newFixture()
	f.gauge("a", epoch)
	before := f.Version()
	f.gauge("a", epoch)
	assert.Equal(t, before, f.Version(), "the same again is no change")
	f.metrics()
	f.gauge("a", epoch)
	assert.Equal(t, before, f.Version())
	f.gauge("a", epoch+1)
	assert.NotEqual(t, before, f.Version())
}

func TestTryViewDoesNotWait(t *testing.T) {
	f := newFixture()
	f.Update(func(*Batch) {
		assert.False(t, f.TryView(func(View) { t.Error("called inside an update") }))
	})
	assert.True(t, f.TryView(func(v View) { assert.Equal(t, f.Version(), v.Version()) }))
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                           `""`,
		"a<b>&'/ ~":                  `"a<b>&'/ ~"`,
		"q\"b\\":                     `"q\"b\\"`,
		"\n\r\t\b\f\x00\x1f\x7f":     `"\n\r\t\b\f\u0000\u001f\u007f"`,
		"é日":                         `"\u00e9\u65e5"`,
		"😀":                          `"\ud83d\ude00"`,
		"\u2028":                     `"\u2028"`,
		"bad \xff\xfe utf8 \xe6\x97": `"bad \ufffd\ufffd utf8 \ufffd\ufffd"`,
	} {
		assert.Equal(t, want, string(AppendString(nil, in)))
	}
}

func TestIdentityIsUnambiguous(t *testing.T) {
	f := newFixture()
	f.gauge("a", epoch, "b", "c")
	f.gauge("a", epoch, "b", "", "c", "")
	f.gauge("ab", epoch, "c", "")
	f.gauge("a", epoch, "b\x01c", "")
	f.gauge("a", epoch, "x", strings.Repeat("v", 251))
	f.gauge("a", epoch, "x", strings.Repeat("v", 250)+"w")
	f.gauge(strings.Repeat("n", 300), epoch)
	assert.Len(t, f.names(), 6, "tags are cut before they identify")
	f.gauge("a", epoch, "c", "1", "b", "2")
	f.gauge("a", epoch, "b", "2", "c", "1")
	assert.Len(t, f.names(), 7, "the order of tags does not matter")
}
