package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// loadArgument makes this program the workload instead of the measurement.
const loadArgument = "-workload"

// load is one kind of workload: how many processes write which documents each second, and which page is served.
type load struct {
	name, what string
	processes  int
	documents  []string
	cpu, rss   string // budgets
	getLatency bool
	coreBudget bool // the CPU budget is a share of a core
	upload     bool // measured with an upload, too
	portOfPage int
}

var loads = []load{
	{name: "a", what: "an idle program", processes: 1, cpu: "≤ 0.1 s", rss: "≤ 30 MiB"},
	{name: "b", what: "250 frames of 1 KiB names rewritten each second, a 1,000-line page", processes: 1,
		documents: []string{"load-b-cupti"}, portOfPage: 18379, cpu: "≤ 0.3 s", rss: "≤ 35 MiB"},
	{name: "c", what: "5 files of 1,000 series rewritten each second", processes: 1,
		documents: []string{"load-c-0", "load-c-1", "load-c-2", "load-c-3", "load-c-4"}, cpu: "≤ 0.8 s", rss: "≤ 45 MiB", getLatency: true, upload: true},
}

var manyProcesses = load{name: "64 processes x 250 frames of 1 KiB names", processes: 64,
	documents: []string{"load-b-cupti"}, coreBudget: true, cpu: "≤ 25 % of a core", rss: "-"}

// runLoad is the workload: it writes its documents each second until standard input closes. Arguments: the page's
// port (0 for none), the number of processes, the documents' names.
func runLoad(args []string) error {
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	processes, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var children []*exec.Cmd
	for range processes - 1 {
		child := exec.Command("/proc/self/exe", append([]string{loadArgument, "0", "1"}, args[2:]...)...)
		if _, err := child.StdinPipe(); err != nil { // open as long as we live
			return err
		}
		if err := child.Start(); err != nil {
			return err
		}
		children = append(children, child)
	}
	if port != 0 {
		page, err := readTestdata("load-b-page.txt")
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = w.Write(page)
		})
		go func() { _ = http.ListenAndServe("127.0.0.1:"+args[0], mux) }()
	}
	var docs []*document
	for _, name := range args[2:] {
		d, err := newDocument(name)
		if err != nil {
			return err
		}
		docs = append(docs, d)
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	tick := time.NewTicker(time.Second)
	for {
		for _, d := range docs {
			if err := d.write(); err != nil {
				return err
			}
		}
		select {
		case <-closed:
			for _, c := range children {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
			return nil
		case <-tick.C:
		}
	}
}

// document is one shared-memory file whose values grow each time it is written.
type document struct {
	path    string
	content map[string]any
}

func newDocument(name string) (*document, error) {
	raw, err := readTestdata(name + ".json")
	if err != nil {
		return nil, err
	}
	d := &document{}
	if err := json.Unmarshal(raw, &d.content); err != nil {
		return nil, err
	}
	dir := fmt.Sprintf("/dev/shm/graphsignal_%d", os.Getpid())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d.path = filepath.Join(dir, name+".json")
	if strings.HasSuffix(name, "-cupti") {
		d.path = filepath.Join(dir, "cupti.json")
	}
	d.content["pid"] = os.Getpid()
	d.content["start_ts"] = time.Now().UnixNano()
	return d, nil
}

func (d *document) write() error {
	d.content["write_ts"] = time.Now().UnixNano()
	grow(d.content["metrics"])
	raw, err := json.Marshal(d.content)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.path+".tmp", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(d.path+".tmp", d.path)
}

// grow adds to every cumulative value of the metrics.
func grow(metrics any) {
	list, _ := metrics.([]any)
	for _, e := range list {
		entry, _ := e.(map[string]any)
		if v, ok := entry["value"].(float64); ok {
			entry["value"] = v + 1
		}
		if n, ok := entry["count"].(float64); ok {
			entry["count"] = n + 1
		}
		if counts, ok := entry["counts"].([]any); ok && len(counts) > 0 {
			n, _ := counts[0].(float64)
			counts[0] = n + 1
		}
		frames, _ := entry["frames"].(map[string]any)
		for _, f := range frames {
			if pair, ok := f.([]any); ok && len(pair) == 2 {
				v, _ := pair[0].(float64)
				n, _ := pair[1].(float64)
				pair[0], pair[1] = v+1000, n+1
			}
		}
	}
}

func readTestdata(name string) ([]byte, error) {
	file, err := programs.Open("testdata/" + name + ".gz")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
