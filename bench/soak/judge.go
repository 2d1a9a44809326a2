package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/ingest"
	pb "github.com/graphsignal/graphsignal-collector/proto"
)

// judge prints what the run used and returns what was not as promised.
func (s *soak) judge(missedTicks float64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := s.growth()
	missed := 100 * float64(s.ticks.skipped) / float64(max(s.ticks.taken+s.ticks.skipped, 1))
	fmt.Printf("collections: %d seen, %d missed (%.2f %%)\n", s.ticks.taken, s.ticks.skipped, missed)
	if missed > missedTicks || s.ticks.taken == 0 {
		problems = append(problems, fmt.Sprintf("%.2f %% of the collections were missed, at most %g %% may be", missed, missedTicks))
	}
	fmt.Printf("reads of /signals: %d, %d failed; uploads refused: %d\n", s.reads, len(s.bad), s.refused.Load())
	for _, b := range s.bad {
		problems = append(problems, "reading /signals: "+b)
	}
	for _, fault := range s.server.Faults() {
		problems = append(problems, "upload: "+fault.Error())
	}
	accounts, err := s.ended()
	if err != nil {
		return append(problems, err.Error())
	}
	if raw, err := os.ReadFile(s.output()); err == nil {
		s.noteErrors(raw) // the last ones may come after the last read
	}
	printed := 0
	for _, a := range accounts {
		printed += a.Errors
	}
	fmt.Printf("errors: %d printed, %d seen\n", printed, len(s.seen))
	if len(s.seen) != printed || printed == 0 {
		problems = append(problems, fmt.Sprintf("%d of %d errors of the console were seen", len(s.seen), printed))
	}
	if len(accounts) <= processes {
		problems = append(problems, fmt.Sprintf("only %d processes gave an account", len(accounts)))
	}
	problems = append(problems, s.document(accounts)...)
	problems = append(problems, s.uploads(accounts)...)
	for _, a := range accounts {
		dir := "/dev/shm/graphsignal_" + strconv.Itoa(a.PID)
		if _, err := os.Stat(dir); err == nil {
			problems = append(problems, dir+" is left behind")
		}
	}
	return problems
}

// growth compares the first half after the warm-up with the last quarter.
func (s *soak) growth() []string {
	var early, late []sample
	for _, p := range s.samples {
		switch {
		case p.at > 3*s.duration/4:
			late = append(late, p)
		case p.at > s.duration/4:
			early = append(early, p)
		}
	}
	if len(early) < 5 || len(late) < 5 {
		return []string{fmt.Sprintf("only %d samples of what the sidecar uses", len(s.samples))}
	}
	percent, heap := 5, 2048
	if s.duration < 30*time.Minute {
		percent, heap = 10, 4096 // the replaced processes have not begun to expire
	}
	// Resident memory follows the goal of the garbage collector, twice of what was alive or not yet known to be dead at its last
	// collection, which is more the busier the machine is. What leaks is alive.
	const swingPercent, swing = 20, 4096
	var problems []string
	for _, c := range []struct {
		what    string
		of      func(sample) int
		typical func([]int) int
		percent int
		slack   int // beside that share
	}{
		{"sidecar's least live heap in kB", func(p sample) int { return p.liveKB }, least, percent, heap},
		{"sidecar's least RSS in kB", func(p sample) int { return p.sidecarKB }, least, swingPercent, swing},
		{"launcher's least RSS in kB", func(p sample) int { return p.launcherKB }, least, percent, 1024},
		{"sidecar's descriptors", func(p sample) int { return p.sidecarFiles }, median, percent, 3},
		{"launcher's descriptors", func(p sample) int { return p.launcherFiles }, median, percent, 1},
		{"sidecar's goroutines", func(p sample) int { return p.routines }, median, percent, 3},
	} {
		first, last := valuesOf(early, c.of), valuesOf(late, c.of)
		if len(first) == 0 || len(last) == 0 {
			problems = append(problems, c.what+" could not be measured")
			continue
		}
		before, after := c.typical(first), c.typical(last)
		fmt.Printf("%s: %d, at the end %d\n", c.what, before, after)
		if after > before+before*c.percent/100+c.slack {
			problems = append(problems, fmt.Sprintf("%s grew from %d to %d", c.what, before, after))
		}
	}
	first, last := early[0], late[len(late)-1]
	fmt.Printf("sidecar's CPU: %.1f %% of a core\n", 100*(last.cpu-first.cpu)/(last.at-first.at).Seconds())
	return problems
}

// valuesOf leaves out what was not measured.
func valuesOf(list []sample, of func(sample) int) []int {
	var values []int
	for _, p := range list {
		if v := of(p); v != 0 {
			values = append(values, v)
		}
	}
	return values
}

// least is what stays after a collection of garbage: in between, memory swings.
func least(values []int) int { return slices.Min(values) }

func median(values []int) int {
	slices.Sort(values)
	return values[len(values)/2]
}

// shown is how long after its end a process is certainly still in the document.
const shown = 8 * time.Minute

// document compares the last document with what the processes recorded.
func (s *soak) document(accounts []account) []string {
	raw, err := os.ReadFile(s.output())
	if err != nil {
		return []string{err.Error()}
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return []string{filepath.Base(s.output()) + ": " + err.Error()}
	}
	fmt.Printf("last document: %d series, %d kB\n", len(d.Metrics), len(raw)/1000)
	got := make(map[string]int64)
	for _, m := range d.Metrics {
		key := m.Tags["process.pid"] + " " + m.Name
		switch {
		case m.Stats.Total != nil:
			got[key] = int64(*m.Stats.Total)
		case m.Stats.Sum != nil:
			got[key] = int64(*m.Stats.Sum)
		}
		for _, f := range m.Stats.Frames {
			got[key+" value"] += f.Value
			got[key+" samples"] += f.Samples
		}
	}
	var problems []string
	compared := 0
	for _, a := range accounts {
		if time.Since(time.Unix(0, a.EndedAt)) > shown {
			continue
		}
		for key, want := range recorded(a.Rounds) {
			compared++
			if got[strconv.Itoa(a.PID)+" "+key] != want {
				problems = append(problems, fmt.Sprintf("process %d: %s is %d in the last document, want %d", a.PID, key, got[strconv.Itoa(a.PID)+" "+key], want))
			}
		}
	}
	fmt.Printf("totals in the last document: %d compared, %d wrong\n", compared, len(problems))
	return few(problems)
}

// uploads compares what the server has added up with what all processes, also those long gone, recorded.
func (s *soak) uploads(accounts []account) []string {
	got := make(map[string]int64)
	instances, series := 0, 0
	for _, id := range s.server.IDs() {
		instances++
		s.server.Read(id, func(in *ingest.Instance) {
			for _, m := range in.Series {
				series++
				key := m.Tags["process.pid"] + " " + m.Name
				switch m.Type {
				case pb.Metric_COUNTER_METRIC:
					got[key] += int64(m.Value)
				case pb.Metric_HISTOGRAM_METRIC:
					got[key] += int64(m.Sum)
				}
				for _, f := range m.Frames {
					got[key+" value"] += int64(f.Value)
					got[key+" samples"] += int64(f.Samples)
				}
			}
		})
	}
	var problems []string
	compared := 0
	for _, a := range accounts {
		for key, want := range recorded(a.Rounds) {
			compared++
			if got[strconv.Itoa(a.PID)+" "+key] != want {
				problems = append(problems, fmt.Sprintf("process %d: the server adds %s up to %d, want %d", a.PID, key, got[strconv.Itoa(a.PID)+" "+key], want))
			}
		}
	}
	fmt.Printf("totals at the server: %d compared, %d wrong (%d series)\n", compared, len(problems), series)
	if instances != 1 {
		problems = append(problems, fmt.Sprintf("%d instances uploaded, want 1", instances))
	}
	return few(problems)
}

// recorded is what a process has recorded after some rounds.
func recorded(rounds int) map[string]int64 {
	want := make(map[string]int64)
	for i := range counters {
		want[fmt.Sprintf("soak_counter_%02d", i)] = int64(counterTotal(i, rounds))
	}
	for i := range histograms {
		want[fmt.Sprintf("soak_histogram_%d_ns", i)] = int64(240 * rounds)
	}
	for i := range frames {
		want["soak_kernels_nanoseconds value"] += int64(frameValue(i, rounds))
		want["soak_kernels_nanoseconds samples"] += int64(frameSamples(i, rounds))
	}
	return want
}

// few keeps the first of many problems.
func few(problems []string) []string {
	if n := len(problems); n > 10 {
		return append(problems[:10:10], fmt.Sprintf("and %d more", n-10))
	}
	return problems
}
