package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/ingest"
)

// misbehaviour is what an HTTP server may do instead of answering.
var misbehaviour = map[string]http.HandlerFunc{
	"never answers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"drips": func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil && flushed(w, "#") {
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	},
	"never ends": func(w http.ResponseWriter, r *http.Request) {
		line := strings.Repeat("# TYPE a gauge\na 1\n", 1000)
		for r.Context().Err() == nil && flushed(w, line) {
		}
	},
	"promises a terabyte": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1099511627776")
		if flushed(w, "# TYPE a gauge\n") {
			<-r.Context().Done()
		}
	},
	"has a huge header": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 64 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 256<<10))
		}
	},
	"drips its header": func(w http.ResponseWriter, r *http.Request) {
		raw(w, func(conn net.Conn) {
			_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for i := 0; err == nil; i++ {
				_, err = fmt.Fprintf(conn, "X-%d: y\r\n", i)
				time.Sleep(10 * time.Millisecond)
			}
		})
	},
	"hangs up": func(w http.ResponseWriter, _ *http.Request) { raw(w, func(net.Conn) {}) },
	"speaks no HTTP": func(w http.ResponseWriter, _ *http.Request) {
		raw(w, func(c net.Conn) { _, _ = c.Write([]byte("\x00\x01\xff\r\n")) })
	},
	"leads in a ring": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	},
	"is broken": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) },
}

func flushed(w http.ResponseWriter, text string) bool {
	_, err := io.WriteString(w, text)
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	return err == nil
}

// raw hands the connection to f and closes it.
func raw(w http.ResponseWriter, f func(net.Conn)) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		f(conn)
		_ = conn.Close()
	}
}

// badServer misbehaves in one way until it is told to serve well.
type badServer struct {
	*httptest.Server
	asked atomic.Int32
	good  atomic.Bool
}

func newBadServer(t *testing.T, bad http.HandlerFunc, good http.Handler) *badServer {
	t.Helper()
	s := &badServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.good.Load() {
			good.ServeHTTP(w, r)
			return
		}
		s.asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		bad(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// peakMemory is the most resident memory that a process has had, in MiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.Fields(text)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n >> 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestFaultEnginePage: whatever the engine's page does, everything else is collected, the sidecar stays small, and the end
// does not wait for it. When the page is good again, it is read.
func TestFaultEnginePage(t *testing.T) {
	t.Parallel()
	for name, bad := range misbehaviour {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "never ends" && name != "is broken" {
				onlyLong(t)
			}
			page := newBadServer(t, bad, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "# TYPE requests_running gauge\nrequests_running 7\n")
			}))
			_, port, err := net.SplitHostPort(page.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			f := startFaulty(t, nil, "--metrics-port", port, "worker", "add:1000", "await:@go", "add:500", "await:@end", "add:20", "lines:3", "exit:3")
			eventually(t, "the page is asked", func() bool { return page.asked.Load() > 0 })
			page.good.Store(name == "is broken") // it is asked again after 4 s, then after 8
			f.seen("fault_steps", 1000)
			f.touch("go")
			f.seen("fault_steps", 1500)
			if peak := peakMemory(t, f.sidecar()); peak > 160 {
				t.Errorf("the sidecar has had %d MiB", peak)
			}
			if name == "is broken" {
				f.signalsWhen("the page is read", func(d *document) bool { return d.find("requests_running").stat("value") == "7.0" })
			}
			f.touch("end")
			f.ended(3, numbered(3))
			f.silent()
			f.expectTotal("fault_steps", 1520)
			f.nothingLeft()
		})
	}
}

// TestFaultUploadServer: whatever the server does, everything else goes on and the end is not delayed; when the server is
// good again, it gets all growth once.
func TestFaultUploadServer(t *testing.T) {
	t.Parallel()
	for name, bad := range misbehaviour {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "never ends" && name != "drips" && name != "is broken" {
				onlyLong(t)
			}
			platform := &ingest.Server{Key: apiKey}
			server := newBadServer(t, bad, platform)
			f := startFaulty(t, []string{"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + server.URL},
				"worker", "add:1000", "await:@go", "add:500", "await:@end", "add:20", "lines:3", "exit:3")
			eventually(t, "the server is asked", func() bool { return server.asked.Load() > 0 })
			f.seen("fault_steps", 1000)
			f.touch("go")
			d := f.seen("fault_steps", 1500)
			if peak := peakMemory(t, f.sidecar()); peak > 160 {
				t.Errorf("the sidecar has had %d MiB", peak)
			}
			switch name {
			case "hangs up", "is broken":
				server.good.Store(true)
				eventually(t, "everything is uploaded", func() bool {
					s, _ := uploaded(platform, d.Context["instance.id"], "fault_steps")
					return s.Value == 1500
				})
			}
			f.touch("end")
			f.ended(3, numbered(3))
			switch name {
			case "hangs up", "is broken", "never ends": // all is taken, or the server says so
				f.silent()
			default:
				f.says("the last upload failed, what it held is lost: ")
			}
			f.expectTotal("fault_steps", 1520)
			if s, ok := uploaded(platform, d.Context["instance.id"], "fault_steps"); ok && s.Value != 1520 {
				t.Errorf("%v of 1520 are uploaded", s.Value)
			}
			for _, fault := range platform.Faults() {
				t.Errorf("the server found fault: %v", fault)
			}
			f.nothingLeft()
		})
	}
}

// TestFaultUploadAfterKill: a sidecar that takes over from one that was killed sends no growth a second time.
func TestFaultUploadAfterKill(t *testing.T) {
	t.Parallel()
	server, url := platform(t, nil)
	f := startFaulty(t, []string{"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + url}, "worker", "add:1000", "await:@go", "add:500", "exit:3")
	instance := f.seen("fault_steps", 1000).Context["instance.id"]
	eventually(t, "it is uploaded", func() bool {
		s, _ := uploaded(server, instance, "fault_steps")
		return s.Value == 1000
	})
	first := f.sidecar()
	kill(t, first, syscall.SIGKILL)
	eventually(t, "another sidecar starts", func() bool {
		return !slices.Contains(children(f.cmd.Process.Pid), first) && len(children(f.cmd.Process.Pid)) == 2
	})
	instance = f.seen("fault_steps", 1000).Context["instance.id"]
	since := time.Now().UnixNano()
	eventually(t, "it uploads", func() bool {
		s, _ := uploaded(server, instance, "host_memory_usage_bytes")
		return s.Updated > since
	})
	f.touch("go")
	f.ended(3, "")
	f.expectTotal("fault_steps", 1500)
	if s, _ := uploaded(server, instance, "fault_steps"); s.Value != 1500 {
		t.Errorf("%v of 1500 are uploaded", s.Value)
	}
	f.nothingLeft()
}

// TestFaultSlowClients: clients of /signals that hold their connections as long as they can are bounded in number, cost
// the workload nothing, and lose their connections, so that others are answered again.
func TestFaultSlowClients(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		clients     int
		first, drip string
	}{
		"half a request":         {300, "GET /signals HTTP/1.1\r\nX: ", "y"},
		"nothing":                {300, "", ""},
		"a body that never ends": {300, "GET /signals HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", "z"},
		"replies not read":       {30, strings.Repeat("GET /signals HTTP/1.1\r\nHost: localhost\r\n\r\n", 100), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "nothing" || name == "half a request" {
				onlyLong(t)
			}
			f := startFaulty(t, nil, "worker", "add:1000", "await:@go", "add:500", "lines:3", "exit:3")
			f.seen("fault_steps", 1000)
			if name == "replies not read" {
				var frames []string
				for i := range 250 {
					frames = append(frames, fmt.Sprintf(`"%d%s":[1,1]`, i, strings.Repeat("f", 1000)))
				}
				pid := f.workload()
				big := header(pid) + `"metrics":[{"name":"big_nanoseconds","type":"profile","frames":{` + strings.Join(frames, ",") + `}}]}`
				if err := os.WriteFile(fmt.Sprintf("%s/graphsignal_%d/big.json", f.shm, pid), []byte(big), 0o600); err != nil {
					t.Fatal(err)
				}
				f.signalsWhen("the document is large", func(d *document) bool { return d.find("big_nanoseconds") != nil })
			}
			stop := make(chan struct{})
			var clients sync.WaitGroup
			defer clients.Wait()
			defer close(stop)
			for range c.clients {
				conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.port))
				if err != nil {
					t.Fatal(err)
				}
				clients.Go(func() {
					defer conn.Close()
					go func() { _, _ = io.WriteString(conn, c.first) }()
					for {
						select {
						case <-stop:
							return
						case <-time.After(500 * time.Millisecond):
							_, _ = io.WriteString(conn, c.drip)
						}
					}
				})
			}
			sidecar := f.sidecar()
			if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", sidecar)); err != nil || len(open) > 256+64 {
				t.Errorf("the sidecar has %d descriptors open (%v)", len(open), err)
			}
			// A client of its own: the connection that seen has is kept alive. Deadlines of the server are 10 s.
			client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			var d *document
			for end := time.Now().Add(45 * time.Second); d == nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/signals", f.port)); err == nil {
					if raw, err := io.ReadAll(resp.Body); err == nil {
						d, _ = parseDocument(raw)
					}
					resp.Body.Close()
				}
			}
			if d == nil {
				t.Error("nobody else is answered any more")
			} else if d.total("fault_steps") != 1000 {
				t.Errorf("fault_steps is %d", d.total("fault_steps"))
			}
			if peak := peakMemory(t, sidecar); peak > 160 {
				t.Errorf("the sidecar has had %d MiB", peak)
			}
			f.touch("go")
			f.ended(3, numbered(3))
			f.silent()
			f.expectTotal("fault_steps", 1500)
			f.nothingLeft()
		})
	}
}
