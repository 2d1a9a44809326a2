package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graphsignal/graphsignal-collector/bench/internal/usage"
	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/internal/ingest"
)

const (
	apiKey = "soak-key"
	// quietEnd is how long before the end the server stops failing, so that what it has at the end is what was sent.
	quietEnd = 15 * time.Second
)

// soak is one run.
type soak struct {
	bin      string
	duration time.Duration
	dir      string // for everything the run writes

	server   *ingest.Server
	platform *httptest.Server
	started  time.Time
	signals  string // the endpoint's URL
	pprof    string

	mu      sync.Mutex
	samples []sample
	ticks   tickCounter
	seen    map[string]bool // planted errors
	reads   int
	bad     []string // reads that failed, the first few

	refused atomic.Int64 // uploads
}

// sample is what the two processes use at a time.
type sample struct {
	at                                    time.Duration
	sidecarKB, launcherKB                 int
	liveKB                                int // of the sidecar's heap after a collection of garbage; 0: not measured
	sidecarFiles, launcherFiles, routines int
	cpu                                   float64
}

func newSoak(bin string, duration time.Duration) (*soak, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "graphsignal-soak")
	if err != nil {
		return nil, err
	}
	s := &soak{bin: bin, duration: duration, dir: dir, seen: make(map[string]bool)}
	s.server = &ingest.Server{Key: apiKey, Forget: true, Decide: s.decide}
	s.platform = httptest.NewServer(s.server)
	return s, nil
}

func (s *soak) close() {
	s.platform.CloseClientConnections()
	s.platform.Close()
	_ = os.RemoveAll(s.dir)
}

// decide makes the server fail in turn for half of the time. It never loses an answer to what it has added up: that
// would count twice by design.
func (s *soak) decide(ingest.Request) ingest.Answer {
	life := time.Since(s.started)
	if life > s.duration-quietEnd {
		return ingest.Answer{}
	}
	answer := ingest.Answer{}
	switch phase := int(life.Seconds()) % 40; {
	case phase >= 35:
		answer.Stall = true
	case phase >= 30:
		answer = ingest.Answer{Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "1"}}
	case phase >= 20:
		answer.Status = http.StatusServiceUnavailable
	default:
		return answer
	}
	s.refused.Add(1)
	return answer
}

func (s *soak) accounts() string { return filepath.Join(s.dir, "accounts") }
func (s *soak) output() string   { return filepath.Join(s.dir, "signals.json") }

// run is the workload's life under the launcher.
func (s *soak) run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var ports [3]string
	for i := range ports {
		port, err := freeport.New()
		if err != nil {
			return err
		}
		ports[i] = strconv.Itoa(port)
	}
	s.signals = "http://127.0.0.1:" + ports[0] + "/signals"
	s.pprof = "http://127.0.0.1:" + ports[2] + "/debug/pprof/"
	extra := filepath.Join(s.dir, "collector.yaml")
	if err := errors.Join(os.Mkdir(s.accounts(), 0o700), os.WriteFile(extra, []byte("extensions:\n  pprof:\n    endpoint: 127.0.0.1:"+ports[2]+
		"\nservice:\n  extensions: [pprof]\n"), 0o600)); err != nil {
		return err
	}
	seconds := int(s.duration.Seconds())
	replace := max(min(90, seconds/8), 1) // one every 90 s: those of ten minutes fit below the store's 5,000 series
	cmd := exec.Command(filepath.Join(s.bin, "graphsignal-run"), "--listen-port", ports[0], "--metrics-port", ports[1], "--output", s.output(),
		self, leaderRole, ports[1], s.accounts(), strconv.Itoa(seconds), strconv.Itoa(replace))
	cmd.Env = append(os.Environ(), "GRAPHSIGNAL_API_KEY="+apiKey, "GRAPHSIGNAL_API_BASE="+s.platform.URL,
		"GRAPHSIGNAL_COLLECTOR_CONFIG="+extra, "GRAPHSIGNAL_DISABLE_VERSION_CHECK=1")
	cmd.Stderr = os.Stderr
	console, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.started = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := make(chan struct{})
	var watchers sync.WaitGroup
	watchers.Go(func() { _, _ = io.Copy(io.Discard, console) })
	watchers.Go(func() { s.poll(stop) })
	watchers.Go(func() { s.watch(cmd.Process.Pid, stop) })
	time.AfterFunc(s.duration+time.Minute, func() { _ = cmd.Process.Kill() })
	// Wait closes the pipe, so what is in it must have been read.
	state, err := cmd.Process.Wait()
	close(stop)
	watchers.Wait()
	if err == nil && !state.Success() {
		err = fmt.Errorf("the launcher ended with %v", state)
	}
	return err
}

// document is what is read of /signals.
type document struct {
	Metrics []struct {
		Name    string            `json:"name"`
		Tags    map[string]string `json:"tags"`
		Updated int64             `json:"updated_ns"`
		Stats   struct {
			Total, Sum *float64
			Frames     []struct {
				Name           string
				Value, Samples int64
			}
		} `json:"stats"`
	} `json:"metrics"`
	Errors []struct{ Message string } `json:"errors"`
}

// poll reads /signals ten times a second.
func (s *soak) poll(stop <-chan struct{}) {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	up := false
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		raw, err := get(client, s.signals)
		if err != nil && (!up || time.Since(s.started) > s.duration) {
			continue // it starts, or ends
		}
		up = true
		s.mu.Lock()
		s.reads++
		if err != nil && len(s.bad) < 10 {
			s.bad = append(s.bad, err.Error())
		}
		s.mu.Unlock()
		if err == nil {
			s.read(raw)
		}
	}
}

func get(client *http.Client, url string) ([]byte, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// read checks that a document is JSON and looks for errors and for the time of the last collection.
func (s *soak) read(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !json.Valid(raw) && len(s.bad) < 10 {
		s.bad = append(s.bad, "a reply is no JSON")
		return
	}
	s.noteErrors(raw)
	// The host's series bear the time of the collection.
	if _, rest, ok := bytes.Cut(raw, []byte(`"name": "`+tickMetric+`"`)); ok {
		if _, rest, ok = bytes.Cut(rest, []byte(`"updated_ns": `)); ok {
			digits := 0
			for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
				digits++
			}
			if ns, err := strconv.ParseInt(string(rest[:digits]), 10, 64); err == nil {
				s.ticks.see(ns)
			}
		}
	}
}

// noteErrors remembers which planted errors a document has. The caller holds the lock.
func (s *soak) noteErrors(raw []byte) {
	if at := bytes.LastIndex(raw, []byte(`"errors":`)); at >= 0 {
		for _, part := range strings.Split(string(raw[at:]), "planted failure number ")[1:] {
			if end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); end > 0 {
				s.seen[part[:end]] = true
			}
		}
	}
}

// tickMetric is one that each collection of the process receiver sets.
const tickMetric = "host_memory_usage_bytes"

// tickCounter counts collections by the times they leave behind.
type tickCounter struct {
	last           int64
	taken, skipped int
}

func (c *tickCounter) see(ns int64) {
	if ns == c.last {
		return
	}
	if c.last != 0 {
		c.taken++
		c.skipped += max(int((ns-c.last+500_000_000)/1_000_000_000)-1, 0)
	}
	c.last = ns
}

// heapSpacing is how many samples there are for one of the live heap.
const heapSpacing = 4

// liveKB returns what is left of the heap after a collection of garbage, 0 when that cannot be told.
func liveKB(client *http.Client, pprof string) int {
	profile, err := get(client, pprof+"heap?gc=1&debug=1")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(profile), "\n# HeapAlloc = ")
	line, _, _ := strings.Cut(rest, "\n")
	live, _ := strconv.Atoi(line)
	return live / 1024
}

// watch samples what the launcher and the sidecar use, about a hundred times in all.
func (s *soak) watch(launcher int, stop <-chan struct{}) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(max(s.duration/100, time.Second))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now := sample{at: time.Since(s.started)}
		sidecar, err := usage.Sidecar(launcher)
		if err != nil {
			continue
		}
		routines, err := get(client, s.pprof+"goroutine?debug=1")
		if err != nil {
			continue
		}
		_, _ = fmt.Sscanf(string(routines), "goroutine profile: total %d", &now.routines)
		var errs [5]error
		now.sidecarKB, errs[0] = usage.StatusKB(sidecar, "VmRSS")
		now.launcherKB, errs[1] = usage.StatusKB(launcher, "VmRSS")
		now.sidecarFiles, errs[2] = usage.Descriptors(sidecar)
		now.launcherFiles, errs[3] = usage.Descriptors(launcher)
		now.cpu, errs[4] = usage.CPUSeconds(sidecar)
		if n%heapSpacing == 0 { // last, since it collects garbage
			now.liveKB = liveKB(client, s.pprof)
		}
		if errors.Join(errs[:]...) == nil && now.at < s.duration {
			s.mu.Lock()
			s.samples = append(s.samples, now)
			s.mu.Unlock()
		}
	}
}

// ended reads what the workload's processes have recorded.
func (s *soak) ended() ([]account, error) {
	paths, err := filepath.Glob(filepath.Join(s.accounts(), "*.json"))
	if err != nil {
		return nil, err
	}
	var all []account
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var a account
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b account) int { return a.PID - b.PID })
	return all, nil
}
