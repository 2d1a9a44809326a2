package shm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// parse returns what one document says, by way of fresh memory and of the memory of the same document.
func parse(t *testing.T, data string) ([]string, [NumSkips]int, error) {
	t.Helper()
	var p Parser
	var h History
	doc, err := p.Parse([]byte(data), &h)
	if err != nil {
		return nil, [NumSkips]int{}, err
	}
	first, skipped := describe(doc), doc.Skipped
	again, err := p.Parse([]byte(data), &h)
	if err != nil || !slices.Equal(describe(again), first) || again.Skipped != skipped {
		t.Errorf("parsed again it says %q, %v", describe(again), err)
	}
	return first, skipped, nil
}

func TestEntries(t *testing.T) {
	for _, c := range []struct {
		name, entries string
		want          []string
		skipped       [NumSkips]int
	}{
		{"any order of keys", `{"value":7,"tags":{"a":"b"},"type":"gauge","name":"x"}`, []string{"x gauge a=b 7"}, [NumSkips]int{}},
		{"white space", " {\n\t\"name\" : \"x\" ,\r\"type\":\"gauge\" , \"value\" : 7 } ", []string{"x gauge 7"}, [NumSkips]int{}},
		{"unknown keys of every kind", `{"u":[{"a":[]},"]",null,-1.5e3],"name":"x","type":"gauge","v":{},"value":7,"w":true}`, []string{"x gauge 7"}, [NumSkips]int{}},
		{"escaped keys", `{"n\u0061me":"x","type":"gauge","value":7}`, []string{"x gauge 7"}, [NumSkips]int{}},
		{"repeated identity", `{"name":"x","type":"gauge","tags":{"a":"b"},"value":7,"name":"y","type":"counter","tags":{}}`, []string{"y counter 7"}, [NumSkips]int{}},
		{"repeated tag", `{"name":"x","type":"gauge","tags":{"a":"b","a":"c"},"value":7}`, []string{"x gauge a=b a=c 7"}, [NumSkips]int{}},
		{"integers", `{"name":"x","type":"counter","value":9223372036854775807},{"name":"y","type":"gauge","value":-9223372036854775808},{"name":"z","type":"gauge","value":-0}`,
			[]string{"x counter 9223372036854775807", "y gauge -9223372036854775808", "z gauge 0"}, [NumSkips]int{}},
		{"integers beyond 64 bits", `{"name":"x","type":"counter","value":18446744073709551616},{"name":"y","type":"gauge","value":-9223372036854775809},{"name":"z","type":"gauge","value":100000000000000000000000}`,
			[]string{"x counter 18446744073709551615", "y gauge -9223372036854775808", "z gauge 18446744073709551615"}, [NumSkips]int{}},
		{"floats", `{"name":"x","type":"gauge","value":2.0},{"name":"y","type":"gauge","value":1E-5},{"name":"z","type":"gauge","value":-0.0}`,
			[]string{"x gauge 2.0", "y gauge 1e-05", "z gauge -0.0"}, [NumSkips]int{}},
		{"numbers that are none", `{"name":"a","type":"gauge","value":nan},{"name":"b","type":"gauge","value":-nan},{"name":"c","type":"gauge","value":-Infinity},{"name":"d","type":"gauge","value":+inf},
			{"name":"e","type":"gauge","value":-nan(ind)},{"name":"f","type":"counter","value":INF},{"name":"g","type":"histogram","count":1,"sum":nan},
			{"name":"h","type":"profile","frames":{"f":[nan,1]}},{"name":"i","type":"gauge","value":-1e400},{"name":"ok","type":"gauge","value":1}`,
			[]string{"ok gauge 1"}, [NumSkips]int{SkipNotFinite: 9}},
		{"escapes", `{"name":"\"\\\/\b\f\n\r\t\u00fc\ud83d\ude80","type":"gauge","value":1}`, []string{"\"\\/\b\f\n\r\tü🚀 gauge 1"}, [NumSkips]int{}},
		{"halves of surrogates", `{"name":"\ud83dx\ude80\ud83d\u0041","type":"gauge","value":1}`, []string{"\ufffdx\ufffd\ufffdA gauge 1"}, [NumSkips]int{}},
		{"bytes that are no text", "{\"name\":\"a\x9f\xfeb\",\"type\":\"gauge\",\"tags\":{\"\xff\":\"\xc3\"},\"value\":1}", []string{"a\ufffd\ufffdb gauge \ufffd=\ufffd 1"}, [NumSkips]int{}},
		{"a raw control character", "{\"name\":\"a\nb\",\"type\":\"gauge\",\"value\":1}", []string{"a\nb gauge 1"}, [NumSkips]int{}},
		{"tags of other kinds", `{"name":"x","type":"gauge","tags":{"n":1.50,"t":true,"f":false,"0":null},"value":1}`, []string{"x gauge n=1.50 t=True f=False 1"}, [NumSkips]int{}},
		{"tags that are no object", `{"name":"x","type":"gauge","tags":5,"value":1},{"name":"y","type":"gauge","tags":null,"value":1}`, []string{"x gauge 1", "y gauge 1"}, [NumSkips]int{}},
		{"a tag that is an object", `{"name":"x","type":"gauge","tags":{"a":{}},"value":1}`, nil, [NumSkips]int{SkipKind: 1}},
		{"no identity", `{"name":"x","value":1},{"type":"gauge","value":1},{"name":"","type":"gauge","value":1},{"name":"x","type":"","value":1},{"name":null,"type":"gauge","value":1}`,
			nil, [NumSkips]int{SkipName: 5}},
		{"another type", `{"name":"x","type":"summary","count":1,"sum":1}`, nil, [NumSkips]int{SkipType: 1}},
		{"no object", `7,null,[{"name":"x"}],"x",{"name":"y","type":"gauge","value":1}`, []string{"y gauge 1"}, [NumSkips]int{SkipShape: 4}},
		{"no value", `{"name":"x","type":"gauge"},{"name":"y","type":"counter","value":null},{"name":"z","type":"profile"},{"name":"p","type":"profile","frames":null}`,
			nil, [NumSkips]int{SkipAbsent: 4}},

		{"1.0 histogram", `{"name":"h","type":"histogram","tags":{},"bins":[3,96],"counts":[1,2]}`, []string{"h histogram 3:1 96:2"}, [NumSkips]int{}},
		{"1.0 histogram without recordings", `{"name":"h","type":"histogram","tags":{},"bins":[],"counts":[]}`, nil, [NumSkips]int{SkipUnrecorded: 1}},
		{"1.1 histogram without recordings", `{"name":"h","type":"histogram","tags":{}}`, nil, [NumSkips]int{SkipUnrecorded: 1}},
		{"empty arrays and totals", `{"name":"h","type":"histogram","bins":[],"counts":[],"count":2,"sum":5,"min":1,"max":4}`, []string{"h histogram count=2 sum=5 min=1 max=4"}, [NumSkips]int{}},
		{"one array without the other", `{"name":"h","type":"histogram","bins":[1]},{"name":"i","type":"histogram","counts":[1]},{"name":"j","type":"histogram","bins":[1],"count":1,"sum":1}`,
			[]string{"j histogram count=1 sum=1"}, [NumSkips]int{SkipAbsent: 2}},
		{"unequal arrays despite totals", `{"name":"h","type":"histogram","bins":[1,2],"counts":[1],"count":1,"sum":1}`, nil, [NumSkips]int{SkipUnequal: 1}},
		{"half of the totals", `{"name":"h","type":"histogram","bins":[1],"counts":[1],"sum":5,"min":1},{"name":"i","type":"histogram","count":4}`, []string{"h histogram 1:1"}, [NumSkips]int{SkipAbsent: 1}},
		{"totals with fractions", `{"name":"h","type":"histogram","count":2.7,"sum":0.75,"max":0.5}`, []string{"h histogram count=2 sum=0.75 max=0.5"}, [NumSkips]int{}},
		{"bins out of order and repeated", `{"name":"h","type":"histogram","bins":[40,10,40,20],"counts":[1,2,3,4]}`, []string{"h histogram 10:2 20:4 40:4"}, [NumSkips]int{}},
		{"whole floats in arrays", `{"name":"h","type":"histogram","bins":[1.0,2e1],"counts":[3.0,4]}`, []string{"h histogram 1:3 20:4"}, [NumSkips]int{}},
		{"the last bin of the grid", `{"name":"h","type":"histogram","bins":[16140901064495857664],"counts":[18446744073709551615]}`, []string{"h histogram 16140901064495857664:18446744073709551615"}, [NumSkips]int{}},
		{"wrong kinds in a histogram", `{"name":"a","type":"histogram","bins":{},"counts":[1]},{"name":"b","type":"histogram","bins":[1.5],"counts":[1]},{"name":"c","type":"histogram","bins":[null],"counts":[1]},
			{"name":"d","type":"histogram","count":-1,"sum":1},{"name":"e","type":"histogram","count":1,"sum":1,"min":"1"},{"name":"f","type":"histogram","bins":[[1]],"counts":[1]}`, nil, [NumSkips]int{SkipKind: 6}},

		{"frames", `{"name":"p","type":"profile","frames":{"a":[1,2],"b":[3.9,4.9,"more"],"":[0,0]}}`, []string{"p profile a=1/2 b=3/4 =0/0"}, [NumSkips]int{}},
		{"no frames", `{"name":"p","type":"profile","frames":{}}`, []string{"p profile"}, [NumSkips]int{}},
		{"a frame twice", `{"name":"p","type":"profile","frames":{"a":[1,2],"b":[3,4],"a":[5,6]}}`, []string{"p profile a=5/6 b=3/4"}, [NumSkips]int{}},
		{"a frame twice, once escaped", `{"name":"p","type":"profile","frames":{"a":[1,2],"\u0061":[5,6]}}`, []string{"p profile a=5/6"}, [NumSkips]int{}},
		{"wrong kinds in frames", `{"name":"a","type":"profile","frames":{"f":[-1,1]}},{"name":"b","type":"profile","frames":{"f":[1,null]}},{"name":"c","type":"profile","frames":{"f":[1]}},{"name":"d","type":"profile","frames":[]},{"name":"e","type":"profile","frames":{"f":{}}}`,
			nil, [NumSkips]int{SkipKind: 5}},
		{"what belongs to another type is ignored", `{"name":"x","type":"gauge","value":1,"bins":"x","frames":[]}`, []string{"x gauge 1"}, [NumSkips]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, skipped, err := parse(t, `{"version":1,"metrics":[`+c.entries+`]}`)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) || skipped != c.skipped {
				t.Errorf("got  %q %v\nwant %q %v", got, skipped, c.want, c.skipped)
			}
		})
	}
}

func TestDocuments(t *testing.T) {
	ok := []string{
		`{"version":1}`, `{"metrics":[],"version":1,"log":[],"context":{}}`, ` {"version":1.0} ` + "\n",
		`{"version":1,"metrics":null,"metrics":[]}`, `{"version":2,"version":1}`, `{"version":1,"log":7,"context":[],"start_ts":"x","write_ts":{},"pid":-1}`,
		`{"version":1,"deep":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`,
	}
	for _, data := range ok {
		if got, _, err := parse(t, data); err != nil || len(got) != 0 {
			t.Errorf("%s: %q, %v", data, got, err)
		}
	}
	for data, cause := range map[string]Cause{
		``: CauseSyntax, ` `: CauseSyntax, `{`: CauseSyntax, `{"version":1`: CauseSyntax, `{"version":1,}`: CauseSyntax, `{"version":1}{`: CauseSyntax,
		"{\"version\":1}\x00": CauseSyntax, `{"version"}`: CauseSyntax, `{version:1}`: CauseSyntax, `{"version":1 "pid":2}`: CauseSyntax, `{"version":01}`: CauseSyntax,
		`{"version":+1}`: CauseSyntax, `{"version":1.}`: CauseSyntax, `{"version":1e}`: CauseSyntax, `{"version":-}`: CauseSyntax, `{"version":nul}`: CauseSyntax,
		`{"version":1,"metrics":[}`: CauseSyntax, `{"version":1,"metrics":[{"name":"a]}`: CauseSyntax, `{"version":1,"metrics":[{"name":"\x"}]}`: CauseSyntax,
		`{"version":1,"metrics":[{"name":"\u12"}]}`: CauseSyntax, `{"version":1,"metrics":[{"name":"a\`: CauseSyntax, `{"version":1,"metrics":[1,]}`: CauseSyntax,
		`{"version":1,"metrics":[{"value":nan(}]}`: CauseSyntax, `{"version":1,"u":x}`: CauseSyntax, `{"version":1,"u":[1 2]}`: CauseSyntax,
		"\ufeff{\"version\":1}": CauseSyntax,
		`{"version":1,"deep":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`: CauseSyntax,
		`{}`: CauseVersion, `{"version":2,"metrics":{}}`: CauseVersion, `{"version":"1"}`: CauseVersion, `{"version":null}`: CauseVersion, `{"version":1.5}`: CauseVersion,
		`{"version":false}`: CauseVersion, `[]`: CauseVersion, `7`: CauseVersion, `"x"`: CauseVersion, `null`: CauseVersion,
		`{"version":1,"metrics":null}`: CauseMetrics, `{"version":1,"metrics":{},"log":[]}`: CauseMetrics,
	} {
		_, _, err := parse(t, data)
		if err == nil || err.(*FileError).Cause != cause {
			t.Errorf("%s: %v, want %v", data[:min(len(data), 60)], err, cause)
		}
	}
}

func TestTimesAndContext(t *testing.T) {
	var p Parser
	doc, err := p.Parse([]byte(`{"version":1,"start_ts":1.7e18,"write_ts":-5,"context":{"slurm_job_id":4711,"rank":"0","local_rank":"","world_size":null,
		"master_addr":["x"],"rank":"3","custom":{"a":1}}}`), &History{})
	if err != nil {
		t.Fatal(err)
	}
	want := []series.Tag{{Key: "process.rank", Value: "3"}, {Key: "slurm.job_id", Value: "4711"}}
	if doc.Start != 1700000000000000000 || doc.Write != 0 || !slices.Equal(doc.Context, want) {
		t.Errorf("start %d, write %d, context %v", doc.Start, doc.Write, doc.Context)
	}
}

// TestHistory: entries and frames come, go and change places between documents.
func TestHistory(t *testing.T) {
	var p Parser
	var h History
	for _, step := range []struct {
		entries string
		want    []string
	}{
		{`{"name":"a","type":"gauge","tags":{"k":"v"},"value":1},{"name":"p","type":"profile","tags":{},"frames":{"f":[1,1],"g":[2,2]}}`, []string{"a gauge k=v 1", "p profile f=1/1 g=2/2"}},
		{`{"name":"a","type":"gauge","tags":{"k":"v"},"value":2},{"name":"p","type":"profile","tags":{},"frames":{"f":[3,3],"g":[4,4],"h":[5,5]}}`, []string{"a gauge k=v 2", "p profile f=3/3 g=4/4 h=5/5"}},
		{`{"name":"b","type":"gauge","tags":{"k":"w"},"value":3},{"name":"a","type":"gauge","tags":{"k":"v"},"value":4},{"name":"p","type":"profile","tags":{},"frames":{"g":[6,6]}}`, []string{"b gauge k=w 3", "a gauge k=v 4", "p profile g=6/6"}},
		{`{"name":"b","type":"counter","tags":{"k":"w"},"value":3},{"name":"a","type":"gauge","value":4},{"name":"p","type":"profile","tags":{},"frames":{"g":[6,6],"g":[7,7]}}`, []string{"b counter k=w 3", "a gauge 4", "p profile g=7/7"}},
		{`{"name":"b","type":"counter","tags":{"k":"w"},"value":3,"tags":{}},{"name":"a","type":"gauge","value":4},{"name":"p","type":"profile","tags":{},"frames":{"g":[6,6],"g":[8,8]}}`, []string{"b counter 3", "a gauge 4", "p profile g=8/8"}},
		{`{"value":1,"name":"b","type":"counter"}`, []string{"b counter 1"}},
		{`{"value":1,"type":"counter"}`, nil},
		{`{"name":"b","type":"counter","value":5,"tags":{"z":"1"}}`, []string{"b counter z=1 5"}},
		{`{"name":"b","type":"counter","value":6}`, []string{"b counter 6"}},
		{``, nil},
		{`{"name":"b","type":"counter","tags":{"k":"w"},"value":5}`, []string{"b counter k=w 5"}},
	} {
		for range 2 {
			doc, err := p.Parse([]byte(`{"version":1,"metrics":[`+step.entries+`]}`), &h)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(doc); !slices.Equal(got, step.want) {
				t.Errorf("%s:\n got %q\nwant %q", step.entries, got, step.want)
			}
		}
	}
}

// TestHistoryKnowsTextFromNames: a remembered name must not match text that reads otherwise.
func TestHistoryKnowsTextFromNames(t *testing.T) {
	var p Parser
	var h History
	if _, err := p.Parse([]byte(`{"version":1,"metrics":[{"name":"p","type":"profile","frames":{"a\"b":[1,1]}}]}`), &h); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Parse([]byte(`{"version":1,"metrics":[{"name":"p","type":"profile","frames":{"a"b":[1,1]}}]}`), &h); err == nil {
		t.Error("a quote inside a name is taken for one that is escaped")
	}
}

func TestLimits(t *testing.T) {
	var p Parser
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	doc, err := p.Parse([]byte(`{"version":1,"metrics":[`+many(MaxEntries+7, `{"name":"g%d","type":"gauge","value":1}`)+`]}`), &History{})
	if err != nil || len(doc.Entries) != MaxEntries || doc.Skipped[SkipLimit] != 7 {
		t.Errorf("entries: %d, skipped %v, %v", len(doc.Entries), doc.Skipped, err)
	}
	doc, err = p.Parse([]byte(`{"version":1,"metrics":[{"name":"t","type":"gauge","tags":{`+many(MaxTags+1, `"k%d":"v"`)+`},"value":1},{"name":"u","type":"gauge","value":1}]}`), &History{})
	if err != nil || len(doc.Entries) != 1 || doc.Skipped[SkipLimit] != 1 {
		t.Errorf("tags: %d, skipped %v, %v", len(doc.Entries), doc.Skipped, err)
	}
	// The value of frame i is i: of any number of frames the last 250 stay, in their order.
	var frames []string
	for i := range 3 * pruneFrames {
		frames = append(frames, fmt.Sprintf(`"f%d":[%d,1]`, i, i))
	}
	doc, err = p.Parse([]byte(`{"version":1,"metrics":[{"name":"p","type":"profile","frames":{`+strings.Join(frames, ",")+`}}]}`), &History{})
	if err != nil {
		t.Fatal(err)
	}
	got := doc.Entries[0].Frames
	if len(got) != series.MaxFrames || got[0].Name != fmt.Sprint("f", 3*pruneFrames-series.MaxFrames) || got[len(got)-1].Name != fmt.Sprint("f", 3*pruneFrames-1) {
		t.Errorf("%d frames, %v first", len(got), got[0])
	}
	// Of equal values the first 250 stay.
	doc, err = p.Parse([]byte(`{"version":1,"metrics":[{"name":"p","type":"profile","frames":{`+many(300, `"f%d":[5,1]`)+`,"z":[9,1]}}]}`), &History{})
	if err != nil {
		t.Fatal(err)
	}
	if got = doc.Entries[0].Frames; len(got) != series.MaxFrames || got[0].Name != "f0" || got[248].Name != "f248" || got[249].Name != "z" {
		t.Errorf("%d frames, %v ... %v", len(got), got[0], got[len(got)-2:])
	}
}

// TestInternerIsBounded: names that never come again are forgotten.
func TestInternerIsBounded(t *testing.T) {
	var in interner
	name := make([]byte, 1000)
	for i := range 20000 {
		copy(name, fmt.Sprint(i))
		in.get(name)
	}
	held := 0
	for _, generation := range []map[string]string{in.young, in.old} {
		for s := range generation {
			held += len(s)
		}
	}
	if held > 2*(maxInterned+len(name)) {
		t.Errorf("%d bytes are held", held)
	}
	in.get(make([]byte, maxInternedString+1))
	if _, kept := in.young[string(make([]byte, maxInternedString+1))]; kept {
		t.Error("a string of no writer's length is held")
	}
}
