package endpoint

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

func clientOf(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient("127.0.0.1", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// testLimit is small: what lies beyond it does not depend on how fast a machine moves bytes.
const testLimit = 1 << 20

func TestReadErrorsArePlain(t *testing.T) {
	block := make(chan struct{})
	t.Cleanup(func() { close(block) }) // after the parallel subtests
	for want, handler := range map[string]http.HandlerFunc{
		"HTTP 404": http.NotFound,
		"HTTP 302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://example.com/", http.StatusFound)
		},
		"not a JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"larger than": func(w http.ResponseWriter, r *http.Request) { endless(w, r) },
		"larger than ": func(w http.ResponseWriter, _ *http.Request) { // a small body that unpacks to more
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.Copy(z, io.LimitReader(zeros{}, testLimit+10))
			_ = z.Close()
		},
		"within 300ms": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"metrics":[`)
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-block:
			}
		},
		"mid-reply": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"metrics":[`)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := clientOf(t, handler)
			c.limit, c.http.Timeout = testLimit, time.Minute
			if strings.HasPrefix(want, "within") {
				c.http.Timeout = 300 * time.Millisecond
			}
			_, err := c.Read(context.Background())
			if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func endless(w http.ResponseWriter, r *http.Request) {
	chunk := strings.Repeat(`{"name":"a","type":"gauge","stats":{"value":1}},`, 1000)
	_, _ = io.WriteString(w, `{"metrics":[`)
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
	}
}

func TestReadRefusedConnection(t *testing.T) {
	port := freeport.Get(t)
	c, err := NewClient("127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(context.Background()); err == nil || err.Error() != "connection refused" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Read(ctx); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestNewClient(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1": "http://127.0.0.1:18259/signals", "gpu-box": "http://gpu-box:18259/signals",
		"::1": "http://[::1]:18259/signals", "[fe80::1]": "http://[fe80::1]:18259/signals",
	} {
		c, err := NewClient(host, 18259)
		if err != nil || c.Address() != want {
			t.Errorf("%s: %v %v", host, c, err)
		}
	}
	for _, host := range []string{"", "a/b", "user@host", "h?x", "a b"} {
		if _, err := NewClient(host, 1); err == nil {
			t.Errorf("host %q is accepted", host)
		}
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := NewClient("h", port); err == nil {
			t.Errorf("port %d is accepted", port)
		}
	}
}

func TestReadAcceptsGzip(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			http.Error(w, "no gzip", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = fmt.Fprint(z, `{"profiler":{"version":"9"},"metrics":[]}`)
		_ = z.Close()
	})
	doc, err := c.Read(context.Background())
	if err != nil || doc.ProfilerVersion != "9" {
		t.Errorf("%v %v", doc, err)
	}
}
