package signalsexporter

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/exporter/signalsexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	ns int64
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(0, c.ns)
}

func (c *clock) set(ns int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ns = ns
}

// host is a component.Host with a workload extension that records what it is told.
type host struct {
	component.Host
	workload.Extension

	mu     sync.Mutex
	events []string
	status []componentstatus.Status
	bound  chan string
}

// Report makes the host a componentstatus.Reporter.
func (h *host) Report(event *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = append(h.status, event.Status())
}

// statuses returns what was reported so far.
func (h *host) statuses() []componentstatus.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.status)
}

func newHost() *host {
	return &host{Host: componenttest.NewNopHost(), bound: make(chan string, 1)}
}

func (h *host) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("workload"): h}
}

func (*host) Start(context.Context, component.Host) error { return nil }
func (*host) Shutdown(context.Context) error              { return nil }

// log returns the events so far.
func (h *host) log() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

func (h *host) EndpointBound(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, "bound "+address)
	h.bound <- address
}

func (h *host) EndpointBindFailed(address string, reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, "bind_failed "+address+": "+reason.Error())
}

func (h *host) Warn(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, "warning "+text)
}

// running is an exporter that serves on a port of its own.
type running struct {
	*signalsExporter
	t       testing.TB
	host    *host
	clock   *clock
	address string
	client  *http.Client
	ended   bool
}

const startTime = 1790000000123456789

// start runs an exporter whose clock stands at startTime and which renders as often as it may.
func start(t testing.TB, change func(*Config)) *running {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = "127.0.0.1:0"
	if change != nil {
		change(cfg)
	}
	r := &running{t: t, host: newHost(), clock: &clock{ns: startTime}}
	hub := &selflog.Hub{}
	set := exportertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(hub.Tee(zap.NewNop().Core()))
	r.signalsExporter = newExporter(set, cfg, hub, r.clock.now)
	r.document.interval, r.document.share = 0, 0
	require.NoError(t, r.Start(context.Background(), r.host))
	t.Cleanup(r.end)
	r.address = <-r.host.bound
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return r
}

// Shutdown hides the exporter's, to note that it was called.
func (r *running) Shutdown(ctx context.Context) error {
	r.ended = true
	return r.signalsExporter.Shutdown(ctx)
}

func (r *running) end() {
	if !r.ended {
		require.NoError(r.t, r.Shutdown(context.Background()))
	}
}

// metrics consumes what build adds.
func (r *running) metrics(build func(*signal.Builder)) {
	r.t.Helper()
	b := signal.NewBuilder("test")
	build(b)
	require.NoError(r.t, r.ConsumeMetrics(context.Background(), b.Metrics()))
}

func (r *running) logs(entries ...signal.ErrorEntry) {
	r.t.Helper()
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for _, e := range entries {
		signal.AppendError(records, e)
	}
	require.NoError(r.t, r.ConsumeLogs(context.Background(), ld))
}

// do makes a request and returns the reply and its body.
func (r *running) do(method, path string, header ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.address+path, nil)
	require.NoError(r.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(body)
}
