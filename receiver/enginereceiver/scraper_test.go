package enginereceiver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/internal/prom"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/enginepages"
)

const onePage = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n"

var oneSeries = []string{"vllm:num_requests_running gauge {} 1.0"}

// A page that answers 500 for 20 seconds and then well (case 22).
func TestBackOff(t *testing.T) {
	p := newPage(t, onePage)
	bad := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Internal Server Error", 500) }
	p.handle(bad)
	s := newStepped(t, p.URL, nil)
	var tries []int
	ticks := func(from, to int) {
		for n := from; n < to; n++ {
			s.tick(n)
			if requests := p.seen(); len(requests) > 0 {
				require.Len(t, requests, 1)
				assert.Equal(t, "/metrics", requests[0].URL.Path)
				tries = append(tries, n)
			}
		}
	}
	ticks(0, 20)
	assert.Nil(t, s.series())
	p.set(onePage)
	ticks(20, 34)
	assert.Equal(t, []int{2, 6, 14, 30, 31, 32, 33}, tries)
	assert.Equal(t, oneSeries, s.series())
	assert.Empty(t, s.warnings())

	// Good pages have set the back-off back; it ends at a minute.
	tries = nil
	p.handle(bad)
	ticks(34, 260)
	assert.Equal(t, []int{34, 38, 46, 62, 94, 154, 214}, tries)
	assert.Empty(t, s.warnings())
}

func TestRequest(t *testing.T) {
	p := newPage(t, onePage)
	s := newStepped(t, p.URL, func(c *Config) {
		c.InitialDelay = 0
		c.MetricsPath = "prometheus/metrics"
		c.Headers.Set("Authorization", "Bearer k")
	})
	s.tick(0)
	require.Equal(t, oneSeries, s.series())
	requests := p.seen()
	require.Len(t, requests, 1)
	r := requests[0]
	assert.Equal(t, "GET /prometheus/metrics", r.Method+" "+r.URL.Path)
	assert.Equal(t, "Bearer k", r.Header.Get("Authorization"))
	assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
	assert.True(t, strings.HasPrefix(r.Header.Get("Accept"), "text/plain"))
	assert.NotContains(t, r.Header.Get("Accept"), "openmetrics")
	assert.True(t, strings.HasPrefix(r.Header.Get("User-Agent"), "graphsignal-collector/"))
	assert.True(t, r.Close, "no connection is kept")
	// net/http never uses a proxy for loopback, so that the setting itself has to be looked at.
	assert.Nil(t, s.fetcher.client.Transport.(*http.Transport).Proxy)
	for _, entry := range s.logs.All() {
		assert.NotContains(t, fmt.Sprint(entry.Message, entry.Context), "Bearer")
	}
}

// A server that has OpenMetrics only says so with 406.
func TestOpenMetricsOnly(t *testing.T) {
	p := newPage(t, "")
	p.handle(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Accept"), "application/openmetrics-text") {
			http.Error(w, "", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		_, _ = io.WriteString(w, "# TYPE r counter\nr_total 3.0 # {t=\"x\"} 1.0\nr_created 1.7e9\n# EOF\n")
	})
	s := newStepped(t, p.URL, nil)
	s.tick(2)
	s.tick(6)
	assert.Equal(t, []string{"r counter {} 3.0 since 1700000000000000000"}, s.series())
}

func TestRedirects(t *testing.T) {
	other := newPage(t, strings.ReplaceAll(onePage, "1.0", "99"))
	p := newPage(t, "")
	p.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.WriteString(w, onePage)
	})
	s := newStepped(t, p.URL, nil)
	s.tick(2)
	assert.Equal(t, oneSeries, s.series())
	assert.Len(t, p.seen(), 2)
	s.tick(3)
	assert.Equal(t, oneSeries, s.series())
	assert.Len(t, p.seen(), 1, "where it was found last is asked first")

	for _, target := range []string{other.URL + "/metrics", strings.Replace(p.URL, "http:", "https:", 1), "/metrics"} {
		p.handle(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target, http.StatusFound)
		})
		s := newStepped(t, p.URL, nil)
		s.tick(2)
		assert.Nil(t, s.series(), target)
		assert.LessOrEqual(t, len(p.seen()), maxRedirects+2)
	}
	assert.Empty(t, other.seen(), "another server was asked")
}

// TestHostileServers says that none of them costs more than its timeout and the size limit, and that each is read
// as soon as it behaves.
func TestHostileServers(t *testing.T) {
	bomb := new(bytes.Buffer)
	packer := gzip.NewWriter(bomb)
	_, err := packer.Write([]byte("# TYPE a gauge\n"))
	require.NoError(t, err)
	for range 100 {
		_, err := packer.Write(bytes.Repeat([]byte("a 1\n"), 1<<18))
		require.NoError(t, err)
	}
	require.NoError(t, packer.Close())
	many := new(strings.Builder)
	many.WriteString("# TYPE a gauge\n")
	for i := range 100_000 {
		fmt.Fprintf(many, "a{i=\"%d\"} 1\n", i)
	}
	labels := ""
	for i := range 5000 {
		labels += fmt.Sprintf("l%d=\"\",", i)
	}
	flush := func(w http.ResponseWriter, text string) bool {
		_, err := io.WriteString(w, text)
		w.(http.Flusher).Flush()
		return err == nil
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		series  int // on the last tick
		warning string
	}{
		{name: "100 MB with its length", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000000")
			_ = flush(w, onePage)
		}},
		{name: "endless", handler: func(w http.ResponseWriter, r *http.Request) {
			line := strings.Repeat(onePage, 1000)
			for r.Context().Err() == nil && flush(w, line) {
			}
		}},
		{name: "slow drip", handler: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil && flush(w, "#") {
				select {
				case <-r.Context().Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		}},
		{name: "never answers", handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "gzip bomb", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}},
		{name: "gzip that is none", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, onePage)
		}},
		{name: "unknown encoding", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, onePage)
		}},
		{name: "cut off", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_ = flush(w, onePage)
			panic(http.ErrAbortHandler)
		}},
		{name: "huge header", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			_, _ = io.WriteString(w, onePage)
		}},
		{name: "no HTTP", handler: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("\x00\x01\x02"))
				_ = conn.Close()
			}
		}},
		{name: "HTML", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html><body>It works! a 1</body></html>")
		}},
		{name: "JSON", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[{"iter": 1}]`) }},
		{name: "empty", handler: func(http.ResponseWriter, *http.Request) {}},
		{name: "NaN everywhere", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "# TYPE a gauge\na NaN\n# TYPE h histogram\nh_bucket{le=\"1\"} NaN\nh_sum NaN\nh_count NaN\n# TYPE c counter\nc -nan\n")
		}},
		{name: "100,000 series", series: 4000, warning: "max_series", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, many.String())
		}},
		{name: "thousands of labels", series: 1, warning: "labels", handler: func(w http.ResponseWriter, _ *http.Request) {
			for i := range 100 {
				_, _ = io.WriteString(w, fmt.Sprintf("m%d{%s} 1\n", i, labels))
			}
			_, _ = io.WriteString(w, "a 1\n")
		}},
		{name: "invalid UTF-8 and broken lines", series: 1, warning: "cannot be read", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "# TYPE a gauge\na{x=\"\xff\"} 1\n\xff\xfe\na{ 2\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPage(t, "")
			p.handle(c.handler)
			s := newStepped(t, p.URL, func(c *Config) { c.Timeout = 10 * time.Second })
			if c.name == "slow drip" || c.name == "never answers" {
				s.fetcher.timeout = 200 * time.Millisecond
			}
			s.tick(2)
			s.tick(6)
			got := s.series()
			assert.Len(t, got, c.series)
			assert.LessOrEqual(t, s.fetcher.body.Cap(), 4*maxPage)
			if c.warning == "" {
				assert.Empty(t, s.warnings())
			} else if assert.Len(t, s.warnings(), 1, "said once") {
				assert.Contains(t, s.warnings()[0], c.warning)
			}
			p.set(onePage)
			s.fetcher.timeout = 10 * time.Second
			s.tick(20)
			s.tick(21)
			s.tick(22)
			assert.Equal(t, oneSeries, s.series())
			assert.LessOrEqual(t, s.fetcher.body.Cap(), keepBuffer, "a large buffer is not kept")
		})
	}
}

func TestSettingNamedInTheWarning(t *testing.T) {
	for _, c := range []struct {
		engine string
		status int
		word   string
	}{
		{"tensorrt-llm", 404, "return_perf_metrics: true"},
		{"sglang", 404, "--enable-metrics"},
		{"llama.cpp", 501, "--metrics"},
		{"llama.cpp", 401, "API key"},
		{"vllm", 404, ""},
		{"tensorrt-llm", 500, ""},
		{"", 404, ""},
	} {
		p := newPage(t, "")
		p.handle(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", c.status) })
		s := newStepped(t, p.URL, func(cfg *Config) { cfg.Engine = c.engine })
		for n := range 20 {
			s.tick(n)
		}
		if c.word == "" {
			assert.Empty(t, s.warnings(), c.engine)
		} else if assert.Len(t, s.warnings(), 1, "said once") {
			assert.Contains(t, s.warnings()[0], c.word)
		}
	}
}

// The page of another process on the port is never asked for (case 24).
func TestOwner(t *testing.T) {
	p := newPage(t, strings.ReplaceAll(onePage, "1.0", "99"))
	ours := workload.Process{PID: os.Getpid(), Root: os.Getpid(), StartTime: 1789999999000000000}
	foreign := workload.Process{PID: os.Getppid(), Root: os.Getppid(), StartTime: 1}
	h := newTree(foreign)

	s := newStepped(t, p.URL, nil)
	s.follow(h.NewReader(), true)
	for n := range 200 {
		s.tick(n)
	}
	assert.Empty(t, p.seen())
	require.Len(t, s.warnings(), 1)
	assert.Contains(t, s.warnings()[0], "another process")
	assert.Contains(t, s.warnings()[0], "--metrics-port")

	// A process of the workload listens: its page is read within a minute, and its counters began with it.
	h.processes = append(h.processes, ours)
	p.set("# TYPE c_total counter\nc_total 5\n")
	for n := range 60 {
		s.tick(200 + n)
	}
	assert.Equal(t, []string{"c counter {} 5.0 since 1789999999000000000"}, s.series())

	// It ends: nothing is read any more, and the reader lets go of it.
	p.seen()
	h.processes[1].Ended = true
	for n := range 100 {
		s.tick(300 + n)
	}
	assert.Empty(t, p.seen())
	assert.Equal(t, []int{ours.PID}, h.done)

	// Told so, it reads the page whoever listens; the beginning is known if it is one of ours all the same.
	for _, process := range []workload.Process{foreign, ours} {
		s := newStepped(t, p.URL, nil)
		s.follow(newTree(process).NewReader(), false)
		s.tick(2)
		want := "c counter {} 5.0"
		if process.PID == ours.PID {
			want += " since 1789999999000000000"
		}
		assert.Equal(t, []string{want}, s.series())
		assert.Empty(t, s.warnings())
	}
}

// As long as nobody listens, each tick looks again: the first page is not late because the engine was slow to start.
func TestEngineThatStartsLate(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
	s := newStepped(t, "http://"+address, nil)
	s.follow(newTree(workload.Process{PID: os.Getpid()}).NewReader(), true)
	for n := range 100 {
		s.tick(n)
	}
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, onePage)
	})}}
	server.Start()
	defer server.Close()
	s.tick(100)
	assert.Equal(t, oneSeries, s.series())
	assert.Empty(t, s.warnings())
}

// An engine whose default port differs from version to version is read where it listens, whoever has the other port.
func TestOtherPorts(t *testing.T) {
	ours := workload.Process{PID: os.Getpid(), Root: os.Getpid()}
	foreign := workload.Process{PID: os.Getppid(), Root: os.Getppid()}
	p, other := newPage(t, onePage), newPage(t, onePage)
	free := strconv.Itoa(freeport.Get(t))
	portOf := func(p *page) int {
		_, text, err := net.SplitHostPort(p.Listener.Addr().String())
		require.NoError(t, err)
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		return port
	}

	s := newStepped(t, "127.0.0.1:"+free, func(c *Config) { c.OtherPorts = []int{portOf(p)} })
	s.follow(newTree(ours).NewReader(), true)
	for n := 2; n < 5; n++ {
		s.tick(n)
		assert.Equal(t, oneSeries, s.series(), n)
	}
	for _, r := range p.seen() {
		assert.Equal(t, p.Listener.Addr().String(), r.Host)
	}

	// Nothing listens at the first port and a foreign process at the other one: neither is asked, and that is no reason
	// to wait longer.
	s = newStepped(t, "127.0.0.1:"+free, func(c *Config) { c.OtherPorts = []int{portOf(other)} })
	s.follow(newTree(foreign).NewReader(), true)
	for n := range 100 {
		s.tick(n)
	}
	assert.Empty(t, other.seen())
	assert.Empty(t, s.warnings())
	assert.Zero(t, s.delay)

	// Without the look at the owner the first port is the only one.
	s = newStepped(t, p.URL, func(c *Config) { c.OtherPorts = []int{portOf(other)} })
	s.follow(newTree(foreign).NewReader(), false)
	s.tick(2)
	s.tick(3)
	assert.Len(t, p.seen(), 2)
	assert.Empty(t, other.seen())
}

// "localhost" is dialled at the address that was verified.
func TestVerifiedAddressIsDialled(t *testing.T) {
	p := newPage(t, onePage)
	_, port, err := net.SplitHostPort(p.Listener.Addr().String())
	require.NoError(t, err)
	s := newStepped(t, "http://localhost:"+port, nil)
	s.follow(newTree(workload.Process{PID: os.Getpid()}).NewReader(), true)
	s.tick(2)
	assert.Equal(t, oneSeries, s.series())
	assert.Equal(t, "localhost:"+port, p.seen()[0].Host)
}

func TestStartTimes(t *testing.T) {
	p := newPage(t, "# TYPE c_total counter\nc_total 5\n# TYPE h histogram\nh_sum 1\nh_count 2\n")
	s := newStepped(t, p.URL, nil)
	s.tick(2)
	assert.Equal(t, []string{"c counter {} 5.0", "h histogram {} count 2 sum 1.0"}, s.series(), "nothing is known of the beginning")
	p.set("# TYPE c_total counter\nc_total 4\n# TYPE h histogram\nh_sum 1\nh_count 1\n")
	s.tick(3)
	assert.Equal(t, []string{
		"c counter {} 4.0 since 1790000002000000000", "h histogram {} count 1 sum 1.0 since 1790000002000000000",
	}, s.series(), "it began anew after the page before")
}

func TestMalformedLinesAreReportedOnce(t *testing.T) {
	p := newPage(t, onePage+"bad line here\n")
	s := newStepped(t, p.URL, nil)
	for n := range 10 {
		s.tick(n)
	}
	assert.Len(t, s.warnings(), 1)
	p.set(onePage + "another bad line\n")
	s.tick(10)
	assert.Len(t, s.warnings(), 2)
	p.set("# TYPE x gauge\nx -nan\nx nan(ind)\n" + onePage)
	s.tick(11)
	assert.Len(t, s.warnings(), 2)
	assert.Equal(t, oneSeries, s.series())
}

// TestPageThatIsMissingIsTold: whoever runs a Collector by hand sees in its log why there are no metrics, and not each time.
func TestPageThatIsMissingIsTold(t *testing.T) {
	p := newPage(t, "")
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	s := newStepped(t, p.URL, nil)
	told := func() (messages []string) {
		for _, entry := range s.logs.FilterLevelExact(zapcore.InfoLevel).All() {
			messages = append(messages, entry.Message)
		}
		return messages
	}
	p.handle(refuse)
	s.tick(2)
	s.tick(100)
	want := []string{"The engine's metrics page cannot be read yet; it is tried again"}
	assert.Equal(t, want, told())
	p.set(onePage)
	s.tick(200)
	p.handle(refuse)
	s.tick(201)
	s.tick(300)
	assert.Equal(t, append(want, "The engine's metrics page is read", "The engine's metrics page is gone"), told())
	assert.Empty(t, s.warnings())
}

func TestRefusedMetricsAreNoFailure(t *testing.T) {
	p := newPage(t, onePage)
	s := newStepped(t, p.URL, nil)
	s.next = consumertest.NewErr(errors.New("the pipeline is full"))
	s.tick(2)
	s.tick(3)
	assert.Len(t, p.seen(), 2, "the page is good all the same")
	assert.Len(t, s.warnings(), 1, "told once")
}

// BenchmarkPage is what a page of 2,000 lines costs after the first: from its bytes to pdata.
func BenchmarkPage(b *testing.B) {
	body, _ := enginepages.Page("vllm", 60)
	body = append(body, "# TYPE more gauge\n"...)
	for i := bytes.Count(body, []byte("\n")); i < 2000; i++ {
		body = fmt.Appendf(body, "more{i=\"%d\"} %d\n", i, i)
	}
	parser, builder := prom.NewParser(4000), newBuilder(nil)
	buffer := make([]byte, 0, len(body)+1)
	cpuTime := func() int64 {
		var usage unix.Rusage
		require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
		return usage.Utime.Nano() + usage.Stime.Nano()
	}
	b.ReportAllocs()
	start, n := cpuTime(), 0
	for b.Loop() {
		buffer = append(buffer[:0], body...)
		page, err := parser.Parse(buffer, "text/plain", int64(n))
		if err != nil {
			b.Fatal(err)
		}
		_ = builder.build(page.Series, 1, int64(n))
		n++
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(n), "cpu-ns/op")
}
