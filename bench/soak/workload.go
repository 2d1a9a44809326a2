package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leaderRole and workerRole make this program part of the workload.
	leaderRole = "-leader"
	workerRole = "-worker"

	processes  = 64 // the leader is one of them
	counters   = 24 // of each process; with the next three, 44 series
	gauges     = 12
	histograms = 7
	frames     = 250 // of one profile

	consoleRate  = 1_000_000 // bytes a second
	errorSpacing = 10 * time.Second
	pageFamilies = 100 // of 20 lines
)

// account is what a process has recorded when it ends: all its values follow from the number of its rounds.
type account struct {
	PID    int `json:"pid"`
	Rounds int `json:"rounds"`
	// EndedAt is epoch nanoseconds.
	EndedAt int64 `json:"ended_at"`
	// Errors is how many errors the leader has printed.
	Errors int `json:"errors"`
}

// counterTotal is the value of counter i of a process after some rounds.
func counterTotal(i, rounds int) int { return (i + 1) * rounds }

// frameValue and frameSamples are those of frame i after some rounds.
func frameValue(i, rounds int) int   { return (1000 + i) * rounds }
func frameSamples(i, rounds int) int { return (1 + i%3) * rounds }

// runLeader is the first process of the workload. Arguments: the page's port, the directory for accounts, seconds to run,
// seconds between two replacements of a worker.
func runLeader(args []string) error {
	port, dir := args[0], args[1]
	seconds, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	spacing, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	var round atomic.Int64
	page := &http.Server{Addr: "127.0.0.1:" + port, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, enginePage(int(round.Load())))
	})}
	go func() { _ = page.ListenAndServe() }()
	defer page.Close()

	var workers []*worker
	for range processes - 1 {
		w, err := startWorker(dir)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	var console sync.WaitGroup
	stop := make(chan struct{})
	errorsPrinted := 0
	console.Go(func() { errorsPrinted = printLog(stop) })

	own := newRecorder()
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	tick := time.NewTicker(time.Second)
	replace := time.NewTicker(time.Duration(spacing) * time.Second)
	for oldest, running := 0, true; running; {
		select {
		case <-tick.C:
			round.Add(1)
			if err := own.record(); err != nil {
				return err
			}
		case <-replace.C:
			if err := workers[oldest].end(); err != nil {
				return err
			}
			if workers[oldest], err = startWorker(dir); err != nil {
				return err
			}
			oldest = (oldest + 1) % len(workers)
		case <-end.C:
			running = false
		}
	}
	close(stop)
	console.Wait()
	for _, w := range workers {
		if err := w.end(); err != nil {
			return err
		}
	}
	return own.finish(dir, errorsPrinted)
}

// worker is another process of the workload, which runs until its standard input closes.
type worker struct {
	cmd   *exec.Cmd
	input io.Closer
}

func startWorker(dir string) (*worker, error) {
	w := &worker{cmd: exec.Command("/proc/self/exe", workerRole, dir)}
	w.cmd.Stderr = os.Stderr
	var err error
	if w.input, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return w, w.cmd.Start()
}

func (w *worker) end() error {
	_ = w.input.Close()
	return w.cmd.Wait()
}

func runWorker(args []string) error {
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	r := newRecorder()
	tick := time.NewTicker(time.Second)
	for {
		select {
		case <-tick.C:
			if err := r.record(); err != nil {
				return err
			}
		case <-closed:
			return r.finish(args[0], 0)
		}
	}
}

// recorder writes the shared-memory document of a process, as an injected library does.
type recorder struct {
	path   string
	start  int64
	rounds int
}

func newRecorder() *recorder {
	return &recorder{path: fmt.Sprintf("/dev/shm/graphsignal_%d/soak.json", os.Getpid()), start: time.Now().UnixNano()}
}

// record counts one more round and writes.
func (r *recorder) record() error {
	r.rounds++
	var metrics []any
	type m = map[string]any
	for i := range counters {
		metrics = append(metrics, m{"name": fmt.Sprintf("soak_counter_%02d", i), "type": "counter", "tags": m{}, "value": counterTotal(i, r.rounds)})
	}
	for i := range gauges {
		metrics = append(metrics, m{"name": fmt.Sprintf("soak_gauge_%02d", i), "type": "gauge", "tags": m{}, "value": float64(r.rounds) + 0.5})
	}
	for i := range histograms {
		metrics = append(metrics, m{"name": fmt.Sprintf("soak_histogram_%d_ns", i), "type": "histogram", "tags": m{},
			"bins": []int{40, 96}, "counts": []int{r.rounds, 2 * r.rounds}, "count": 3 * r.rounds, "sum": 240 * r.rounds, "min": 42, "max": 101})
	}
	table := make(map[string][2]int, frames)
	for i := range frames {
		table[fmt.Sprintf("void soak::kernel_%03d<float, 128, 64>(float const*, float*, int)", i)] = [2]int{frameValue(i, r.rounds), frameSamples(i, r.rounds)}
	}
	metrics = append(metrics, m{"name": "soak_kernels_nanoseconds", "type": "profile", "tags": m{}, "frames": table})
	raw, err := json.Marshal(m{"version": 1, "pid": os.Getpid(), "start_ts": r.start, "write_ts": time.Now().UnixNano(), "metrics": metrics})
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(r.path), 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	if err := os.WriteFile(r.path+".tmp", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(r.path+".tmp", r.path)
}

// finish writes once more, and the account.
func (r *recorder) finish(dir string, errorsPrinted int) error {
	if err := r.record(); err != nil {
		return err
	}
	raw, err := json.Marshal(account{PID: os.Getpid(), Rounds: r.rounds, EndedAt: time.Now().UnixNano(), Errors: errorsPrinted})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())+".json"), raw, 0o600)
}

// printLog prints what an engine prints all day, and now and then an error, until stop is closed. It returns the number
// of errors.
func printLog(stop <-chan struct{}) int {
	out := bufio.NewWriter(os.Stdout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	start, written, line, printed := time.Now(), 0, 0, 0
	for {
		select {
		case <-stop:
			_ = out.Flush()
			return printed
		case <-tick.C:
		}
		life := time.Since(start)
		if life > time.Duration(printed+1)*errorSpacing {
			fmt.Fprintf(out, "ERROR 03-09 14:02:11 [soak.py:7] planted failure number %d\n", printed)
			printed++
		}
		for due := int(life.Seconds() * consoleRate); written < due; line++ {
			n, _ := fmt.Fprintf(out, "INFO 03-09 14:02:11 [metrics.py:101] Engine 000: Avg prompt throughput: %d tokens/s, running: 12 reqs\n", line)
			written += n
		}
		_ = out.Flush()
	}
}

// enginePage is a Prometheus page of 2,000 lines without comments, whose counters grow with the round.
func enginePage(round int) string {
	var page strings.Builder
	for f := range pageFamilies {
		fmt.Fprintf(&page, "# TYPE soak:requests_%02d_total counter\n", f)
		for k := range 7 {
			fmt.Fprintf(&page, "soak:requests_%02d_total{reason=\"%d\"} %d\n", f, k, (k+1)*round)
		}
		fmt.Fprintf(&page, "# TYPE soak:seconds_%02d histogram\n", f)
		for k := range 10 {
			fmt.Fprintf(&page, "soak:seconds_%02d_bucket{le=\"%g\"} %d\n", f, 0.1*float64(k+1), (k+1)*round)
		}
		fmt.Fprintf(&page, "soak:seconds_%02d_bucket{le=\"+Inf\"} %d\nsoak:seconds_%02d_sum %d\nsoak:seconds_%02d_count %d\n", f, 11*round, f, 5*round, f, 11*round)
	}
	return page.String()
}
