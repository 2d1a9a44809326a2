// Command excerpt prints a readable part of a /signals document: what `make demo` shows.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

type document struct {
	Profiler  map[string]string
	PayloadNS int64 `json:"payload_ns"`
	StartNS   int64 `json:"start_ns"`
	Context   map[string]string
	Metrics   []metric
	Errors    []struct {
		Level, Message string
	}
	Resources []struct {
		Kind             string
		Tags, Attributes map[string]string
	}
}

type metric struct {
	Name, Type string
	Tags       map[string]string
	Stats      struct {
		Value, Total, Count, Mean, P50, P95 *json.Number
		Frames                              []struct {
			Name           string
			Value, Samples json.Number
		}
	}
}

func main() {
	url := flag.String("url", "http://127.0.0.1:18259/signals", "address of /signals")
	await := flag.String("await", "", "wait until series of these names, separated by commas, are there")
	timeout := flag.Duration("timeout", 20*time.Second, "give up after this time")
	flag.Parse()
	doc, err := fetch(*url, strings.FieldsFunc(*await, func(r rune) bool { return r == ',' }), *timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "excerpt:", err)
		os.Exit(1)
	}
	show(doc)
}

// fetch polls until the awaited series are there.
func fetch(url string, await []string, timeout time.Duration) (*document, error) {
	client := &http.Client{Timeout: 5 * time.Second}
	last := errors.New("no answer")
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		doc, err := get(client, url)
		if err != nil {
			last = err
			continue
		}
		missing := slices.IndexFunc(await, func(name string) bool {
			return !slices.ContainsFunc(doc.Metrics, func(m metric) bool { return m.Name == name })
		})
		if missing < 0 {
			return doc, nil
		}
		last = fmt.Errorf("no series %s at %s", await[missing], url)
	}
	return nil, last
}

func get(client *http.Client, url string) (*document, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, resp.Status)
	}
	var doc document
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		return nil, err
	}
	return &doc, nil
}

// show prints context, resources, then one line a series.
func show(doc *document) {
	fmt.Printf("graphsignal %s, instance %s on %s, %.1f s after its start\n\n", doc.Profiler["version"],
		doc.Context["instance.id"], doc.Context["host.name"], float64(doc.PayloadNS-doc.StartNS)/1e9)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range doc.Resources {
		fmt.Fprintf(w, "resource\t%s\t%s\t%s\n", r.Kind, pairs(r.Tags), pairs(r.Attributes))
	}
	for _, m := range doc.Metrics {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Type, m.Name, pairs(m.Tags), m.value())
		for _, f := range m.Stats.Frames[:min(len(m.Stats.Frames), 5)] {
			fmt.Fprintf(w, "\t  %s\t\t%s in %s\n", f.Name, f.Value, f.Samples)
		}
	}
	for _, e := range doc.Errors {
		fmt.Fprintf(w, "%s\t%s\t\t\n", e.Level, e.Message)
	}
	_ = w.Flush()
}

func (m metric) value() string {
	switch s := m.Stats; m.Type {
	case "gauge":
		return text(s.Value)
	case "counter":
		return text(s.Total)
	case "histogram":
		return fmt.Sprintf("count %s, mean %s, p50 %s, p95 %s", text(s.Count), text(s.Mean), text(s.P50), text(s.P95))
	}
	return fmt.Sprintf("%d frames", len(m.Stats.Frames))
}

func text(n *json.Number) string {
	if n == nil {
		return "-"
	}
	return n.String()
}

// pairs writes a map as key=value, sorted.
func pairs(m map[string]string) string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}
