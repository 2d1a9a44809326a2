package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// appendTo appends text to a file.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func segmentPath(dir string, seq int) string {
	return filepath.Join(dir, fmt.Sprintf("log_%d.jsonl", seq))
}

func lineJSON(ts int, text string) string {
	return fmt.Sprintf(`{"ts":%d,"stream":"stdout","line":"%s"}`, ts, text) + "\n"
}

// read returns the times of the records that a pass yields.
func read(t *testing.T, r *SegmentReader) []int64 {
	t.Helper()
	var times []int64
	require.NoError(t, r.Read(context.Background(), func(rec Record) { times = append(times, rec.Time) }))
	return times
}

func newReader(t *testing.T, dir string) *SegmentReader {
	r := NewSegmentReader(dir)
	t.Cleanup(r.Close)
	return r
}

// TestVector27To29: loss markers, half records, two segments.
func TestVector27To29(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	appendTo(t, segmentPath(dir, 0), lineJSON(1, "a")+`{"ts":2,"dropped":5}`+"\n"+lineJSON(3, "b")+`{"ts":4,"str`)
	assert.Equal(t, []int64{1, 2, 3}, read(t, r))
	assert.Empty(t, read(t, r))
	appendTo(t, segmentPath(dir, 0), `eam":"stdout","line":"c"}`+"\n")
	assert.Equal(t, []int64{4}, read(t, r))
	appendTo(t, segmentPath(dir, 0), lineJSON(5, "d"))
	appendTo(t, segmentPath(dir, 1), lineJSON(6, "e"))
	assert.Equal(t, []int64{5, 6}, read(t, r))
	assert.Empty(t, read(t, r))
	assert.Zero(t, r.Stats())
}

// TestRotation: what was written to a segment after the last read and before its removal is not lost.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	appendTo(t, segmentPath(dir, 0), lineJSON(1, "a"))
	assert.Equal(t, []int64{1}, read(t, r))
	appendTo(t, segmentPath(dir, 0), lineJSON(2, "b"))
	appendTo(t, segmentPath(dir, 1), lineJSON(3, "c"))
	require.NoError(t, os.Remove(segmentPath(dir, 0)))
	appendTo(t, segmentPath(dir, 2), lineJSON(4, "d"))
	assert.Equal(t, []int64{2, 3, 4}, read(t, r))
	assert.Zero(t, r.Stats())

	for seq := 3; seq < 8; seq++ { // a writer that is far ahead: two segments are left
		appendTo(t, segmentPath(dir, seq), lineJSON(10+seq, "e"))
		require.NoError(t, os.RemoveAll(segmentPath(dir, seq-2)))
	}
	assert.Equal(t, []int64{16, 17}, read(t, r))
	assert.Equal(t, ReadStats{LostSegments: 3}, r.Stats())
}

// TestOpen: segments that were opened in time survive their deletion, up to a bound.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	for seq := range 6 {
		appendTo(t, segmentPath(dir, seq), lineJSON(seq, "a"))
		require.NoError(t, r.Open())
		require.NoError(t, os.Remove(segmentPath(dir, seq)))
	}
	assert.Equal(t, []int64{2, 3, 4, 5}, read(t, r))
	assert.Equal(t, ReadStats{LostSegments: 2}, r.Stats())
}

// TestShrink: a writer takes back records that it could not complete.
func TestShrink(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	appendTo(t, segmentPath(dir, 0), lineJSON(1, "a")+lineJSON(2, "taken back"))
	assert.Equal(t, []int64{1, 2}, read(t, r))
	require.NoError(t, os.Truncate(segmentPath(dir, 0), int64(len(lineJSON(1, "a")))))
	assert.Empty(t, read(t, r))
	appendTo(t, segmentPath(dir, 0), lineJSON(3, "b"))
	assert.Equal(t, []int64{3}, read(t, r))
}

func TestMissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	r := newReader(t, dir)
	assert.Empty(t, read(t, r))
	require.NoError(t, os.Mkdir(dir, 0o700))
	assert.Empty(t, read(t, r))
	appendTo(t, segmentPath(dir, 0), lineJSON(1, "a"))
	assert.Equal(t, []int64{1}, read(t, r))
	require.NoError(t, os.RemoveAll(dir))
	assert.Empty(t, read(t, r))
}

// TestMalformed: bad records are counted, and the rest is read.
func TestMalformed(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	long := strings.Repeat("x", maxRecord+100)
	appendTo(t, segmentPath(dir, 0), "no json\n"+lineJSON(1, "a")+`{"ts":2}`+"\n"+`{"ts":2,"stream":"exit","line":"x"}`+"\n"+
		lineJSON(3, long)+lineJSON(4, strings.Repeat("y", 300_000))+`{"ts":5,"unfinished`)
	appendTo(t, segmentPath(dir, 1), lineJSON(6, "b"))
	assert.Equal(t, []int64{1, 4, 6}, read(t, r))
	assert.Equal(t, ReadStats{Malformed: 5}, r.Stats())
}

// TestForeignFiles: other names are not read; links, pipes and directories of a segment's name are refused.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	secret := filepath.Join(t.TempDir(), "secret")
	appendTo(t, secret, lineJSON(9, "no"))
	require.NoError(t, os.Symlink(secret, segmentPath(dir, 0)))
	require.NoError(t, unix.Mkfifo(segmentPath(dir, 1), 0o600))
	require.NoError(t, os.Mkdir(segmentPath(dir, 2), 0o700))
	for _, name := range []string{"log_.jsonl", "log_-1.jsonl", "log_1.json", "log_x.jsonl", "xlog_1.jsonl", ".owner", "log_99999999999999999999.jsonl"} {
		appendTo(t, filepath.Join(dir, name), lineJSON(9, "no"))
	}
	appendTo(t, segmentPath(dir, 3), lineJSON(1, "a"))
	assert.Equal(t, []int64{1}, read(t, r))
	assert.Equal(t, ReadStats{Refused: 3}, r.Stats())

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	assert.Error(t, newReader(t, link).Read(context.Background(), func(Record) { t.Error("read through a link") }))
}

// TestReadStops: a read whose time is up goes on at the next one.
func TestReadStops(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, dir)
	var text strings.Builder
	for i := range 5000 {
		text.WriteString(lineJSON(i, "some text to fill the buffer"))
	}
	appendTo(t, segmentPath(dir, 0), text.String())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	require.ErrorIs(t, r.Read(ctx, func(Record) { n++; cancel() }), context.Canceled)
	assert.Less(t, n, 5000)
	assert.Len(t, read(t, r), 5000-n)
}

func TestDecodeRecord(t *testing.T) {
	for _, tt := range []struct {
		json string
		want Record
	}{
		{`{"ts":1,"stream":"stdout","line":"a"}`, Record{Time: 1, Stream: "stdout", Line: "a"}},
		{`{"ts":1,"stream":"stdout","line":""}`, Record{Time: 1, Stream: "stdout"}},
		{`{"ts": 1, "stream": "stderr", "line": "a\u001b[0m \"q\" \\ \/\b\f\n\r\t é"}`, Record{Time: 1, Stream: "stderr", Line: "a\x1b[0m \"q\" \\ /\b\f\n\r\t é"}},
		{`{"line":"\ud83d\ude00\ud800\u0041","stream":"stdout","ts":-1}`, Record{Time: -1, Stream: "stdout", Line: "😀\ufffdA"}},
		{`{"ts":1,"stream":"stdout","line":"a","more":[1,{"x":2}]}`, Record{Time: 1, Stream: "stdout", Line: "a"}},
		{`{"ts":1,"dropped":5}`, Record{Kind: KindDropped, Time: 1, Dropped: 5}},
		{`{"ts":1,"exit_code":3}`, Record{Kind: KindStatus, Time: 1, ExitCode: 3}},
		{`{"ts":1,"signal":9}`, Record{Kind: KindStatus, Time: 1, Signal: 9}},
	} {
		got, err := decodeRecord(tt.json)
		require.NoError(t, err, tt.json)
		assert.Equal(t, tt.want, got, tt.json)
	}
	for _, bad := range []string{"", "{", "[]", "null", `{"ts":1}`, `{"ts":1,"line":"a"}`, `{"ts":1,"stream":"exit","line":"a"}`, `{"ts":1.5,"signal":1}`,
		`{"ts":1,"stream":"stdout","line":"a}`, `{"ts":1,"stream":"stdout","line":"a\x"}`, `{"ts":1,"stream":"stdout","line":"a\u12"}`,
		`{"ts":99999999999999999999,"signal":1}`, `{"ts":1,"signal":null}`} {
		_, err := decodeRecord(bad)
		assert.Error(t, err, bad)
	}
}

func TestCgroupOOM(t *testing.T) {
	for _, tt := range []struct {
		name, cgroup, file, content string
		want                        int64
		ok                          bool
	}{
		{"version 2", "0::/a.slice/b", "a.slice/b/memory.events", "low 0\nhigh 0\nmax 2\noom 1\noom_kill 3\noom_group_kill 0\n", 3, true},
		{"version 2 without a namespace", "0::/docker/x", "memory.events", "oom_kill 1\n", 1, true},
		{"version 1", "12:cpu,cpuacct:/x\n9:memory:/x\n0::/\n", "memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2, true},
		{"no counter", "0::/x", "x/other", "", 0, false},
		{"not a number", "0::/x", "x/memory.events", "oom_kill many\n", 0, false},
		{"no field", "0::/x", "x/memory.events", "oom 1\n", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc, sys := t.TempDir(), t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(proc, "77"), 0o700))
			appendTo(t, filepath.Join(proc, "77", "cgroup"), tt.cgroup)
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(sys, tt.file)), 0o700))
			appendTo(t, filepath.Join(sys, tt.file), tt.content)
			n, ok := NewCgroupOOM(proc, sys, 77).Kills()
			assert.Equal(t, tt.ok, ok)
			assert.Equal(t, tt.want, n)
		})
	}
	_, ok := NewCgroupOOM(t.TempDir(), t.TempDir(), 77).Kills()
	assert.False(t, ok)
}
