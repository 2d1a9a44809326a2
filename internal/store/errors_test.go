package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func newErrors() (*Errors, *int64) {
	now := epoch
	return NewErrors(func() time.Time { now++; return time.Unix(0, now) }), &now
}

func messages(entries []Error) string {
	var words []string
	for _, e := range entries {
		words = append(words, e.Message)
	}
	return strings.Join(words, " ")
}

func TestErrorsWindow(t *testing.T) {
	r, _ := newErrors()
	assert.Empty(t, r.Window(nil))
	add := func(level string, names ...string) {
		for _, n := range names {
			r.Add(Error{Level: level, Message: n})
		}
	}
	add("debug", "d1")
	add("WARNING", "w1", "w2", "w3", "w4", "w5", "w6", "w7")
	add("fatal", "f1")
	add("error", "e1", "e2", "e3", "e4")
	add("", "i1")
	add("critical", "c1")
	assert.Equal(t, "w3 w4 w5 w6 w7 e1 e2 e3 e4 c1", messages(r.Window(nil)))
	assert.Equal(t, uint64(12), r.Version())
	for i := range ringSize + 3 {
		add("error", fmt.Sprint(i))
	}
	assert.Equal(t, "193 194 195 196 197 198 199 200 201 202", messages(r.Window(nil)))
}

func TestOwnDiagnosticsDoNotCrowdOut(t *testing.T) {
	r, now := newErrors()
	own := func(n int) (entries []Error) {
		for i := range n {
			entries = append(entries, Error{Message: fmt.Sprintf("o%d", i), Arrival: *now + int64(i) + 1})
		}
		return entries
	}
	assert.Equal(t, "o2 o3 o4 o5 o6 o7 o8 o9 o10 o11", messages(r.Window(own(12))))
	for i := range 3 {
		r.Add(Error{Level: "error", Message: fmt.Sprint(i)})
	}
	assert.Equal(t, "0 1 2 o5 o6 o7 o8 o9 o10 o11", messages(r.Window(own(12))))
	for i := range 9 {
		r.Add(Error{Level: "error", Message: fmt.Sprint(i + 3)})
	}
	assert.Equal(t, "7 8 9 10 11 o7 o8 o9 o10 o11", messages(r.Window(own(12))))
	early := own(1)
	early[0].Arrival = 1
	assert.Equal(t, "2 3 4 5 6 7 8 9 10 11", messages(r.Window(early)))
}

func TestErrorsAreCutNotDropped(t *testing.T) {
	r, now := newErrors()
	r.Add(Error{Level: "error", Message: strings.Repeat("é", 1025), Exception: strings.Repeat("a", 4000) + strings.Repeat("b", 4000)})
	r.Add(Error{Level: "error", Message: strings.Repeat("é", 1024), Exception: strings.Repeat("é", 4096), Time: 7})
	w := r.Window(nil)
	assert.Equal(t, strings.Repeat("é", 1021)+"...", w[0].Message)
	assert.Len(t, w[0].Exception, MaxException)
	assert.True(t, strings.HasPrefix(w[0].Exception, "aaa") && strings.HasSuffix(w[0].Exception, "bbb"))
	assert.Equal(t, *now-1, w[0].Time, "the time of arrival stands in for a missing one")
	assert.Equal(t, strings.Repeat("é", 1024), w[1].Message)
	assert.Equal(t, strings.Repeat("é", 4096), w[1].Exception)
	assert.Equal(t, int64(7), w[1].Time)
}

func TestErrorTagsAreBounded(t *testing.T) {
	r, _ := newErrors()
	var tags []ErrorTag
	for i := range 100 {
		tags = append(tags, ErrorTag{Key: fmt.Sprint(i), Text: strings.Repeat("x", 5000)})
	}
	r.Add(Error{Level: "error", Tags: tags})
	got := r.Window(nil)[0].Tags
	assert.Len(t, got, maxErrorTags)
	assert.Len(t, got[0].Text, maxErrorValue)
	assert.Len(t, tags[0].Text, 5000, "the caller's tags stay")
}

func TestAppendErrors(t *testing.T) {
	assert.Equal(t, `{"level": "error", "message": "m\"", "exception": null, "tags": {}, "log_ns": 5}, `+
		`{"level": "warning", "message": "", "exception": "x\ny", "tags": {"a": "b", "watcher.pid": 12}, "log_ns": 6}`,
		string(AppendErrors(nil, []Error{
			{Level: "error", Message: "m\"", Time: 5},
			{Level: "warning", Exception: "x\ny", Tags: []ErrorTag{{Key: "a", Text: "b"}, {Key: "watcher.pid", Int: 12, IsInt: true}}, Time: 6},
		})))
	assert.Equal(t, "12", ErrorTag{Int: 12, IsInt: true}.String())
	assert.Equal(t, "b", ErrorTag{Text: "b"}.String())
}
