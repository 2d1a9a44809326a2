package endpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDecodeGolden(t *testing.T) {
	body, err := os.ReadFile(filepath.Join("testdata", "scenario-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	if doc.Skipped != 0 {
		t.Errorf("%d parts skipped", doc.Skipped)
	}
	if doc.ProfilerVersion != "1.0.0" || doc.PayloadNS != 1796026901580436464 || doc.StartNS != 1796026897998633050 {
		t.Errorf("head: %q %d %d", doc.ProfilerVersion, doc.PayloadNS, doc.StartNS)
	}
	if doc.Context["instance.id"] != "0d22ca55c822" || doc.Context["empty"] != "" {
		t.Errorf("context: %v", doc.Context)
	}
	find := func(name string, kind Type) *Metric {
		for i := range doc.Metrics {
			if m := &doc.Metrics[i]; m.Name == name && m.Type == kind {
				return m
			}
		}
		t.Fatalf("no %s %s", kind, name)
		return nil
	}
	if m := find("app_u64_max", Counter); m.Value != Whole(18446744073709551615) {
		t.Errorf("app_u64_max: %v", m.Value)
	}
	if m := find("app_tiny", Gauge); m.Value.Float() != 1e-05 {
		t.Errorf("app_tiny: %v", m.Value)
	}
	if m := find("app_negative", Gauge); m.Value.Float() != -3 {
		t.Errorf("app_negative: %v", m.Value)
	}
	if m := find("app_step_ns", Histogram); m.Stats.Count != Whole(20) || m.Stats.P95 != Whole(151) || m.Tags.Get("op") != "decode" {
		t.Errorf("app_step_ns: %+v", m)
	}
	if m := find("app_bins_only", Histogram); m.Stats.Count.Present() || !m.Stats.P50.Present() {
		t.Errorf("app_bins_only: %+v", m.Stats)
	}
	k := find("cuda_kernels_nanoseconds", Profile)
	if len(k.Frames) != 7 || k.Frames[0] != (Frame{"_Z6gemm_aPKfS0_Pf", 9100, 70}) || k.Frames[4].Name != "ümläut 核 🚀" {
		t.Errorf("frames: %+v", k.Frames)
	}
	if g := find("cuda_graphs_nanoseconds", Profile); g.Frames[0].Value != 18446744073709551615 {
		t.Errorf("graph: %+v", g.Frames)
	}
	if len(doc.Errors) != 2 || doc.Errors[1].Message != "dropped 12 records" || doc.Errors[1].LogNS != 1796026898024113653 {
		t.Errorf("errors: %+v", doc.Errors)
	}
	if len(doc.Resources) != 2 || doc.Resources[1].Attributes["process.command_line"] == "" {
		t.Errorf("resources: %+v", doc.Resources)
	}
}

func TestDecodeIsTolerant(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		metrics int
		skipped int
	}{
		"wrong kinds inside": {`{"profiler":{"version":7},"payload_ns":"x","start_ns":null,"context":[1],"metrics":[1,"a",null,[],
			{"name":5,"type":"gauge","stats":{"value":1}},{"name":"ok","type":"gauge","stats":{"value":1}}],"errors":{},"resources":3}`, 1, 10},
		"unknown type":          {`{"metrics":[{"name":"a","type":"dance","stats":{}}]}`, 0, 1},
		"gauge without":         {`{"metrics":[{"name":"a","type":"gauge","stats":{"value":null}}]}`, 0, 1},
		"huge numbers":          {`{"metrics":[{"name":"a","type":"gauge","stats":{"value":1e999}},{"name":"b","type":"counter","stats":{"total":99999999999999999999999}}]}`, 1, 1},
		"bad frames":            {`{"metrics":[{"name":"a","type":"profile","stats":{"frames":[{"name":"x","value":-1},{"name":"y","value":1.5},{"value":3},{"name":"z","value":3}]}}]}`, 1, 3},
		"huge numbers left out": {`{"new":[1e999,{"a":-1E777}],"metrics":[1e999,{"name":"a","type":"gauge","x":1e400,"stats":{"value":1}}]}`, 1, 1},
		"unknown keys":          {`{"metrics":[],"new":{"deep":[[[{}]]]}}`, 0, 0},
		"tags of all kinds":     {`{"metrics":[{"name":"a","type":"gauge","tags":{"i":1,"b":true,"n":null,"o":{},"s":"x"},"stats":{"value":0}}]}`, 1, 1},
		"same key twice":        {`{"metrics":[{"name":"a","type":"gauge","tags":{"k":"1","k":"2"},"stats":{"value":0}}]}`, 1, 0},
		"invalid UTF-8":         {"{\"metrics\":[{\"name\":\"a\xff\",\"type\":\"gauge\",\"stats\":{\"value\":0}}]}", 1, 0},
		"white space around":    {" \n{\"metrics\":[]} \n", 0, 0},
	} {
		doc, err := Decode([]byte(tc.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(doc.Metrics) != tc.metrics || doc.Skipped != tc.skipped {
			t.Errorf("%s: %d metrics, %d skipped; want %d, %d", name, len(doc.Metrics), doc.Skipped, tc.metrics, tc.skipped)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, body := range []string{
		"", "null", "[]", "42", `"text"`, "<html>", "{", `{"metrics":[}`, `{"metrics":[{"name":"a"`, `{"metrics":[NaN]}`,
		`{"status": "ok"}`, `{"metrics":[]} {"metrics":[]}`, `{"metrics":[]}x`,
		strings.Repeat(`{"context":`, 100_000), `{"metrics":` + strings.Repeat("[", 1_000_000),
	} {
		if doc, err := Decode([]byte(body)); err == nil {
			t.Errorf("%.60q: no error, %+v", body, doc)
		} else if len(err.Error()) > 200 {
			t.Errorf("%.60q: long error %q", body, err)
		}
	}
}

func TestDecodeBounds(t *testing.T) {
	records := func(record string, n int) string { return strings.TrimSuffix(strings.Repeat(record+",", n), ",") }
	body := `{"metrics":[` + records(`{"name":"a","type":"gauge","stats":{"value":1}}`, maxMetrics+5) +
		`],"errors":[` + records(`{"message":"old"}`, maxErrors) + `,{"message":"` + strings.Repeat("m", 2<<20) + `"}` +
		`],"resources":[` + records(`{}`, maxResources+5) + `]}`
	doc, err := Decode([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Metrics) != maxMetrics || len(doc.Errors) != maxErrors || len(doc.Resources) != maxResources {
		t.Errorf("%d metrics, %d errors, %d resources", len(doc.Metrics), len(doc.Errors), len(doc.Resources))
	}
	if m := doc.Errors[maxErrors-1].Message; len(m) != maxMessage {
		t.Errorf("the newest message has %d bytes, want %d", len(m), maxMessage)
	}
	if doc.Skipped != 5+5+1 {
		t.Errorf("%d skipped", doc.Skipped)
	}
	doc, err = Decode([]byte(`{"metrics":[{"name":"a_nanoseconds","type":"profile","stats":{"frames":[` +
		records(`{"name":"k","value":1,"samples":1}`, maxFrames+5) + `]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(doc.Metrics[0].Frames); n != maxFrames || doc.Skipped != 5 {
		t.Errorf("%d frames, %d skipped", n, doc.Skipped)
	}
}

func TestDecodeSortsMetrics(t *testing.T) {
	doc, err := Decode([]byte(`{"metrics":[{"name":"b","type":"gauge","stats":{"value":1}},{"name":"a","type":"gauge","stats":{"value":1}}]}`))
	if err != nil || doc.Metrics[0].Name != "a" {
		t.Errorf("%v %+v", err, doc)
	}
}

func TestGrowth(t *testing.T) {
	for _, tc := range []struct {
		now, before Number
		want        float64
		ok          bool
	}{
		{Whole(12), Whole(5), 7, true},
		{Whole(3), Whole(5), 3, true}, // restarted
		{Whole(18446744073709551615), Whole(18446744073709551614), 1, true},
		{Fraction(2.5), Whole(1), 1.5, true},
		{Fraction(0.5), Fraction(1), 0.5, true},
		{Number{}, Whole(1), 0, false},
		{Whole(1), Number{}, 0, false},
	} {
		if got, ok := tc.now.Growth(tc.before); got != tc.want || ok != tc.ok {
			t.Errorf("%v since %v: %v %v", tc.now, tc.before, got, ok)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"profiler":{"version":"1"},"payload_ns":2,"start_ns":1,"context":{"a":"b"},"metrics":[
		{"name":"h","type":"histogram","tags":{},"stats":{"count":1,"sum":2.5,"p50":null},"updated_ns":3},
		{"name":"c","type":"counter","stats":{"total":18446744073709551615}}]}`))
	f.Add([]byte(`{"metrics":[{"name":"a","type":"profile","tags":{"k":1},"stats":{"frames":[{"name":"\ud800","value":1e3}]}}]}`))
	f.Add([]byte(`{"errors":[{"log_ns":-1,"exception":null}],"resources":[{"tags":{"":""}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := Decode(body)
		if (doc == nil) == (err == nil) {
			t.Fatalf("document %v, error %v", doc, err)
		}
		if err == nil {
			checkBounds(t, doc)
		}
		if !json.Valid(body) || tooDeep(body) {
			return
		}
		// Any JSON value among the records leaves its neighbours alone.
		const metric, entry = `{"name":"neighbour","type":"gauge","stats":{"value":5}}`, `{"message":"neighbour"}`
		const resource = `{"kind":"neighbour","tags":{"k":"v"},"attributes":{"a":"b"}}`
		doc, err = Decode(fmt.Appendf(nil, `{"metrics":[%s,%s,%[1]s],"errors":[%[1]s,%[3]s],"x":%[1]s,"resources":[%[1]s,%[4]s,%[1]s],"context":{"k":%[1]s,"n":"y"}}`,
			body, metric, entry, resource))
		if err != nil {
			t.Fatal(err)
		}
		checkBounds(t, doc)
		if !slices.ContainsFunc(doc.Metrics, func(m Metric) bool { return m.Name == "neighbour" && m.Value == Whole(5) }) ||
			!slices.ContainsFunc(doc.Errors, func(e Error) bool { return e.Message == "neighbour" }) || doc.Context["n"] != "y" ||
			!slices.ContainsFunc(doc.Resources, func(r Resource) bool {
				return r.Kind == "neighbour" && r.Tags.Get("k") == "v" && r.Attributes["a"] == "b"
			}) {
			t.Fatalf("a neighbour is missing: %+v", doc)
		}
	})
}

// tooDeep: values that are nested more deeply than the reader follows.
func tooDeep(body []byte) bool {
	return bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > 5000
}

func checkBounds(t *testing.T, doc *Document) {
	t.Helper()
	if len(doc.Metrics) > maxMetrics || len(doc.Errors) > maxErrors || len(doc.Resources) > maxResources || len(doc.Context) > maxTags || doc.Skipped < 0 {
		t.Fatalf("%d metrics, %d errors, %d resources, %d skipped", len(doc.Metrics), len(doc.Errors), len(doc.Resources), doc.Skipped)
	}
	sorted := func(tags Tags) bool {
		for i := 1; i < len(tags); i++ {
			if tags[i-1].Key >= tags[i].Key {
				return false
			}
		}
		return len(tags) <= maxTags
	}
	for i, m := range doc.Metrics {
		if m.Name == "" || i > 0 && doc.Metrics[i-1].Name > m.Name || !sorted(m.Tags) || math.IsInf(m.Value.Float(), 0) || math.IsNaN(m.Value.Float()) {
			t.Fatalf("%+v", m)
		}
	}
	for _, e := range doc.Errors {
		if len(e.Message) > maxMessage || len(e.Exception) > maxException || !sorted(e.Tags) {
			t.Fatalf("%+v", e)
		}
	}
}
