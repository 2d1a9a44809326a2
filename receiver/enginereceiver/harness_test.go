package enginereceiver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/metadata"
)

// startTime is where the clock of stepped receivers stands at their start.
var startTime = time.Unix(1790000000, 0)

// stepped is a receiver with one page whose ticks the test makes, on a clock of its own.
type stepped struct {
	*scraper
	t    *testing.T
	sink *consumertest.MetricsSink
	logs *observer.ObservedLogs
	time time.Time
}

func newStepped(t *testing.T, endpoint string, change func(*Config)) *stepped {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.Endpoint = endpoint
	if change != nil {
		change(cfg)
	}
	require.NoError(t, cfg.Validate())
	s := &stepped{t: t, sink: new(consumertest.MetricsSink), time: startTime}
	set := receivertest.NewNopSettings(metadata.Type)
	core, logs := observer.New(zapcore.DebugLevel)
	set.Logger, s.logs = zap.New(core), logs
	r, err := newReceiver(cfg, set, s.sink)
	require.NoError(t, err)
	r.now = func() time.Time { return s.time }
	s.scraper, err = newScraper(context.Background(), r, cfg.pages()[0])
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

// tick makes a tick n seconds after the start.
func (s *stepped) tick(n int) {
	s.time = startTime.Add(time.Duration(n) * time.Second)
	s.collect(context.Background())
}

// series is what the page of the last tick that gave one came to, one line each; nothing when there was none since the
// last call.
func (s *stepped) series() []string {
	s.t.Helper()
	all := s.sink.AllMetrics()
	s.sink.Reset()
	if len(all) == 0 {
		return nil
	}
	return decode(s.t, all[len(all)-1])
}

// warnings are the messages of the level that users see.
func (s *stepped) warnings() []string {
	var all []string
	for _, entry := range s.logs.All() {
		if entry.Level >= zapcore.WarnLevel {
			all = append(all, entry.Message)
		}
	}
	return all
}

// lines writes what it is given as one line a series: name, type, tags, value, start.
type lines struct{ all []string }

func decode(t *testing.T, md pmetric.Metrics) []string {
	t.Helper()
	var l lines
	require.Zero(t, signal.Decode(md, &l))
	slices.Sort(l.all)
	return l.all
}

func (l *lines) add(name string, typ series.Type, tags []series.Tag, value string, start int64) {
	var text []string
	for _, tag := range tags {
		text = append(text, tag.Key+"="+tag.Value)
	}
	line := fmt.Sprintf("%s %s {%s} %s", name, typ, strings.Join(text, ","), value)
	if start != 0 {
		line += fmt.Sprintf(" since %d", start)
	}
	l.all = append(l.all, line)
}

func (l *lines) Entity(e signal.Entity, _, _ int64) { l.all = append(l.all, "entity "+e.Kind) }
func (l *lines) Gauge(name string, tags []series.Tag, v series.Number, start, _ int64) {
	l.add(name, series.Gauge, tags, string(v.AppendJSON(nil)), start)
}
func (l *lines) Counter(name string, tags []series.Tag, v series.Number, start, _ int64) {
	l.add(name, series.Counter, tags, string(v.AppendJSON(nil)), start)
}
func (l *lines) Profile(name string, tags []series.Tag, _ []series.Frame, start, _ int64) {
	l.add(name, series.Profile, tags, "", start)
}
func (l *lines) Histogram(name string, tags []series.Tag, d *series.Distribution, start, _ int64) {
	value := fmt.Sprintf("count %d sum %s", d.Count, d.Sum.AppendJSON(nil))
	for _, bin := range d.Bins {
		value += fmt.Sprintf(" %s:%d", bin.Value.AppendJSON(nil), bin.Count)
	}
	l.add(name, series.Histogram, tags, value, start)
}

// page serves one body until it is changed, and counts the requests.
type page struct {
	*httptest.Server
	mu       sync.Mutex
	handler  http.HandlerFunc
	requests []*http.Request
}

func newPage(t *testing.T, body string) *page {
	p := &page{}
	p.set(body)
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *page) set(body string) {
	p.handle(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(body))
	})
}

func (p *page) handle(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handler = h
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	h := p.handler
	p.requests = append(p.requests, r)
	p.mu.Unlock()
	h(w, r)
}

// seen returns the requests since the last call.
func (p *page) seen() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.requests
	p.requests = nil
	return all
}

// tree is a workload extension whose processes the test sets.
type tree struct {
	component.Host
	workload.Extension

	mu        sync.Mutex
	processes []workload.Process
	done      []int
	readers   int
}

func newTree(processes ...workload.Process) *tree {
	return &tree{Host: componenttest.NewNopHost(), processes: processes}
}

func (h *tree) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("workload"): h}
}

func (*tree) EndpointBound(string)             {}
func (*tree) EndpointBindFailed(string, error) {}

func (*tree) Start(context.Context, component.Host) error { return nil }
func (*tree) Shutdown(context.Context) error              { return nil }

func (h *tree) NewReader() workload.Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers++
	return (*reader)(h)
}

type reader tree

func (r *reader) Processes() []workload.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.processes)
}

func (r *reader) Done(p workload.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, p.PID)
	r.processes = slices.DeleteFunc(r.processes, func(q workload.Process) bool { return q.PID == p.PID })
}

func (r *reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers--
}
