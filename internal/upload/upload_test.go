package upload

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/graphsignal/graphsignal-collector/internal/ingest"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	pb "github.com/graphsignal/graphsignal-collector/proto"
)

// direct calls the handler in place of a network, so that clocks can be false ones.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if recover() != nil {
			resp, err = nil, errors.New("connection cut")
		}
	}()
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

const instance = "0a1b2c3d4e5f"

// bench is an Uploader before a server, with a store to fill.
type bench struct {
	t        *testing.T
	server   *ingest.Server
	uploader *Uploader
	store    *store.Store
	warnings []string
}

func newBench(t *testing.T, decide func(ingest.Request) ingest.Answer) *bench {
	b := &bench{t: t, server: &ingest.Server{Key: "secret", Decide: decide}, store: store.New()}
	b.uploader = NewUploader(Settings{
		Base: "http://ingest.test/", Key: "secret", UserAgent: "test",
		Client: &http.Client{Transport: direct{b.server}},
		Global: map[string]string{"instance.id": instance, "host.name": "box-7"},
		Warn:   func(text string) { b.warnings = append(b.warnings, text) },
	})
	return b
}

// tick observes and sends, as the exporter does each second.
func (b *bench) tick() {
	time.Sleep(time.Second)
	b.uploader.Observe(b.store)
	_ = b.uploader.Send(b.t.Context())
	for _, fault := range b.server.Faults() {
		b.t.Fatalf("the server found fault: %v", fault)
	}
}

var ownTags = []series.Tag{{Key: "process.pid", Value: "4242"}}

// counter sets a counter of a process that started at start.
func (b *bench) counter(name string, total int64, start time.Time) {
	b.store.Update(func(batch *store.Batch) {
		batch.Counter(name, ownTags, series.Int(total), start.UnixNano(), time.Now().UnixNano())
	})
}

func (b *bench) series(name string) *ingest.Series {
	var found *ingest.Series
	b.server.Read(instance, func(in *ingest.Instance) {
		if in == nil {
			return
		}
		for _, s := range in.Series {
			if s.Name == name {
				found = s
			}
		}
	})
	return found
}

func total(s *ingest.Series) float64 {
	if s == nil {
		return -1
	}
	return s.Value
}

// TestDocumentedExchange follows the worked examples of the format: gauge, counter, histogram, profile, logs.
func TestDocumentedExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		start := time.Now()
		set := func(gauge, counter int64, bins [3]uint64, count uint64, sum, low, high int64, frames []series.Frame, start time.Time) {
			now := time.Now().UnixNano()
			b.store.Update(func(batch *store.Batch) {
				batch.Gauge("gpu_temperature_celsius", ownTags, series.Int(gauge), start.UnixNano(), now)
				batch.Counter("engine_tokens_total", ownTags, series.Int(counter), start.UnixNano(), now)
				batch.Histogram("step_duration_nanoseconds", ownTags, &series.Distribution{
					Bins:      []series.Bin{{Value: series.Int(1000), Count: bins[0]}, {Value: series.Int(2000), Count: bins[1]}, {Value: series.Int(4000), Count: bins[2]}},
					HasTotals: true, Count: count, Sum: series.Int(sum), HasMin: true, Min: series.Int(low), HasMax: true, Max: series.Int(high),
				}, start.UnixNano(), now)
				batch.Profile("cuda_kernels_nanoseconds", ownTags, frames, start.UnixNano(), now)
			})
		}
		set(61, 1200, [3]uint64{3, 10, 1}, 14, 30500, 1010, 4100, []series.Frame{{Name: "gemm_tile_64", Value: 5000000, Samples: 40}, {Name: "softmax_rows", Value: 700000, Samples: 40}}, start)
		b.uploader.AddLog(LogEntry{Level: "error", Message: "x", Time: 1})
		b.tick()
		set(61, 1950, [3]uint64{3, 14, 2}, 19, 44100, 1010, 5200, []series.Frame{{Name: "gemm_tile_64", Value: 7500000, Samples: 60}, {Name: "softmax_rows", Value: 700000, Samples: 40}, {Name: "rope_apply", Value: 90000, Samples: 20}}, start)
		b.uploader.AddLog(LogEntry{Level: "notice", Message: "y", Time: 2})
		b.tick()
		restart := time.Now()
		set(61, 90, [3]uint64{1, 0, 0}, 1, 1500, 1500, 1500, []series.Frame{{Name: "gemm_tile_64", Value: 100000, Samples: 2}}, restart)
		b.tick()

		requests := b.server.Requests()
		if len(requests) != 3 {
			t.Fatalf("%d requests", len(requests))
		}
		point := func(request int, name string) *pb.DataPoint {
			for _, m := range requests[request].Message.Metrics {
				if m.Name == name {
					return m.Datapoints[0]
				}
			}
			t.Fatalf("request %d has no %s", request, name)
			return nil
		}
		for i, want := range []float64{1200, 750, 90} {
			if got := point(i, "engine_tokens_total").GetTotal(); got != want {
				t.Errorf("request %d: total %v, want %v", i, got, want)
			}
		}
		h := point(1, "step_duration_nanoseconds").GetHistogram()
		if !slices.Equal(h.Bins, []float64{2000, 4000}) || !slices.Equal(h.Counts, []int64{4, 1}) || h.GetCount() != 5 || h.GetSum() != 13600 || h.GetMin() != 1010 || h.GetMax() != 5200 {
			t.Errorf("second histogram is %v", h)
		}
		h = point(2, "step_duration_nanoseconds").GetHistogram()
		if h.GetCount() != 1 || h.GetSum() != 1500 || h.GetMin() != 1500 {
			t.Errorf("histogram after the restart is %v", h)
		}
		p := point(1, "cuda_kernels_nanoseconds").GetProfile()
		if !slices.Equal(p.FrameIds, []uint64{4131683593993958360, 8537873652001975494}) || !slices.Equal(p.Values, []uint64{2500000, 90000}) || !slices.Equal(p.Samples, []uint64{20, 20}) {
			t.Errorf("second profile is %v", p)
		}
		var levels []pb.LogEntry_LogLevel
		for _, r := range requests {
			for _, batch := range r.Message.LogBatches {
				for _, e := range batch.LogEntries {
					levels = append(levels, e.Level)
				}
			}
		}
		if !slices.Equal(levels, []pb.LogEntry_LogLevel{pb.LogEntry_ERROR_LEVEL, pb.LogEntry_INFO_LEVEL}) {
			t.Errorf("log levels are %v", levels)
		}
		if r := requests[0]; r.Header.Get("User-Agent") != "test" || r.Message.UploadTs == 0 {
			t.Errorf("header %v, upload_ts %d", r.Header, r.Message.UploadTs)
		}
	})
}

// TestPublishedBytes compares a request with the bytes that the format's description gives for it.
func TestPublishedBytes(t *testing.T) {
	const published = "0ac3011218637564615f6b65726e656c735f6e616e6f7365636f6e64731a1b0a0b696e7374616e63652e6964120c30613162" +
		"32633364346535661a120a09686f73742e6e616d651205626f782d371a130a0b70726f636573732e70696412043432343220" +
		"052a2d5080a8cec3f6fd89af1a2a210a12d8e7c682e98aacab39c6d9faa59ddba7be761207a0cb980190bf051a0214143218" +
		"08d8e7c682e98aacab39120c67656d6d5f74696c655f3634321608c6d9faa59ddba7be76120a726f70655f6170706c792080" +
		"eaa5f3f6fd89af1a"
	raw, err := hex.DecodeString(published)
	if err != nil {
		t.Fatal(err)
	}
	var want pb.UploadRequest
	if err := proto.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		const t1 = 1900000001000000000
		set := func(ts int64, frames ...series.Frame) {
			b.store.Update(func(batch *store.Batch) { batch.Profile("cuda_kernels_nanoseconds", ownTags, frames, t1-1, ts) })
			b.tick()
		}
		set(t1, series.Frame{Name: "gemm_tile_64", Value: 5000000, Samples: 40}, series.Frame{Name: "softmax_rows", Value: 700000, Samples: 40})
		set(t1+1e9, series.Frame{Name: "gemm_tile_64", Value: 7500000, Samples: 60}, series.Frame{Name: "softmax_rows", Value: 700000, Samples: 40},
			series.Frame{Name: "rope_apply", Value: 90000, Samples: 20})
		got := b.server.Requests()[1].Message
		sortTags(&want)
		if got.UploadTs = want.UploadTs; !proto.Equal(got, &want) {
			t.Errorf("the request is\n%v\nwant\n%v", got, &want)
		}
	})
}

// sortTags sorts the tags of a request, whose order means nothing.
func sortTags(r *pb.UploadRequest) {
	for _, m := range r.Metrics {
		slices.SortFunc(m.Tags, func(a, b *pb.Tag) int { return strings.Compare(a.Key, b.Key) })
	}
}

// TestUnmeasuredGaugeIsSentOnce: a gauge goes out again only when it was measured again.
func TestUnmeasuredGaugeIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.store.Update(func(batch *store.Batch) {
			batch.Gauge("g", nil, series.Float(1.5), 0, time.Now().UnixNano())
		})
		for range 5 {
			b.tick()
		}
		if n := len(b.server.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestCounterThatRanBefore: without a start, the first value is a baseline.
func TestCounterThatRanBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		for _, v := range []int64{1000, 1000, 1007} {
			b.store.Update(func(batch *store.Batch) {
				batch.Counter("replays", nil, series.Int(v), 0, time.Now().UnixNano())
			})
			b.tick()
		}
		if got := total(b.series("replays")); got != 7 {
			t.Errorf("total is %v", got)
		}
	})
}

// TestCounterOfAnEarlierUploader: what an uploader before us has sent is not sent again.
func TestCounterOfAnEarlierUploader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		began := time.Now()
		time.Sleep(time.Minute)
		settings := b.uploader.settings
		settings.Since = time.Now().UnixNano()
		b.uploader = NewUploader(settings)
		for _, v := range []int64{1000, 1000, 1007} {
			b.counter("early", v, began)
			b.counter("late", v, began.Add(time.Minute))
			b.store.Update(func(batch *store.Batch) {
				frames := []series.Frame{{Name: "f", Value: uint64(v), Samples: uint64(v)}}
				batch.Profile("profile", ownTags, frames, began.UnixNano(), time.Now().UnixNano())
				d := &series.Distribution{HasTotals: true, Count: uint64(v), Sum: series.Int(v)}
				batch.Histogram("histogram", ownTags, d, began.UnixNano(), time.Now().UnixNano())
			})
			b.tick()
		}
		if early, late := total(b.series("early")), total(b.series("late")); early != 7 || late != 1007 {
			t.Errorf("totals are %v and %v", early, late)
		}
		if f := b.series("profile").Frames["f"]; f.Value != 7 || f.Samples != 7 {
			t.Errorf("frame is %+v", f)
		}
		if h := b.series("histogram"); h.Count != 7 || h.Sum != 7 {
			t.Errorf("histogram is %+v", h)
		}
	})
}

// TestOutage: an hour without a server costs no memory, loses nothing, also not what a restart swept away, and
// ends with one request.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		b := newBench(t, func(ingest.Request) ingest.Answer {
			if down {
				return ingest.Answer{Status: http.StatusServiceUnavailable}
			}
			return ingest.Answer{}
		})
		start := time.Now()
		for i := range 3600 {
			if i == 1800 {
				start = time.Now()
			}
			b.counter("steps", int64(i%1800+1), start)
			b.tick()
		}
		if n := len(b.server.Requests()); n > 80 {
			t.Errorf("%d requests in an hour of refusals", n)
		}
		down = false
		// The longest pause is a quarter more than a minute.
		for range 77 {
			b.tick()
		}
		if got := total(b.series("steps")); got != 3600 {
			t.Errorf("total is %v, want 3600", got)
		}
		if n := len(b.uploader.ledger.accounts); n != 1 {
			t.Errorf("%d accounts", n)
		}
	})
}

// TestOutageIsToldOnce: a server that cannot be reached for some seconds is worth one warning, and so is the next outage; a
// moment is not.
func TestOutageIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		b := newBench(t, func(ingest.Request) ingest.Answer {
			if down {
				return ingest.Answer{Status: http.StatusBadGateway}
			}
			return ingest.Answer{}
		})
		start := time.Now()
		steps := int64(0)
		ticks := func(n int, cut bool) {
			down = cut
			for range n {
				steps++
				b.counter("steps", steps, start)
				b.tick()
			}
		}
		ticks(3, false)
		ticks(3, true)
		ticks(5, false)
		if len(b.warnings) != 0 {
			t.Errorf("warnings %q after a moment", b.warnings)
		}
		for outage := 1; outage <= 2; outage++ {
			ticks(600, true)
			if len(b.warnings) != outage || !strings.Contains(b.warnings[0], "status 502; nothing is lost so far") {
				t.Errorf("warnings %q after outage %d", b.warnings, outage)
			}
			ticks(100, false)
		}
		if got := total(b.series("steps")); got != float64(steps) {
			t.Errorf("total is %v, want %v", got, steps)
		}
	})
}

// TestRetryAfter: the server's word is kept.
func TestRetryAfter(t *testing.T) {
	for name, answer := range map[string]ingest.Answer{
		"503": {Status: 503, Header: map[string]string{"Retry-After": "7"}},
		"429": {Status: 429, Header: map[string]string{"Retry-After": "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				b := newBench(t, func(ingest.Request) ingest.Answer {
					times = append(times, time.Now())
					if len(times) == 1 {
						return answer
					}
					return ingest.Answer{}
				})
				start := time.Now()
				for i := range 20 {
					b.counter("steps", int64(i+1), start)
					b.tick()
				}
				if wait := times[1].Sub(times[0]); wait < 7*time.Second || wait > 9*time.Second {
					t.Errorf("tried again after %v", wait)
				}
				if got := total(b.series("steps")); got != 20 {
					t.Errorf("total is %v", got)
				}
			})
		})
	}
}

// TestLastRequestDoesNotBackOff: at the end our own back-off is not kept, since there is no later time; what the server
// asked for is.
func TestLastRequestDoesNotBackOff(t *testing.T) {
	for name, tc := range map[string]struct {
		answer ingest.Answer
		want   float64 // -1: nothing arrived
		err    string
	}{
		"outage":       {ingest.Answer{Status: 503}, 8, ""},
		"asked":        {ingest.Answer{Status: 429, Header: map[string]string{"Retry-After": "60"}}, -1, "/api/v1/ingest answered with status 429"},
		"unauthorized": {ingest.Answer{Status: 401}, -1, "the API key was refused with status 401"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := true
				b := newBench(t, func(ingest.Request) ingest.Answer {
					if down {
						return tc.answer
					}
					return ingest.Answer{}
				})
				start := time.Now()
				for i := range 8 { // the last failure is 1 s ago, the next attempt 3 s ahead at least
					b.counter("steps", int64(i+1), start)
					b.tick()
				}
				down = false
				if err := b.uploader.SendLast(t.Context()); (err != nil || tc.err != "") && fmt.Sprint(err) != tc.err {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				if got := total(b.series("steps")); got != tc.want {
					t.Errorf("total is %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestOversizedRequests: a server that takes 8 KiB gets all of it in parts, and the parts are remembered.
func TestOversizedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(r ingest.Request) ingest.Answer {
			if r.Size > 8192 {
				return ingest.Answer{Status: http.StatusRequestEntityTooLarge}
			}
			return ingest.Answer{}
		})
		refused := func() int {
			n := 0
			for _, r := range b.server.Requests() {
				if r.Size > 8192 {
					n++
				}
			}
			return n
		}
		for i := range 4 {
			b.store.Update(func(batch *store.Batch) {
				for g := range 4900 {
					batch.Gauge("g", []series.Tag{{Key: "i", Value: fmt.Sprint(g)}}, series.Float(float64(g*(i+1))), 0, time.Now().UnixNano())
				}
			})
			before := refused()
			b.tick()
			if i > 0 && refused() > before {
				t.Errorf("tick %d tried %d requests that the server had refused by size", i, refused()-before)
			}
		}
		b.server.Read(instance, func(in *ingest.Instance) {
			if len(in.Series) != 4900 {
				t.Errorf("%d series arrived", len(in.Series))
			}
			for _, s := range in.Series {
				if want := fmt.Sprint(s.Value / 4); want != s.Tags["i"] {
					t.Fatalf("gauge %v is %v", s.Tags, s.Value)
				}
			}
		})
	})
}

// TestItemTooLarge: a single message over the limit is dropped and counted; the rest goes on.
func TestItemTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(r ingest.Request) ingest.Answer {
			if r.Size > 2000 {
				return ingest.Answer{Status: http.StatusRequestEntityTooLarge}
			}
			return ingest.Answer{}
		})
		noise := make([]byte, 8000)
		for i := range noise {
			noise[i] = 'a' + byte(rand.IntN(26))
		}
		start := time.Now()
		b.store.Update(func(batch *store.Batch) {
			batch.Profile("p", nil, []series.Frame{{Name: string(noise), Value: 1, Samples: 1}}, start.UnixNano(), start.UnixNano()+1)
		})
		for i := range 5 {
			b.counter("steps", int64(i+1), start)
			b.tick()
		}
		if got := total(b.series("steps")); got != 5 || b.uploader.Dropped() != 1 || len(b.warnings) != 1 {
			t.Errorf("total %v, dropped %d, warnings %q", got, b.uploader.Dropped(), b.warnings)
		}
	})
}

// TestRefusals: a bad request is dropped once, a bad key is tried once a minute, each with one warning.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		status      int
		least, most int // requests in three minutes
		dropped     bool
	}{
		{400, 180, 181, true},
		{401, 3, 4, false},
		{403, 3, 4, false},
		{404, 3, 4, false},
		{302, 3, 4, false},
	} {
		t.Run(fmt.Sprint(tc.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, func(ingest.Request) ingest.Answer { return ingest.Answer{Status: tc.status} })
				start := time.Now()
				for i := range 180 {
					b.counter("steps", int64(i+1), start)
					b.tick()
				}
				if n := len(b.server.Requests()); n < tc.least || n > tc.most {
					t.Errorf("%d requests", n)
				}
				if (b.uploader.Dropped() > 0) != tc.dropped {
					t.Errorf("dropped %d", b.uploader.Dropped())
				}
				if len(b.warnings) != 1 || strings.Contains(b.warnings[0], "secret") {
					t.Errorf("warnings %q", b.warnings)
				}
			})
		})
	}
}

// TestRedirectKeepsTheKey: another host never sees the key.
func TestRedirectKeepsTheKey(t *testing.T) {
	var leaked []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked = append(leaked, r.Header.Get("X-API-Key"))
	}))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	u := NewUploader(Settings{Base: first.URL, Key: "secret", Client: first.Client(), Warn: func(string) {}})
	s := store.New()
	s.Update(func(batch *store.Batch) { batch.Gauge("g", nil, series.Int(1), 0, time.Now().UnixNano()) })
	u.Observe(s)
	if err := u.Send(t.Context()); err == nil {
		t.Error("a redirect passed for success")
	}
	if leaked != nil {
		t.Errorf("the other host was asked, with keys %q", leaked)
	}
}

// TestStalledServer: a server that never answers is given up after the request's deadline.
func TestStalledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(ingest.Request) ingest.Answer { return ingest.Answer{Stall: true} })
		b.counter("steps", 1, time.Now())
		before := time.Now()
		b.tick()
		if waited := time.Since(before); waited > 12*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

// TestLogQueueIsBounded: the oldest go, and the loss is said once.
func TestLogQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		b := newBench(t, func(ingest.Request) ingest.Answer {
			if down {
				return ingest.Answer{Status: 500}
			}
			return ingest.Answer{}
		})
		for i := range 1500 {
			b.uploader.AddLog(LogEntry{Level: "error", Message: fmt.Sprint(i), Time: int64(i)})
		}
		b.tick()
		if len(b.warnings) != 1 || !strings.Contains(b.warnings[0], "500 log entries") {
			t.Errorf("warnings %q", b.warnings)
		}
		down = false
		for range 5 {
			b.tick()
		}
		b.server.Read(instance, func(in *ingest.Instance) {
			if len(in.Logs) != 1000 || in.Logs[0].Message != "500" {
				t.Errorf("%d entries, first %v", len(in.Logs), in.Logs[0])
			}
		})
	})
}

// TestAnySequence: whatever happens to values and requests, what the server adds up is what was measured.
func TestAnySequence(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { anySequence(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// life is the truth about one random process: what it counts now, and what it and its predecessors counted ever.
type life struct {
	start    time.Time
	count    int64
	sum      int64
	bins     map[int64]uint64
	frames   map[string]*ingest.Frame
	everC    int64
	everSum  int64
	everBins map[int64]int64
	ever     map[string]ingest.Frame
}

func (l *life) restart() {
	l.start = time.Now()
	l.count, l.sum = 0, 0
	l.bins = make(map[int64]uint64)
	l.frames = make(map[string]*ingest.Frame)
}

func (l *life) work(r *rand.Rand) {
	for range r.IntN(5) {
		value := int64(r.IntN(50))
		l.count++
		l.sum += value
		l.bins[value/10*10]++
		l.everC++
		l.everSum += value
		l.everBins[value/10*10]++
		name := fmt.Sprintf("frame_%d", r.IntN(8))
		f := l.frames[name]
		if f == nil {
			f = &ingest.Frame{}
			l.frames[name] = f
		}
		f.Value += uint64(value)
		f.Samples++
		e := l.ever[name]
		e.Value += uint64(value)
		e.Samples++
		l.ever[name] = e
	}
}

func (l *life) publish(b *bench, tags []series.Tag) {
	now := time.Now().UnixNano()
	d := series.Distribution{HasTotals: true, Count: uint64(l.count), Sum: series.Int(l.sum)}
	for _, bin := range slices.Sorted(maps.Keys(l.bins)) {
		d.Bins = append(d.Bins, series.Bin{Value: series.Int(bin), Count: l.bins[bin]})
	}
	var frames []series.Frame
	for _, name := range slices.Sorted(maps.Keys(l.frames)) {
		frames = append(frames, series.Frame{Name: name, Value: l.frames[name].Value, Samples: l.frames[name].Samples})
	}
	b.store.Update(func(batch *store.Batch) {
		batch.Counter("c", tags, series.Int(l.count), l.start.UnixNano(), now)
		batch.Histogram("h", tags, &d, l.start.UnixNano(), now)
		batch.Profile("p", tags, frames, l.start.UnixNano(), now)
	})
}

func anySequence(t *testing.T, r *rand.Rand) {
	trouble := 0
	lives := make([]*life, 3)
	tagsOf := func(i int) []series.Tag { return []series.Tag{{Key: "process.pid", Value: fmt.Sprint(i)}} }
	var b *bench
	b = newBench(t, func(request ingest.Request) ingest.Answer {
		// Work goes on, and is observed, while a request is on its way.
		if l := lives[0]; r.IntN(3) == 0 {
			l.work(r)
			time.Sleep(time.Millisecond)
			l.publish(b, tagsOf(0))
			b.uploader.Observe(b.store)
		}
		if trouble > 0 {
			trouble--
			return ingest.Answer{Status: []int{500, 503, 429}[r.IntN(3)]}
		}
		if request.Size > 700 && r.IntN(2) == 0 {
			return ingest.Answer{Status: http.StatusRequestEntityTooLarge}
		}
		if r.IntN(20) == 0 {
			trouble = r.IntN(6)
		}
		return ingest.Answer{}
	})
	for i := range lives {
		lives[i] = &life{everBins: make(map[int64]int64), ever: make(map[string]ingest.Frame)}
		lives[i].restart()
	}
	for range 200 {
		for i, l := range lives {
			switch r.IntN(40) {
			case 0:
				l.publish(b, tagsOf(i)) // its last words
				b.uploader.Observe(b.store)
				time.Sleep(time.Millisecond)
				l.restart()
			case 1:
				time.Sleep(time.Duration(r.IntN(1300)) * time.Second) // long enough for series to expire
			default:
				l.work(r)
				l.publish(b, tagsOf(i))
			}
		}
		b.tick()
	}
	trouble = 0
	for i, l := range lives {
		l.publish(b, tagsOf(i))
	}
	for range 100 { // beyond the longest back-off
		b.tick()
	}
	b.server.Read(instance, func(in *ingest.Instance) {
		for i, l := range lives {
			for _, s := range in.Series {
				if s.Tags["process.pid"] == fmt.Sprint(i) {
					l.compare(t, s)
				}
			}
		}
	})
}

func (l *life) compare(t *testing.T, s *ingest.Series) {
	t.Helper()
	switch s.Name {
	case "c":
		if int64(s.Value) != l.everC {
			t.Errorf("counter is %v, want %d", s.Value, l.everC)
		}
	case "h":
		if s.Count != l.everC || int64(s.Sum) != l.everSum {
			t.Errorf("histogram has %d and %v, want %d and %d", s.Count, s.Sum, l.everC, l.everSum)
		}
		for bin, n := range l.everBins {
			if s.Bins[float64(bin)] != n {
				t.Errorf("bin %d holds %d, want %d", bin, s.Bins[float64(bin)], n)
			}
		}
	case "p":
		if !maps.Equal(s.Frames, l.ever) {
			t.Errorf("frames are %v, want %v", s.Frames, l.ever)
		}
	}
}

// TestLostResponse: what was taken but not acknowledged is sent again, and nothing is ever missing.
func TestLostResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := newBench(t, func(ingest.Request) ingest.Answer {
			n++
			return ingest.Answer{Lose: n == 2}
		})
		start := time.Now()
		for i := range 10 {
			b.counter("steps", int64(i+1), start)
			b.tick()
		}
		if got := total(b.series("steps")); got < 10 || got > 12 {
			t.Errorf("total is %v", got)
		}
	})
}

func TestManySeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(ingest.Request) ingest.Answer { return ingest.Answer{Status: 500} })
		start := time.Now()
		for generation := range 5 {
			b.store.Update(func(batch *store.Batch) {
				for i := range 4000 {
					tags := []series.Tag{{Key: "generation", Value: fmt.Sprint(generation)}, {Key: "i", Value: fmt.Sprint(i)}}
					batch.Counter("c", tags, series.Int(1), start.UnixNano(), time.Now().UnixNano())
				}
			})
			b.tick()
			time.Sleep(20 * time.Minute)
		}
		if n := len(b.uploader.ledger.accounts); n > maxAccounts {
			t.Errorf("%d accounts", n)
		}
		if b.uploader.ledger.Forgotten() == 0 || !slices.ContainsFunc(b.warnings, func(w string) bool { return strings.Contains(w, "series were given up") }) {
			t.Errorf("forgotten %d, warnings %q", b.uploader.ledger.Forgotten(), b.warnings)
		}
	})
}

func BenchmarkFiveThousandSeries(b *testing.B) {
	s := store.New()
	u := NewUploader(Settings{Base: "http://ingest.test", Key: "k", Client: &http.Client{Transport: accept{}}, Warn: func(string) {}})
	start := time.Now()
	total := int64(0)
	for b.Loop() {
		total++
		s.Update(func(batch *store.Batch) {
			for i := range 5000 {
				batch.Counter("requests", []series.Tag{{Key: "index", Value: fmt.Sprint(i)}, {Key: "process.pid", Value: "4242"}},
					series.Int(total*int64(i)), start.UnixNano(), start.UnixNano()+total)
			}
		})
		u.Observe(s)
		if err := u.Send(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// accept answers 200 to everything.
type accept struct{}

func (accept) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
}
