package shm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// describe renders all that a document says.
func describe(doc *Document) []string {
	var lines []string
	for _, t := range doc.Context {
		lines = append(lines, t.Key+"="+t.Value)
	}
	for _, e := range doc.Entries {
		lines = append(lines, text(e))
	}
	for _, e := range doc.Log {
		lines = append(lines, e.Level+": "+e.Message)
	}
	return lines
}

// FuzzDocument parses any bytes after any others of the same file. Whatever they are, the history must make no
// difference, all text must be UTF-8, and what encoding/json takes must be no syntax error.
func FuzzDocument(f *testing.F) {
	seeds := []string{
		`{"version":1,"start_ts":5,"write_ts":7,"context":{"rank":"0"},"metrics":[{"name":"a","type":"gauge","tags":{"k":"v"},"value":1.5}],"log":[{"ts":1,"level":"error","msg":"m"}]}`,
		`{"metrics":[{"value":2,"name":"a","tags":{},"type":"counter"}],"version":1.0}`,
		`{"version":1,"metrics":[{"name":"h","type":"histogram","bins":[3,1],"counts":[1,2],"count":3,"sum":-inf}]}`,
		`{"version":1,"metrics":[{"name":"p","type":"profile","frames":{"a":[1,2],"b\u0041":[3,4],"a":[5,6]}}]}`,
		`{"version":1,"metrics":[{"name":"p","type":"profile","frames":{"a" : [1,2], "b":[nan(0x1),4]}}, 7, null]}`,
		"{\"version\":1,\"metrics\":[{\"name\":\"x\xff\\ud800\",\"type\":\"gauge\",\"value\":18446744073709551616}]}",
		`{"version":1,"metrics":[{"name":"a","type":"gauge","tags":5,"value":1}]}`,
		`{"version":1,"metrics":[{"name":"a","type":"gauge","tags":57,"value":1}]}`,
		`[[[[[[[[`, ``, `nul`, `"\`,
	}
	for i, s := range seeds {
		f.Add([]byte(s), []byte(seeds[(i+1)%len(seeds)]))
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, before, data []byte) {
		var fresh, used Parser
		var h History
		_, _ = used.Parse(before, &h)
		doc, err := fresh.Parse(data, &History{})
		again, errAgain := used.Parse(data, &h)
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("without history: %v, with: %v", err, errAgain)
		}
		if err != nil {
			if err.(*FileError).Cause == CauseSyntax && json.Valid(data) && !strings.Contains(err.Error(), "too deep") &&
				!strings.Contains(err.Error(), "byte-order mark") {
				t.Fatalf("valid JSON is refused: %v", err)
			}
			return
		}
		want, got := describe(doc), describe(again)
		if !slices.Equal(want, got) || doc.Skipped != again.Skipped || doc.Start != again.Start || doc.Write != again.Write {
			t.Fatalf("the history makes a difference:\n%q %v\n%q %v", want, doc.Skipped, got, again.Skipped)
		}
		for _, line := range want {
			if !utf8.ValidString(line) {
				t.Fatalf("not UTF-8: %q", line)
			}
		}
	})
}

// FuzzNeighbours: any JSON value among the entries of a document leaves the ones beside it alone.
func FuzzNeighbours(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","type":"gauge","tags":{"k":"v"},"value":1.5}`, `{"name":"h","type":"histogram","bins":[3,1],"counts":[1,2],"count":3,"sum":-1}`,
		`{"name":"p","type":"profile","frames":{"a":[1,2],"b\u0041":[3,4],"a":[5,6]}}`, `7`, `null`, `[[{}]]`, `"\ud800"`, `{"name":"neighbour","type":"counter","value":9}`,
		`{"ts":1,"level":"error","msg":"m"}`, `{"ts":[],"level":{},"msg":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) || bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) > 50 || len(value) > 1<<16 {
			return
		}
		var p Parser
		doc, err := p.Parse(fmt.Appendf(nil, `{"version":1,"x":%s,"metrics":[%[1]s,{"name":"neighbour","type":"gauge","value":5,"tags":{"at":"1"}},%[1]s,`+
			`{"name":"neighbour","type":"profile","frames":{"f":[3,4]}}],"log":[%[1]s,{"ts":9,"level":"error","msg":"neighbour"},%[1]s],"write_ts":7,"start_ts":5}`, value), &History{})
		if err != nil {
			t.Fatal(err)
		}
		gauge := slices.ContainsFunc(doc.Entries, func(e Entry) bool {
			return e.Name == "neighbour" && e.Value == series.Int(5) && slices.Contains(e.Tags, series.Tag{Key: "at", Value: "1"})
		})
		profile := slices.ContainsFunc(doc.Entries, func(e Entry) bool {
			return e.Name == "neighbour" && len(e.Frames) == 1 && e.Frames[0] == series.Frame{Name: "f", Value: 3, Samples: 4}
		})
		log := slices.Contains(doc.Log, LogEntry{Time: 9, Level: "error", Message: "neighbour"})
		if !gauge || !profile || !log || doc.Write != 7 || doc.Start != 5 {
			t.Fatalf("beside %q: gauge %v, profile %v, log %v: %q", value, gauge, profile, log, describe(doc))
		}
	})
}
