package shm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// text describes an entry in one line.
func text(e Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Name, e.Type)
	for _, t := range e.Tags {
		fmt.Fprintf(&b, " %s=%s", t.Key, t.Value)
	}
	number := func(n series.Number) string { return string(n.AppendJSON(nil)) }
	switch e.Type {
	case series.Gauge, series.Counter:
		b.WriteString(" " + number(e.Value))
	case series.Histogram:
		for _, bin := range e.Distribution.Bins {
			fmt.Fprintf(&b, " %s:%d", number(bin.Value), bin.Count)
		}
		if d := e.Distribution; d.HasTotals {
			fmt.Fprintf(&b, " count=%d sum=%s", d.Count, number(d.Sum))
			if d.HasMin {
				b.WriteString(" min=" + number(d.Min))
			}
			if d.HasMax {
				b.WriteString(" max=" + number(d.Max))
			}
		}
	case series.Profile:
		for _, f := range e.Frames {
			fmt.Fprintf(&b, " %s=%d/%d", f.Name, f.Value, f.Samples)
		}
	}
	return b.String()
}

// outcome is what reading a directory gave.
type outcome struct {
	entries []string
	log     []string
	files   []string // skipped ones, with the cause
	skipped []string // causes of skipped entries
}

func readOnce(t *testing.T, r *Reader, d *Directory, sel Selection, trust Trust) outcome {
	t.Helper()
	var o outcome
	r.Skipped = func(path string, err *FileError) {
		o.files = append(o.files, filepath.Base(path)+": "+err.Cause.String())
	}
	r.Read(context.Background(), d, sel, trust, func(f *File, doc *Document) {
		for _, e := range doc.Entries {
			o.entries = append(o.entries, text(e))
		}
		for cause, n := range doc.Skipped {
			for range n {
				o.skipped = append(o.skipped, Skip(cause).String())
			}
		}
		for _, e := range f.Log(doc) {
			o.log = append(o.log, e.Level+": "+e.Message)
		}
		f.AcceptLog()
		f.Accept()
	})
	return o
}

func ours(trust Trust) Trust {
	trust.Owner = func(uid uint32) bool { return uid == uint32(os.Getuid()) }
	return trust
}

const good = "zz_good gauge 1"

// malformed is what we make of each damaged or odd file of testdata/malformed.json. The reference differs where
// the comment says so; everywhere else its answers are the same.
var malformed = map[string]outcome{
	"truncated JSON beside a good file": {entries: []string{good}, files: []string{"a.json: no complete JSON document"}},
	"version 2 beside a good file":      {entries: []string{good}, files: []string{"a.json: not a document of schema version 1"}},
	"version 1.0 (float)":               {entries: []string{"x gauge 1"}},
	"version true":                      {entries: []string{"x gauge 1"}},
	"top level is an array":             {entries: []string{good}, files: []string{"a.json: not a document of schema version 1"}},
	// The reference loses what follows in the file.
	"frames is an array; entries after it":            {entries: []string{"before gauge 1", "after gauge 1", good}, skipped: []string{"a value of the wrong kind"}},
	"frame with one number; entries after it":         {entries: []string{"before gauge 1", "after gauge 1", good}, skipped: []string{"a value of the wrong kind"}},
	"frame value is a plain number; entries after it": {entries: []string{"before gauge 1", "after gauge 1", good}, skipped: []string{"a value of the wrong kind"}},
	// The reference takes digits in strings for numbers.
	"frame values are floats and strings of digits": {skipped: []string{"a value of the wrong kind"}},
	"metrics null, log has an error":                {entries: []string{good}, files: []string{"a.json: metrics is not an array"}},
	"metrics missing, log has an error":             {entries: []string{good}, log: []string{"error: kept"}},
	"tags is an array":                              {entries: []string{"x gauge 1"}},
	// The reference loses the whole tick.
	"invalid UTF-8 in the first file, good second file": {entries: []string{"x\ufffd gauge 1", good}},
	"invalid UTF-8 in the second file":                  {entries: []string{good, "x\ufffd gauge 1"}},
	// The reference loses the file, or publishes what is no JSON.
	"gauge nan (C spelling)":          {entries: []string{"y gauge 1"}, skipped: []string{"a number that is not finite"}},
	"gauge NaN (JavaScript spelling)": {entries: []string{"y gauge 1"}, skipped: []string{"a number that is not finite"}},
	"gauge 1e999":                     {entries: []string{"y gauge 1"}, skipped: []string{"a number that is not finite"}},
	// The reference publishes them as they are.
	"gauge value is a string / a bool / an object": {skipped: []string{"a value of the wrong kind", "a value of the wrong kind", "a value of the wrong kind"}},
	// The reference has no upper bound.
	"counter is fractional, negative, above 2^64": {entries: []string{"f counter 1.5", "n counter -4", "big counter 18446744073709551615"}},
	// The reference fails every later reply.
	"histogram sum is a string":  {entries: []string{"before gauge 1", "after gauge 1"}, skipped: []string{"a value of the wrong kind"}},
	"histogram bins are strings": {entries: []string{"before gauge 1", "after gauge 1"}, skipped: []string{"a value of the wrong kind"}},
	// The reference computes with them.
	"histogram count is a string of digits": {skipped: []string{"a value of the wrong kind"}},
	"histogram counts are negative":         {skipped: []string{"a value of the wrong kind"}},
	"histogram counts are floats":           {skipped: []string{"a value of the wrong kind"}},
	// The reference takes the quantiles in the order given.
	"histogram bins not ascending": {entries: []string{"h histogram 10:1 20:1 40:1"}},
	// The reference fails every later reply.
	"name is a number":        {entries: []string{"y gauge 1"}, skipped: []string{"no name or no type"}},
	"write_ts missing":        {entries: []string{"x gauge 1"}},
	"write_ts 20 minutes ago": {entries: []string{"x gauge 1"}},
	"write_ts in 2099":        {entries: []string{"x gauge 1"}},
	"write_ts is a string":    {entries: []string{"x gauge 1"}},
	"empty file, a directory named .json, a dot file, a .tmp": {entries: []string{good},
		files: []string{"a.json: no complete JSON document", "d.json: not a regular file or directory"}},
	"UTF-8 byte-order mark": {entries: []string{good}, files: []string{"a.json: no complete JSON document"}},
	// The reference loses the whole tick.
	"nested 100000 deep": {entries: []string{good}, files: []string{"a.json: no complete JSON document"}},
	// The reference publishes the lone surrogate.
	"lone surrogate escape in a name": {entries: []string{"x\ufffd gauge 1"}},
	"duplicate key value":             {entries: []string{"x gauge 2"}},
}

func TestMalformedFiles(t *testing.T) {
	raw, err := os.ReadFile("testdata/malformed.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Case  string            `json:"case"`
		Files map[string]string `json:"files"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != len(malformed) {
		t.Fatalf("%d cases, %d outcomes", len(cases), len(malformed))
	}
	for _, c := range cases {
		t.Run(c.Case, func(t *testing.T) {
			want, ok := malformed[c.Case]
			if !ok {
				t.Fatal("no outcome")
			}
			path := t.TempDir()
			if strings.Contains(c.Case, "a directory named .json") {
				if err := os.Mkdir(filepath.Join(path, "d.json"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			started := time.Now()
			for name, content := range c.Files {
				put(t, path, name, substitute(t, content, started))
			}
			r := Reader{MaxFileSize: DefaultMaxFileSize}
			got := readOnce(t, &r, NewDirectory(path), AllBut(), ours(Trust{Started: started.UnixNano()}))
			check := func(what string, got, want []string) {
				if !slices.Equal(got, want) {
					t.Errorf("%s:\n got %q\nwant %q", what, got, want)
				}
			}
			check("entries", got.entries, want.entries)
			check("log", got.log, want.log)
			check("skipped files", got.files, want.files)
			check("skipped entries", got.skipped, want.skipped)
		})
	}
}

// substitute makes the content of a file out of its description.
func substitute(t *testing.T, content string, now time.Time) []byte {
	t.Helper()
	if content == "'[' repeated 100000 times" {
		return []byte(strings.Repeat("[", 100000))
	}
	if encoded, ok := strings.CutPrefix(content, "base64:"); ok {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		content = string(raw)
	}
	return []byte(strings.NewReplacer(
		"@NOW@", fmt.Sprint(now.UnixNano()),
		"@OLD@", fmt.Sprint(now.Add(-20*time.Minute).UnixNano()),
	).Replace(content))
}

// put writes a file as writers do, with a modification time that is long past.
func put(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".tmp", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// TestReferenceDocument reads a document with one of everything; what it becomes is what the reference took of it.
func TestReferenceDocument(t *testing.T) {
	raw, err := os.ReadFile("testdata/scenario-1-cupti.json")
	if err != nil {
		t.Fatal(err)
	}
	var p Parser
	var h History
	for range 3 { // the second and third time by way of the History
		doc, err := p.Parse(raw, &h)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range doc.Entries {
			if e.Name == "app_many_frames" {
				if len(e.Frames) != series.MaxFrames || slices.ContainsFunc(e.Frames, func(f series.Frame) bool { return f.Name == "frame_000" }) {
					t.Errorf("app_many_frames: %d frames, %v first", len(e.Frames), e.Frames[0])
				}
				continue
			}
			if e.Name == "app_long_tags" {
				continue
			}
			got = append(got, text(e))
		}
		want := []string{
			"cuda_graph_trace_mode gauge 0",
			"app_queue_depth gauge queue=decode 17",
			"app_ratio gauge 0.30000000000000004",
			"app_tiny gauge 1e-05",
			"app_big_float gauge 1e+16",
			"app_whole_float gauge 2.0",
			"app_negative gauge -3",
			"app_temperature gauge sensor=a zone=1 41.5",
			"app_temperature gauge sensor=a 42.25",
			"cuda_memcpy_bytes counter kind=host_to_device 8192",
			"cuda_memcpy_bytes counter kind=device_to_host 4096",
			"app_u64_max counter 18446744073709551615",
			"app_zero counter 0",
			"app_queue_depth counter queue=decode 811",
			"app_step_ns histogram op=decode 96:3 112:9 128:6 160:2 count=20 sum=2384 min=99 max=151",
			"app_clamp_low histogram 64:1 80:0 count=1 sum=70 min=70 max=70",
			"app_bins_only histogram 10:5 20:4 40:1",
			"app_totals_only histogram count=4 sum=1000 min=7 max=640",
			"app_totals_no_extremes histogram count=5 sum=0.75",
			"app_count_zero histogram 7:1 8:1 9:1 count=0 sum=0",
			"app_half_pair histogram 10:1 20:3",
			"app_zero_counts histogram 10:0 20:0",
			`cuda_kernels_nanoseconds profile _Z6gemm_aPKfS0_Pf=9100/70 softmax<float>=2300/70 copy=2300/12 noop=0/3 quote"back\slash=5/1 ümläut 核 🚀=4/2 <a>&b=3/1`,
			"cuda_graphs_nanoseconds profile graph_1a2b3c=18446744073709551615/1",
			"cuda_sync_nanoseconds profile",
			"app_tag_kinds gauge int=7 float=1.5 bool=True 1",
			"app_tag_override gauge process.pid=1 process.rank=99 1",
			"app_no_tags gauge 5",
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("entry %d:\n got %q\nwant %q", i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
			}
		}
		wantSkipped := [NumSkips]int{SkipUnrecorded: 2, SkipUnequal: 1, SkipType: 1, SkipName: 2, SkipAbsent: 2, SkipShape: 1}
		if doc.Skipped != wantSkipped {
			t.Errorf("skipped %v, want %v", doc.Skipped, wantSkipped)
		}
		wantContext := []series.Tag{{Key: "process.rank", Value: "3"}, {Key: "process.local_rank", Value: "1"},
			{Key: "process.world_size", Value: "8"}, {Key: "process.local_world_size", Value: "2"},
			{Key: "distributed.master_addr", Value: "10.0.0.9"}, {Key: "distributed.master_port", Value: "29500"},
			{Key: "slurm.job_id", Value: "4711"}, {Key: "slurm.step_id", Value: "0"}}
		if !slices.Equal(doc.Context, wantContext) {
			t.Errorf("context %v", doc.Context)
		}
		if doc.Start != 1796026868024113660 || doc.Write != 1796026898024113660 {
			t.Errorf("start %d, write %d", doc.Start, doc.Write)
		}
	}
}
