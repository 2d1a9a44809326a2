package prom

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPages(t *testing.T) {
	for _, c := range []struct {
		name, header, body string
		want               []string
		malformed          int
	}{
		{name: "numbers that are none, in the spellings of several C libraries",
			body: "# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total 0\n" +
				"# TYPE llamacpp:n_busy_slots_per_decode counter\nllamacpp:n_busy_slots_per_decode -nan\n" +
				"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n" +
				"# TYPE llamacpp:predicted_tokens_seconds gauge\nllamacpp:predicted_tokens_seconds nan(ind)\n" +
				"# TYPE m gauge\nm{a=\"}\"} 1.#QNAN\nm{b=\"\"} -Infinity 1700000000000\nm{c=\"\"} +Inf\n" +
				"# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred 2\n",
			want: []string{"llamacpp:n_decode counter {} 0.0", "llamacpp:requests_deferred gauge {} 2.0", "llamacpp:requests_processing gauge {} 0.0"},
		},
		{name: "labels of ranks stay, those of worker processes are added up",
			body: "# TYPE r gauge\nr{dp_rank=\"0\",tp_rank=\"0\"} 3\nr{dp_rank=\"0\",tp_rank=\"1\"} 3\n" +
				"# TYPE n_total counter\nn_total{m=\"x\",pid=\"91\"} 5.0\nn_total{m=\"x\",pid=\"92\"} 7.0\n",
			want: []string{`n counter {m="x"} 12.0`, `r gauge {dp_rank="0",tp_rank="0"} 3.0`, `r gauge {dp_rank="0",tp_rank="1"} 3.0`},
		},
		{name: "a line shown twice counts once",
			body: "# TYPE a_total counter\na_total{x=\"1\",y=\"2\"} 5\na_total{y=\"2\",x=\"1\"} 6\na_total{y=\"2\",x=\"1\"} 7\n# TYPE g gauge\ng 1\ng 2\n",
			want: []string{`a counter {x="1",y="2"} 7.0`, "g gauge {} 2.0"},
		},
		{name: "one name of two types", body: "# TYPE q gauge\nq 3\n# TYPE q_total counter\nq_total 811\n",
			want: []string{"q counter {} 811.0", "q gauge {} 3.0"}},
		{name: "two counters that would be one series", body: "# TYPE q counter\nq 3\n# TYPE q_total counter\nq_total 811\n",
			want: []string{"q counter {} 3.0"}},
		{name: "histogram beyond its last bound", body: histogramOf("0.5 4", "1.0 4", "+Inf 10"), want: []string{
			"h histogram {} count 10 sum 1 bounds [0.5 1] counts [4 0 6]"}},
		{name: "histogram all above", body: histogramOf("0.5 4", "+Inf 10"), want: []string{
			"h histogram {} count 10 sum 1 bounds [0.5] counts [4 6]"}},
		{name: "histogram with bad buckets", body: histogramOf("x 4", "0.5 NaN", "1 2", "NaN 3", "-Inf 0", "2 5", "+Inf 10"), want: []string{
			"h histogram {} count 10 sum 1 bounds [1 2] counts [2 3 5]"}},
		{name: "equal bounds in two spellings", body: histogramOf("1 2", "1.0 3", "1e0 4", "+Inf 10"), want: []string{
			"h histogram {} count 10 sum 1 bounds [1] counts [4 6]"}},
		{name: "parts with unequal bounds",
			body: "# TYPE h histogram\n" +
				"h_bucket{pid=\"1\",le=\"1\"} 1\nh_bucket{pid=\"1\",le=\"4\"} 3\nh_bucket{pid=\"1\",le=\"+Inf\"} 6\nh_sum{pid=\"1\"} 1\nh_count{pid=\"1\"} 6\n" +
				"h_bucket{pid=\"2\",le=\"2\"} 10\nh_bucket{pid=\"2\",le=\"+Inf\"} 30\nh_sum{pid=\"2\"} 2\nh_count{pid=\"2\"} 30\n",
			want: []string{"h histogram {} count 36 sum 3 bounds [1 2 4] counts [1 10 2 23]"}},
		{name: "a part without bounds before one with",
			body: "# TYPE h histogram\nh_sum{pid=\"1\"} 1\nh_count{pid=\"1\"} 6\nh_bucket{pid=\"2\",le=\"2\"} 10\nh_sum{pid=\"2\"} 2\nh_count{pid=\"2\"} 30\n",
			want: []string{"h histogram {} count 36 sum 3 bounds [2] counts [10 0]"}},
		{name: "counts that are no integers", body: "# TYPE h histogram\nh_bucket{le=\"1\"} 2.9\nh_sum 0.5\nh_count 3.99\n# TYPE i histogram\ni_sum 1\ni_count -1\n# TYPE j histogram\nj_sum 1\nj_count 1e300\n",
			want: []string{"h histogram {} count 3 sum 0.5 bounds [1] counts [2 0]", "j histogram {} count 18446744073709551615 sum 1"}},
		{name: "unknown type word, no type, and buckets without type",
			body: "# TYPE a whatever\na 1\nb{x=\"\"} 2\nc_bucket{le=\"1\"} 3\nc_bucket{le=\"+Inf\"} 3\nc_sum 1\n",
			want: []string{"a gauge {} 1.0", `b gauge {x=""} 2.0`, "c_sum gauge {} 1.0"}},
		{name: "declaration behind the samples of another family",
			body: "# TYPE a counter\n# TYPE b gauge\na 1\nb 2\na_total{x=\"1\"} 3\n",
			want: []string{`a counter {x="1"} 3.0`, "a counter {} 1.0", "b gauge {} 2.0"}},
		{name: "layout that only people make",
			body: "\ufeff  \r\n# a comment\r\n  # TYPE a gauge\r\n\ta{x=\"1\"}\t1  \r\n\r\n#TYPE b counter\n   b 2",
			want: []string{`a gauge {x="1"} 1.0`, "b gauge {} 2.0"}},
		{name: "quotes that never close", malformed: 3,
			body: "# TYPE a gauge\na{x=\"1} 1\na{x=\"1\",y=\"2} 2\na{z=\"\\\"} 3\na{z=\"\\\"\"} 4\n# HELP a it's \"quoted\n",
			want: []string{`a gauge {z="\""} 4.0`}},
		{name: "NUL", body: "a 1\n\x00\nb 2\nc{x=\"\x00\"} 3\nd 4\n", malformed: 2, want: []string{"a gauge {} 1.0", "b gauge {} 2.0", "d gauge {} 4.0"}},
		{name: "invalid UTF-8", body: "a{x=\"\xff\"} 1\n", want: []string{`a gauge {x="�"} 1.0`}},
		{name: "Latin-1", header: "text/plain; charset=ISO-8859-1", body: "a{x=\"\xe9\"} 1\n", want: []string{`a gauge {x="é"} 1.0`}},
		{name: "a page in a JSON string", body: `  "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 12\nx{l=\"\\\"\"} 1\n"`,
			want: []string{"llamacpp:prompt_tokens counter {} 12.0", `x gauge {l="\""} 1.0`}},
		{name: "quoted names", body: "# TYPE \"my.metric\" gauge\n{\"my.metric\",\"my.label\"=\"v\"} 5\n",
			want: []string{`my.metric gauge {my.label="v"} 5.0`}},
		{name: "text where a number belongs", body: "a 1\nb two\nc 1_0\nd 0x1p4\ne\n", malformed: 4, want: []string{"a gauge {} 1.0"}},
		{name: "long values and keys are cut", body: "a{" + strings.Repeat("k", 60) + "=\"" + strings.Repeat("ä", 300) + "\"} 1\n",
			want: []string{"a gauge {" + strings.Repeat("k", 50) + "=\"" + strings.Repeat("ä", 250) + "\"} 1.0"}},
		{name: "a name of the label __name__", body: "a{\"__name__\"=\"b\"} 1\n", want: []string{"a gauge {} 1.0"}},
		{name: "OpenMetrics", header: "application/openmetrics-text; version=1.0.0; charset=utf-8",
			body: "# HELP r Requests.\n# TYPE r counter\n# UNIT r things\nr_total{x=\"1\"} 3.0 # {trace_id=\"abc\"} 1.0 1.7e9\nr_created{x=\"1\"} 1.7e9\n" +
				"# TYPE h histogram\nh_bucket{le=\"1.0\"} 2 # {} 0.5\nh_bucket{le=\"+Inf\"} 3\nh_count 3\nh_sum 4.5\nh_created 1.7e9\n" +
				"# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE s stateset\ns{s=\"a\"} 1\n# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_gcount 1\ngh_gsum 1\n" +
				"# TYPE u unknown\nu 7 1700000000.5\n# EOF\nlate 1\n",
			want: []string{"h histogram {} count 3 sum 4.5 bounds [1] counts [2 1]", `r counter {x="1"} 3.0`, "u gauge {} 7.0"}},
		{name: "OpenMetrics without its end and with a broken line", header: "application/openmetrics-text", malformed: 1,
			body: "# TYPE r counter\nr_total 3.0\nr_total{ 4\n\n# TYPE g gauge\ng 1\n",
			want: []string{"g gauge {} 1.0", "r counter {} 3.0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := c.header
			if header == "" {
				header = classic
			}
			p := NewParser(100)
			for range 3 { // also from memory
				page := parse(t, p, header, c.body, 1)
				assert.Equal(t, c.want, describeAll(page.Series))
				assert.Equal(t, c.malformed, page.Malformed, page.FirstMalformed)
			}
		})
	}
}

func histogramOf(buckets ...string) string {
	var b strings.Builder
	b.WriteString("# TYPE h histogram\n")
	for _, bucket := range buckets {
		le, n, _ := strings.Cut(bucket, " ")
		fmt.Fprintf(&b, "h_bucket{le=%q} %s\n", le, n)
	}
	b.WriteString("h_sum 1\nh_count 10\n")
	return b.String()
}

func TestNotMetrics(t *testing.T) {
	for _, body := range []string{
		"", "\n\n", "<html><body>502 Bad Gateway</body></html>", "<!DOCTYPE html>\nmetric 1\n", "Internal Server Error\x00"[:5],
		"[{\"gpuMemUsage\": 1}]", "# only a comment\n", "{\"detail\":\"Not Found\"}", "\"just text\"",
	} {
		_, err := NewParser(10).Parse([]byte(body), classic, 1)
		assert.ErrorIs(t, err, ErrNotMetrics, body)
	}
	for _, body := range []string{"# HELP a b\n", "# TYPE a gauge", "# made by x\n\na 1\n", "a 1"} {
		_, err := NewParser(10).Parse([]byte(body), classic, 1)
		assert.NoError(t, err, body)
	}
}

func TestCreatedAndResets(t *testing.T) {
	const second = 1_000_000_000
	p := NewParser(10)
	one := func(body string, now int64) *Series {
		page := parse(t, p, classic, body, now)
		require.Len(t, page.Series, 1)
		return page.Series[0]
	}
	head := "# TYPE c_total counter\n# TYPE c_created gauge\n"
	s := one(head+"c_total{e=\"0\"} 10\nc_created{e=\"0\"} 1700.5\n", 2000*second)
	assert.Equal(t, int64(1700.5*second), s.Created)
	assert.Zero(t, s.Reset)
	s = one(head+"c_created{e=\"0\"} 1700.5\nc_total{e=\"0\"} 10\n", 2001*second)
	assert.Equal(t, int64(1700.5*second), s.Created)
	assert.Zero(t, s.Reset, "an equal total is no reset")
	s = one(head+"c_created{e=\"0\"} 2001.5\nc_total{e=\"0\"} 3\n", 2002*second)
	assert.Equal(t, int64(2001.5*second), s.Created)
	assert.Equal(t, int64(2001*second), s.Reset)
	s = one(head+"c_total{e=\"0\"} 4\n", 2003*second)
	assert.Zero(t, s.Created, "the page no longer says")
	assert.Equal(t, int64(2001*second), s.Reset, "the reset is remembered")
	for _, odd := range []string{"NaN", "+Inf", "-5", "0", "99999"} {
		assert.Zero(t, one(head+"c_total{e=\"0\"} 4\nc_created{e=\"0\"} "+odd+"\n", 2004*second).Created, odd)
	}

	h := NewParser(10)
	page := parse(t, h, classic, "# TYPE h histogram\nh_sum 1\nh_count 10\n", 1)
	require.Len(t, page.Series, 1)
	page = parse(t, h, classic, "# TYPE h histogram\nh_sum 2\nh_count 9\n", 2)
	assert.Equal(t, int64(1), page.Series[0].Reset)

	merged := NewParser(10)
	page = parse(t, merged, classic, "# TYPE c_total counter\nc_total{pid=\"1\"} 1\nc_total{pid=\"2\"} 1\n"+
		"c_created{pid=\"1\"} 1200\nc_created{pid=\"2\"} 1100\n", 2000*second)
	require.Len(t, page.Series, 1)
	assert.Equal(t, int64(1100*second), page.Series[0].Created, "the earliest of the parts")
}

func TestSeriesKeepTheirIdentity(t *testing.T) {
	p := NewParser(10)
	body := "# HELP a First\\nline.\n# TYPE a gauge\na{x=\"1\"} %d\n# TYPE h histogram\nh_bucket{le=\"1\"} %[1]d\nh_bucket{le=\"+Inf\"} %[1]d\nh_sum 1\nh_count %[1]d\n"
	first := parse(t, p, classic, fmt.Sprintf(body, 1), 1)
	a, h := first.Series[0], first.Series[1]
	assert.Equal(t, "First\nline.", a.Help())
	second := parse(t, p, classic, fmt.Sprintf(body, 2), 2)
	assert.Same(t, a, second.Series[0])
	assert.Same(t, h, second.Series[1])
	assert.Equal(t, "h histogram {} count 2 sum 1 bounds [1] counts [2 0]", describe(h))

	// Another type under the same name, then the first again.
	third := parse(t, p, classic, "# TYPE a counter\na{x=\"1\"} 3\n", 3)
	assert.Equal(t, []string{`a counter {x="1"} 3.0`}, describeAll(third.Series))
	fourth := parse(t, p, classic, "# HELP a Changed.\n# TYPE a gauge\na{x=\"1\"} 4\nb 1\n", 4)
	assert.Equal(t, []string{`a gauge {x="1"} 4.0`, "b gauge {} 1.0"}, describeAll(fourth.Series))
	assert.Equal(t, "Changed.", fourth.Series[0].Help())
	// A bucket that the page no longer has is gone; one that is new is there.
	fifth := parse(t, p, classic, "# TYPE h histogram\nh_bucket{le=\"2\"} 5\nh_bucket{le=\"+Inf\"} 6\nh_sum 1\nh_count 6\n", 5)
	assert.Equal(t, []string{"h histogram {} count 6 sum 1 bounds [2] counts [5 1]"}, describeAll(fifth.Series))
}

// A line that is known from the page before is read like one that is new.
func TestKnownLinesReadLikeNewOnes(t *testing.T) {
	const page = "# HELP a Help.\n# TYPE a gauge\na 1\na{x=\"}\"} 2 1700000000000\n# TYPE c_total counter\n# HELP c_total Late.\nc_total 3\n"
	for _, change := range [][2]string{
		{"a 1", "a 4"}, {"a 1", "a  4\t5 "}, {"a 1", "a -nan"}, {"a 1", "a NaN"}, {"a 1", "a 1_0"}, {"a 1", "a 0x1p4"}, {"a 1", "a"},
		{"a 1", "a 1 2 3"}, {"a 1", "a 1 -2"}, {"a 1", "a 1 99999999999999999999"}, {"a 1", "a 1 x"}, {"a 1", "a 1}"}, {"a 1", "a{} 1"},
		{"} 2", "} 2}"}, {"} 2", "}2"}, {"} 2", "} +Inf"}, {"} 2 1700000000000", "}"},
		{"# HELP a Help.", "# HELP a Other."}, {"# HELP a Help.\n", ""}, {"# TYPE a gauge", "# TYPE a counter"}, {"# TYPE a gauge\n", ""},
		{"# TYPE c_total counter", "# TYPE c_total gauge"}, {"# TYPE c_total counter", "# TYPE b gauge\n# TYPE c_total counter"},
		{"# HELP c_total Late.", "# HELP c_total \\n"}, {"# TYPE c_total counter\n# HELP c_total Late.\nc_total 3\n", ""},
		{"c_total 3", "c_total 3\nc_total 4"}, {"# TYPE c_total counter", "# TYPE c_total info"},
	} {
		other := strings.Replace(page, change[0], change[1], 1)
		require.NotEqual(t, page, other)
		known := NewParser(10)
		parse(t, known, classic, page, 1)
		parse(t, known, classic, page, 2)
		for now := range int64(2) {
			got, want := parse(t, known, classic, other, 3+now), parse(t, NewParser(10), classic, other, 3+now)
			assert.Equal(t, describeAll(want.Series), describeAll(got.Series), "%q", change)
			assert.Equal(t, want.Malformed, got.Malformed, "%q", change)
			assert.Equal(t, want.FirstMalformed, got.FirstMalformed, "%q", change)
			if now == 1 && change[1] != "" {
				for i := range want.Series {
					assert.Equal(t, want.Series[i].Help(), got.Series[i].Help(), "%q", change)
				}
			}
		}
	}
}

func TestTakenLabels(t *testing.T) {
	p := NewParser(10, "engine", "exported_model")
	for range 2 {
		page := parse(t, p, classic, `# TYPE a gauge
a{engine="0",model="m"} 1
a{engine="1",exported_engine="x"} 2
a{exported_model="n"} 3
`, 1)
		assert.Equal(t, []string{
			`a gauge {exported_engine="0",model="m"} 1.0`,
			`a gauge {exported_engine="x",exported_exported_engine="1"} 2.0`,
			`a gauge {exported_exported_model="n"} 3.0`,
		}, describeAll(page.Series))
	}
}

func TestLimits(t *testing.T) {
	t.Run("100,000 series", func(t *testing.T) {
		p := NewParser(300)
		var b strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&b, "a{x=\"%d\"} 1\n", i)
		}
		for range 2 {
			page := parse(t, p, classic, b.String(), 1)
			assert.Len(t, page.Series, 300)
			assert.Equal(t, 99_700, page.Dropped)
			assert.Zero(t, page.Malformed)
		}
		// Other series get in when those are gone.
		for i := range 3 {
			page := parse(t, p, classic, "b 1\n", int64(2+i))
			if i > 0 {
				assert.Equal(t, []string{"b gauge {} 1.0"}, describeAll(page.Series))
			}
		}
	})
	t.Run("new series on each page", func(t *testing.T) {
		p := NewParser(300)
		for page := range 20 {
			var b strings.Builder
			for i := range 2000 {
				fmt.Fprintf(&b, "a{x=\"%d_%d\",pid=\"%d\"} 1\n", page, i, i)
			}
			parse(t, p, classic, b.String(), int64(page))
			assert.LessOrEqual(t, len(p.series), 300)
			assert.LessOrEqual(t, len(p.parts), 1000)
			assert.LessOrEqual(t, len(p.created), 1000)
			assert.LessOrEqual(t, len(p.lines), 2*maxLines)
		}
	})
	t.Run("created times of nothing", func(t *testing.T) {
		p := NewParser(300)
		for page := range 3 * keepPages {
			var b strings.Builder
			for i := range 100 {
				fmt.Fprintf(&b, "a_created{x=\"%d_%d\"} 1\n", page, i)
			}
			b.WriteString("b 1\n")
			parse(t, p, classic, b.String(), int64(page))
		}
		assert.LessOrEqual(t, len(p.created), (keepPages+2)*100)
		assert.LessOrEqual(t, len(p.lines), (keepPages+2)*100)
	})
	t.Run("buckets", func(t *testing.T) {
		p := NewParser(10)
		var b strings.Builder
		b.WriteString("# TYPE h histogram\nh_sum 1\nh_count 1\n")
		for i := range 3000 {
			fmt.Fprintf(&b, "h_bucket{le=\"%d\"} 1\n", i)
		}
		page := parse(t, p, classic, b.String(), 1)
		assert.Len(t, page.Series[0].Bounds, maxBuckets)
		assert.Equal(t, 3000-maxBuckets, page.Dropped)
	})
	t.Run("lines that stop the tokenizer", func(t *testing.T) {
		page := parse(t, NewParser(10), classic, "a 1\n"+strings.Repeat("b two\n", 20_000)+"c 3\n", 1)
		assert.Equal(t, 20_001, page.Malformed+page.Dropped)
		assert.Equal(t, []string{"a gauge {} 1.0"}, describeAll(page.Series))
	})
	t.Run("labels", func(t *testing.T) {
		p := NewParser(10)
		for range 2 {
			text := "a 1\n"
			for _, n := range []int{maxLabels - 1, maxLabels, 5000} {
				text += fmt.Sprintf("b%d{", n)
				for i := range n {
					text += fmt.Sprintf("l%d=\"\",", i)
				}
				text += "} 1\n"
			}
			page := parse(t, p, classic, text+"c 3\n", 1)
			if assert.Len(t, page.Series, 3) {
				assert.Len(t, page.Series[1].Tags, maxLabels-1)
			}
			assert.Equal(t, 2, page.Dropped)
		}
	})
	t.Run("a long line", func(t *testing.T) {
		page := parse(t, NewParser(10), classic, "a 1\nb{x=\""+strings.Repeat("y", maxLine)+"\"} 2\nc 3\n", 1)
		assert.Equal(t, []string{"a gauge {} 1.0", "c gauge {} 3.0"}, describeAll(page.Series))
		assert.Equal(t, 1, page.Malformed)
		assert.LessOrEqual(t, len(page.FirstMalformed), 130)
	})
}

// TestSteadyState says that what is kept does not grow with the pages, and what is allocated does not depend on their
// length.
func TestSteadyState(t *testing.T) {
	body, err := os.ReadFile("testdata/load-page.txt")
	require.NoError(t, err)
	p := NewParser(5000)
	buffer := make([]byte, 0, len(body)+1)
	once := func() {
		buffer = append(buffer[:0], body...)
		page, err := p.Parse(buffer, classic, 1)
		require.NoError(t, err)
		require.NotEmpty(t, page.Series)
	}
	once()
	lines, parts, all, created := len(p.lines), len(p.parts), len(p.series), len(p.created)
	assert.LessOrEqual(t, testing.AllocsPerRun(keepPages+10, once), 40.0, "for a page of 1,000 lines")
	assert.Equal(t, []int{lines, parts, all, created}, []int{len(p.lines), len(p.parts), len(p.series), len(p.created)})
	runtime.KeepAlive(p)
}

// FuzzNeighbours: whatever stands on other lines of a page, a sample of a name of its own is read.
func FuzzNeighbours(f *testing.F) {
	f.Add([]byte("a{b=\"c\\\n\"} 1\n\x00\n# TYPE\n# TYPE a\n#\n{} 1\na 1 x\na{ 1\n"), []byte("# HELP a \\\nx\n# TYPE zz_before histogram\nb 0x1p1"))
	f.Add([]byte("# EOF\na 1"), []byte("{\"a"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if bytes.Contains(before, []byte("zz")) || bytes.Contains(after, []byte("zz")) || len(before)+len(after) > 1<<16 {
			return
		}
		body := fmt.Appendf(nil, "# TYPE zz_first gauge\nzz_first{k=\"v\"} 1\n%s\n# TYPE zz_middle counter\nzz_middle_total 2\nzz_plain 4\n%s\n# TYPE zz_last gauge\nzz_last 3\n", before, after)
		page, err := NewParser(maxLines).Parse(body, classic, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := describeAll(page.Series)
		for _, want := range []string{"zz_first gauge {k=\"v\"} 1.0", "zz_middle counter {} 2.0", "zz_plain gauge {} 4.0", "zz_last gauge {} 3.0"} {
			if !slices.Contains(got, want) {
				t.Fatalf("%s is missing from %q: %q", want, body, got)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/reference-page.txt"} {
		body, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(body, false)
	}
	f.Add([]byte("# TYPE r counter\nr_total 3.0 # {a=\"b\"} 1\nr_created 1\n# EOF\n"), true)
	f.Add([]byte("\"# TYPE a gauge\\na -nan\\n\""), false)
	f.Add([]byte("# TYPE \"a.b\" histogram\n{\"a.b_bucket\",le=\"1\"} 1\n{\"a.b_sum\"} 1\n{\"a.b_count\"} 1\n"), true)
	f.Add([]byte("l 0\n# TYPE l counter\nl 1\n# TYPE l gauge\nl{a=\"b\"} 2\nm_total 3\n# TYPE m counter\n"), false)
	f.Add([]byte("a{b=\"c\\\n\"} 1\n\x00\n# TYPE\n# TYPE a\n#\n{} 1\n"), false)
	f.Fuzz(func(t *testing.T, body []byte, openMetrics bool) {
		header := classic
		if openMetrics {
			header = openMetricsType
		}
		p := NewParser(50)
		var before []string
		for now := range int64(3) {
			page, err := p.Parse(append([]byte(nil), body...), header, now+1)
			if err != nil {
				return
			}
			if n := strings.Count(string(body), "\n") + strings.Count(string(body), "\\n") + 1; page.Malformed+page.Dropped+len(page.Series) > n {
				t.Fatalf("%d malformed, %d dropped and %d series of %d lines", page.Malformed, page.Dropped, len(page.Series), n)
			}
			seen := make(map[string]bool)
			for _, s := range page.Series {
				if !finite(s.Value) || !finite(s.Sum) || len(s.Bounds) > 0 && len(s.Counts) != len(s.Bounds)+1 || s.Name == "" {
					t.Fatal(describe(s))
				}
				key := fmt.Sprint(s.Name, s.Type, s.Tags)
				if seen[key] {
					t.Fatalf("%s twice", describe(s))
				}
				seen[key] = true
			}
			// The same page from memory is the same.
			after := describeAll(page.Series)
			if now > 0 && strings.Join(before, "\n") != strings.Join(after, "\n") {
				t.Fatalf("the page gave %q, then %q", before, after)
			}
			before = after
		}
	})
}

func BenchmarkParse(b *testing.B) {
	half, err := os.ReadFile("testdata/load-page.txt")
	require.NoError(b, err)
	body := append(append([]byte(nil), half...), strings.ReplaceAll(string(half), "demo:", "more:")...)
	p := NewParser(5000)
	buffer := make([]byte, 0, len(body)+1)
	b.ReportAllocs()
	start, n := cpuTime(b), 0
	for b.Loop() {
		buffer = append(buffer[:0], body...)
		if _, err := p.Parse(buffer, classic, 1); err != nil {
			b.Fatal(err)
		}
		n++
	}
	// On a machine that does other things too, the processor's time says more than the clock's.
	b.ReportMetric(float64(cpuTime(b)-start)/float64(n), "cpu-ns/op")
	b.ReportMetric(float64(strings.Count(string(body), "\n")), "lines")
}

func cpuTime(b *testing.B) int64 {
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}
