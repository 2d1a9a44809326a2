package prom

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

const classic = "text/plain; version=0.0.4; charset=utf-8"

// describe writes a series as one line: name, type, tags, value.
func describe(s *Series) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s {", s.Name, s.Type)
	for i, t := range s.Tags {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%q", t.Key, t.Value)
	}
	b.WriteString("} ")
	if s.Type != series.Histogram {
		b.Write(series.AppendFloat(nil, s.Value))
		return b.String()
	}
	fmt.Fprintf(&b, "count %d sum %v", s.Count, s.Sum)
	if len(s.Bounds) > 0 {
		fmt.Fprintf(&b, " bounds %v counts %v", s.Bounds, s.Counts)
	}
	return b.String()
}

func describeAll(all []*Series) []string {
	var out []string
	for _, s := range all {
		out = append(out, describe(s))
	}
	slices.Sort(out)
	return out
}

func parse(t testing.TB, p *Parser, header, body string, now int64) Page {
	t.Helper()
	page, err := p.Parse([]byte(body), header, now)
	require.NoError(t, err)
	return page
}

// distribution is the series as the store would see it: bins at their upper bounds, the last taking what lies above.
func distribution(s *Series) series.Distribution {
	d := series.Distribution{HasTotals: true, Count: s.Count, Sum: series.Float(s.Sum)}
	counts := slices.Clone(s.Counts)
	if n := len(s.Bounds); n > 0 {
		counts[n-1] += counts[n]
	}
	for i, bound := range s.Bounds {
		if counts[i] > 0 {
			d.Bins = append(d.Bins, series.Bin{Value: series.Float(bound), Count: counts[i]})
		}
	}
	return d
}

// TestReference holds the page against what the reference made of it. Where the design departs, the case is below.
func TestReference(t *testing.T) {
	type reference struct {
		Name, Type string
		Tags       map[string]string
		Stats      map[string]*float64
	}
	body, err := os.ReadFile("testdata/reference-page.txt")
	require.NoError(t, err)
	answer, err := os.ReadFile("testdata/reference-metrics.json")
	require.NoError(t, err)
	var want []reference
	require.NoError(t, json.Unmarshal(answer, &want))

	got := make(map[string]*Series)
	key := func(name, typ string, tags map[string]string) string { return fmt.Sprint(name, " ", typ, " ", tags) }
	page := parse(t, NewParser(5000), classic, string(body), 1)
	for _, s := range page.Series {
		tags := make(map[string]string)
		for _, tag := range s.Tags {
			tags[tag.Key] = tag.Value
		}
		got[key(s.Name, s.Type.String(), tags)] = s
	}
	assert.Zero(t, page.Malformed, page.FirstMalformed)

	departures := map[string]string{
		// What says when counting began is no measurement.
		"demo:tokens_created gauge map[engine:0]":       "",
		"demo:ttft_seconds_created gauge map[engine:0]": "",
		// Histograms that differ in removed labels are summed; the reference keeps the last.
		"demo_pid_hist histogram map[]": "demo_pid_hist histogram {} count 9 sum 31 bounds [1] counts [7 2]",
	}
	for _, w := range want {
		k := key(w.Name, w.Type, w.Tags)
		s := got[k]
		delete(got, k)
		if text, ok := departures[k]; ok {
			if text == "" {
				assert.Nil(t, s, k)
			} else if assert.NotNil(t, s, k) {
				assert.Equal(t, text, describe(s))
			}
			continue
		}
		if !assert.NotNil(t, s, k) {
			continue
		}
		switch s.Type {
		case series.Gauge:
			assert.Equal(t, math.Float64bits(*w.Stats["value"]), math.Float64bits(s.Value), k)
		case series.Counter:
			assert.Equal(t, *w.Stats["total"], s.Value, k)
		case series.Histogram:
			assert.Equal(t, *w.Stats["count"], float64(s.Count), k)
			assert.Equal(t, *w.Stats["sum"], s.Sum, k)
			assert.Nil(t, w.Stats["min"], k)
			assert.Nil(t, w.Stats["max"], k)
			d := distribution(s)
			mean, ok := d.Mean()
			same(t, w.Stats["mean"], mean, ok, k+" mean")
			for name, q := range map[string]float64{"p50": 0.5, "p95": 0.95} {
				v, ok := d.Quantile(q)
				same(t, w.Stats[name], v.Float64(), ok, k+" "+name)
			}
		}
	}
	// Untyped families are gauges here; the reference drops them.
	rest := []string{}
	for _, s := range got {
		rest = append(rest, describe(s))
	}
	slices.Sort(rest)
	assert.Equal(t, []string{`demo_no_type_line gauge {x="y"} 4.0`, "demo_untyped gauge {} 3.0"}, rest)
}

func same(t *testing.T, want *float64, got float64, known bool, what string) {
	t.Helper()
	if want == nil {
		assert.False(t, known, what)
		return
	}
	assert.True(t, known, what)
	assert.Equal(t, *want, got, what)
}

// The page of golden scenario 2b: the reference loses what follows the broken line, here the line loses itself alone.
func TestBrokenLineCostsOnlyItself(t *testing.T) {
	page := parse(t, NewParser(100), classic, "# TYPE first gauge\nfirst 1\n# TYPE second gauge\nsecond{a=\"b\" 2\n# TYPE third gauge\nthird 3\n", 1)
	assert.Equal(t, []string{"first gauge {} 1.0", "third gauge {} 3.0"}, describeAll(page.Series))
	assert.Equal(t, 1, page.Malformed)
	assert.Equal(t, `second{a="b" 2`, page.FirstMalformed)
}
