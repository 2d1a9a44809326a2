package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wantEntry is an entry that a transcript must give; Exception lists what its traceback must contain.
type wantEntry struct {
	Message   string   `json:"message"`
	Stream    string   `json:"stream"`
	PID       string   `json:"pid"`
	Exception []string `json:"exception"`
}

func (w wantEntry) matches(e Entry) bool {
	if w.Message != e.Message || w.Stream != e.Stream || w.PID != e.PID {
		return false
	}
	if len(w.Exception) == 0 && e.Exception != "" {
		return false
	}
	for _, part := range w.Exception {
		if !strings.Contains(e.Exception, part) {
			return false
		}
	}
	return true
}

// readTranscript reads a transcript: sections "-- stdout --" and "-- stderr --" in the order of printing, then
// "-- want --" with one JSON object an entry.
func readTranscript(t *testing.T, path string) (records []Record, want []wantEntry) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	section := ""
	for i, l := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if name, ok := strings.CutPrefix(l, "-- "); ok && strings.HasSuffix(name, " --") {
			section = strings.TrimSuffix(name, " --")
			continue
		}
		if section != "want" {
			records = append(records, line(int64(i+1), section, l))
			continue
		}
		var w wantEntry
		require.NoError(t, json.Unmarshal([]byte(l), &w), "line %d", i+1)
		want = append(want, w)
	}
	return records, want
}

// TestTranscripts counts precision and recall over console transcripts of five engine families.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/transcripts/*/*.txt")
	require.NoError(t, err)
	require.Len(t, paths, 50, "ten of each of five engine families")
	var found, missed, wrong int
	for _, path := range paths {
		records, want := readTranscript(t, path)
		var got []Entry
		p := NewParser(nil, func(e Entry) { got = append(got, e) })
		now := time.Unix(1000, 0)
		for _, r := range records {
			p.Record(now, r)
		}
		p.Flush(now)
		for _, w := range want {
			i := 0
			for i < len(got) && !w.matches(got[i]) {
				i++
			}
			if i == len(got) {
				missed++
				t.Errorf("%s: missed %+v", path, w)
				continue
			}
			found++
			got = append(got[:i:i], got[i+1:]...)
		}
		for _, e := range got {
			wrong++
			t.Errorf("%s: false entry %+v", path, e)
		}
	}
	precision := float64(found) / float64(found+wrong)
	recall := float64(found) / float64(found+missed)
	t.Logf("%d entries, precision %.3f, recall %.3f", found, precision, recall)
	assert.Equal(t, 1.0, precision)
	assert.Equal(t, 1.0, recall)
}

// TestTranscriptsFromSegments: by way of files, with a buffer that is overwritten all the time, comes out the same.
func TestTranscriptsFromSegments(t *testing.T) {
	paths, err := filepath.Glob("testdata/transcripts/*/*.txt")
	require.NoError(t, err)
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	var want, got []Entry
	direct := NewParser(nil, func(e Entry) { want = append(want, e) })
	fromFile := NewParser(nil, func(e Entry) { got = append(got, e) })
	reader := newReader(t, dir)
	reader.buf = make([]byte, 700)
	for i, path := range paths {
		records, _ := readTranscript(t, path)
		var segment strings.Builder
		for _, r := range records {
			text, err := json.Marshal(r.Line)
			require.NoError(t, err)
			fmt.Fprintf(&segment, `{"ts":%d,"stream":"%s","line":%s}`+"\n", r.Time, r.Stream, text)
			direct.Record(now, r)
		}
		appendTo(t, segmentPath(dir, i), segment.String())
		require.NoError(t, reader.Read(context.Background(), func(r Record) { fromFile.Record(now, r) }))
		now = now.Add(time.Minute)
		direct.Expire(now)
		fromFile.Expire(now)
	}
	require.Greater(t, len(want), 100)
	assert.Equal(t, want, got)
}
