package enginereceiver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/metadata"
)

// newReceiverOf makes a receiver through its factory, with short intervals.
func newReceiverOf(t *testing.T, next consumer.Metrics, change func(*Config)) receiver.Metrics {
	t.Helper()
	f := NewFactory()
	cfg := f.CreateDefaultConfig().(*Config)
	cfg.Interval, cfg.InitialDelay = 10*time.Millisecond, 0
	change(cfg)
	require.NoError(t, cfg.Validate())
	r, err := f.CreateMetrics(context.Background(), receivertest.NewNopSettings(metadata.Type), cfg, next)
	require.NoError(t, err)
	return r
}

func running(t *testing.T, r receiver.Metrics, host component.Host) (stop func()) {
	t.Helper()
	require.NoError(t, r.Start(context.Background(), host))
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			require.NoError(t, r.Shutdown(context.Background()))
		}
	}
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}

func TestLifecycle(t *testing.T) {
	p := newPage(t, onePage)
	sink := new(consumertest.MetricsSink)
	h := newTree()
	r := newReceiverOf(t, sink, func(c *Config) { c.Endpoint, c.VerifyOwner = p.URL, false })
	stop := running(t, r, h)
	eventually(t, "three pages", func() bool { return len(sink.AllMetrics()) >= 3 })
	assert.Equal(t, oneSeries, decode(t, sink.AllMetrics()[0]))
	assert.Equal(t, 1, h.readers)
	stop()
	after := len(p.seen()) // no last collection
	assert.NotZero(t, after)
	assert.Zero(t, h.readers, "the reader is withdrawn")

	require.NoError(t, newReceiverOf(t, sink, func(c *Config) { c.Endpoint = p.URL }).Shutdown(context.Background()), "without Start")
	broken := newReceiverOf(t, sink, func(c *Config) {
		c.Endpoint = "https://127.0.0.1:1"
		c.TLS.CAFile = "/does/not/exist"
	})
	assert.Error(t, broken.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, broken.Shutdown(context.Background()))
}

func TestSeveralEndpoints(t *testing.T) {
	slow := newPage(t, "")
	slow.handle(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	a, b := newPage(t, onePage), newPage(t, onePage)
	sink := new(consumertest.MetricsSink)
	r := newReceiverOf(t, sink, func(c *Config) {
		c.Endpoints = []EndpointConfig{
			{Endpoint: slow.URL, Tags: map[string]string{"replica": "slow"}},
			{Endpoint: a.URL, Tags: map[string]string{"replica": "a", "zone": "1"}},
			{Endpoint: b.URL, Tags: map[string]string{"replica": "b"}},
		}
	})
	running(t, r, componenttest.NewNopHost())
	eventually(t, "both pages, whatever the third does", func() bool {
		seen := make(map[string]bool)
		for _, md := range sink.AllMetrics() {
			for _, line := range decode(t, md) {
				seen[line] = true
			}
		}
		return seen["vllm:num_requests_running gauge {replica=a,zone=1} 1.0"] && seen["vllm:num_requests_running gauge {replica=b} 1.0"]
	})
}

// Two servers whose pages use the name of the tag that tells them apart stay two, and keep what their pages say.
func TestTagThatIsALabelOfThePage(t *testing.T) {
	const text = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine=\"0\"} %d\nvllm:generation_tokens_total{engine=\"1\"} %d\n"
	a, b := newPage(t, fmt.Sprintf(text, 1, 2)), newPage(t, fmt.Sprintf(text, 3, 4))
	sink := new(consumertest.MetricsSink)
	running(t, newReceiverOf(t, sink, func(c *Config) {
		c.Endpoints = []EndpointConfig{
			{Endpoint: a.URL, Tags: map[string]string{"engine": "a"}}, {Endpoint: b.URL, Tags: map[string]string{"engine": "b"}},
		}
	}), componenttest.NewNopHost())
	seen := make(map[string]bool)
	eventually(t, "four series", func() bool {
		for _, md := range sink.AllMetrics() {
			for _, line := range decode(t, md) {
				seen[line] = true
			}
		}
		return len(seen) >= 4
	})
	for i, tags := range []string{"engine=a,exported_engine=0", "engine=a,exported_engine=1", "engine=b,exported_engine=0", "engine=b,exported_engine=1"} {
		assert.True(t, seen[fmt.Sprintf("vllm:generation_tokens counter {%s} %d.0", tags, i+1)], "%s: %v", tags, seen)
	}
	assert.Len(t, seen, 4)
}

// A page that takes longer than the interval is not asked for twice at a time.
func TestScrapesNeverOverlap(t *testing.T) {
	var now, most, count atomic.Int32
	p := newPage(t, "")
	p.handle(func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		count.Add(1)
		time.Sleep(35 * time.Millisecond)
		_, _ = io.WriteString(w, onePage)
	})
	r := newReceiverOf(t, consumertest.NewNop(), func(c *Config) { c.Endpoint = p.URL })
	running(t, r, componenttest.NewNopHost())
	eventually(t, "a few pages", func() bool { return count.Load() >= 5 })
	assert.Equal(t, int32(1), most.Load())
}

// Shutdown does not wait for a server that never answers.
func TestShutdownDuringAScrape(t *testing.T) {
	asked := make(chan struct{}, 1)
	p := newPage(t, "")
	p.handle(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	})
	r := newReceiverOf(t, consumertest.NewNop(), func(c *Config) { c.Endpoint, c.Timeout = p.URL, time.Hour })
	stop := running(t, r, componenttest.NewNopHost())
	<-asked
	stop()
}
