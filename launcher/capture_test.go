package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// record is one line of a segment.
type record struct {
	TS       int64   `json:"ts"`
	Stream   string  `json:"stream"`
	Line     *string `json:"line"`
	Dropped  int64   `json:"dropped"`
	ExitCode int     `json:"exit_code"`
	Signal   int     `json:"signal"`
}

func parseRecords(t *testing.T, text string) (records []record) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		records = append(records, r)
	}
	return records
}

func lines(records []record) (texts []string) {
	for _, r := range records {
		if r.Line != nil {
			texts = append(texts, *r.Line)
		}
	}
	return texts
}

func TestLineCutter(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"lines", "a\nb\n", []string{"a", "b"}},
		{"empty lines", "a\n\n\nb\n", []string{"a", "", "", "b"}},
		{"no end", "a\nb", []string{"a", "b"}},
		{"carriage returns", "\rfetching 0%\rfetching 50%\rERROR bad\n", []string{"fetching 0%", "fetching 50%", "ERROR bad"}},
		{"both", "a\r\nb\r\n\r\nc\r\n", []string{"a", "b", "", "c"}},
		{"return at the end", "bar 100%\r", []string{"bar 100%"}},
		{"long line", long + "yy\nz\n", []string{long, "yy", "z"}},
		{"exactly long", long + "\nz\n", []string{long, "", "z"}},
		{"not text", "a\xffb\x00\x1b[1m\"\\\t\u2028é\U0001F600\n", []string{"a\uFFFDb\x00\x1b[1m\"\\\t\u2028é\U0001F600"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				cutter := lineCutter{stream: "stdout"}
				var out []byte
				count := 0
				for in := []byte(c.in); len(in) > 0; {
					n := min(size, len(in))
					var lines int
					out, lines = cutter.cut(out, in[:n], 7)
					count += lines
					in = in[n:]
				}
				out, last := cutter.flush(out)
				count += last
				records := parseRecords(t, string(out))
				want := c.want
				if c.name == "not text" && size == 1 {
					want = c.want
				}
				if got := lines(records); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
					t.Errorf("in pieces of %d: got %.200q want %.200q", size, got, want)
				}
				if count != len(want) {
					t.Errorf("%d lines counted, want %d", count, len(want))
				}
				if len(records) > 0 && (records[0].TS != 7 || records[0].Stream != "stdout") {
					t.Errorf("record %+v", records[0])
				}
			}
		})
	}
}

func TestEveryByteAtEveryPlace(t *testing.T) {
	for b := range 256 {
		for at := range 17 {
			line := []byte("abcdefgh~ ABCDEFG")
			line[at] = byte(b)
			var got string
			if err := json.Unmarshal([]byte(`"`+string(appendJSONText(nil, line))+`"`), &got); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if want := strings.ToValidUTF8(string(line), "\uFFFD"); got != want {
				t.Fatalf("%q became %q", line, got)
			}
		}
	}
}

func FuzzLineCutter(f *testing.F) {
	f.Add([]byte("a\r\nb\n\xff\"\\\r\r\n"), 3)
	f.Add([]byte("\rbar 1%\rbar 2%\n\x00"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		size = max(1, min(size, 1<<16))
		cutter := lineCutter{stream: "stderr"}
		var out []byte
		var text []byte
		for rest := in; len(rest) > 0; {
			n := min(size, len(rest))
			out, _ = cutter.cut(out, rest[:n], 1)
			rest = rest[n:]
		}
		out, _ = cutter.flush(out)
		for line := range bytes.Lines(out) {
			var r record
			if err := json.Unmarshal(line, &r); err != nil || r.Line == nil {
				t.Fatalf("%q: %v", line, err)
			}
			text = append(text, *r.Line...)
		}
		strip := func(b []byte) []byte {
			b = bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r"), nil), []byte("\n"), nil)
			return []byte(strings.ToValidUTF8(string(b), "\uFFFD"))
		}
		// Runs of bad bytes become one or more replacement characters.
		squeeze := func(b []byte) string {
			s := string(b)
			for strings.Contains(s, "\uFFFD\uFFFD") {
				s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
			}
			return s
		}
		if utf8.Valid(in) && len(in) < maxLine && squeeze(text) != squeeze(strip(in)) {
			t.Fatalf("%q became %q", in, text)
		}
	})
}

func TestCaptureQueueKeepsTheNewest(t *testing.T) {
	q := &captureQueue{stream: "stdout", wake: make(chan struct{}, 1)}
	line := bytes.Repeat([]byte("x"), 1023)
	line = append(line, '\n')
	total := captureRoom/1024 + 1000
	for range total {
		q.put(line)
	}
	q.put([]byte("last\n"))
	q.close()
	var kept []byte
	lost := int64(0)
	buffer := make([]byte, 10_000)
	for {
		got := q.take(buffer)
		lost += got.lost
		kept = append(kept, got.data...)
		if got.ended {
			break
		}
	}
	if !bytes.HasSuffix(kept, []byte("x\nlast\n")) || len(kept) != captureRoom {
		t.Errorf("%d bytes kept, at the end %q", len(kept), kept[max(0, len(kept)-10):])
	}
	if whole := int64(bytes.Count(kept, newline)); lost+whole != int64(total)+1 {
		t.Errorf("%d lines lost and %d kept of %d", lost, whole, total+1)
	}
	// More at once than the room is.
	q = &captureQueue{stream: "stdout", wake: make(chan struct{}, 1)}
	q.put([]byte("first\n"))
	q.put(bytes.Repeat(line, captureRoom/1024+5))
	got := q.take(buffer)
	if !got.gap || got.lost != 6 {
		t.Errorf("gap %v, %d lost, want 6", got.gap, got.lost)
	}
}

func testSegments(t *testing.T) *segments {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &segments{path: dir, dir: fd, file: -1}
}

// TestRunIsHeldWhileItGoesOn: sweeps of other runs look at the lock, and at whose run it is.
func TestRunIsHeldWhileItGoesOn(t *testing.T) {
	s, err := newSegments(t.TempDir(), os.Getpid(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(s.path)
	other, err := unix.Open(s.path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("while the run goes on: %v, want %v", err, unix.EWOULDBLOCK)
	}
	_ = unix.Close(s.dir)
	if err := unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if owner, err := os.ReadFile(filepath.Join(s.path, ".owner")); err != nil || !bytes.Contains(owner, []byte(`"run":"run-1"`)) {
		t.Errorf("owner %s, %v", owner, err)
	}
}

// lineRecord is the record of a line of standard output.
func lineRecord(ts int64, line []byte) []byte {
	return (&lineCutter{stream: "stdout", time: ts}).appendLine(nil, line)
}

func TestSegmentsRotate(t *testing.T) {
	s := testSegments(t)
	var paced int
	one := lineRecord(1, bytes.Repeat([]byte("y"), 1000))
	for range 5 * maxSegment / len(one) {
		s.write(one, 1, func(time.Time) { paced++ })
	}
	names, _ := filepath.Glob(filepath.Join(s.path, "log_*.jsonl"))
	if len(names) != 2 || filepath.Base(names[0]) != "log_3.jsonl" || filepath.Base(names[1]) != "log_4.jsonl" {
		t.Errorf("segments %v", names)
	}
	if paced != 4 {
		t.Errorf("paced %d times", paced)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || info.Size() > maxSegment || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
		content, _ := os.ReadFile(name)
		parseRecords(t, string(content))
	}
	// A record that no segment holds has one of its own, and many at once are spread without a cut.
	huge := lineRecord(1, bytes.Repeat([]byte("z"), maxSegment+5))
	s.write(append(append(append([]byte{}, one...), huge...), one...), 3, nil)
	names, _ = filepath.Glob(filepath.Join(s.path, "log_*.jsonl"))
	if len(names) != 2 {
		t.Fatalf("segments %v", names)
	}
	content, _ := os.ReadFile(names[0])
	if !bytes.Equal(content, huge) {
		t.Errorf("%d bytes in the segment of the large record of %d", len(content), len(huge))
	}
}

func TestSegmentsOnAFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no file system can be mounted here:", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s := &segments{path: dir, dir: fd, file: -1}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	one := lineRecord(1, bytes.Repeat([]byte("y"), 1000))
	const written = 200
	for range written {
		s.write(one, 1, nil)
	}
	_ = os.Remove(filler)
	s.write(lineRecord(2, []byte("after")), 1, nil)
	content, _ := os.ReadFile(filepath.Join(dir, "log_0.jsonl"))
	records := parseRecords(t, string(content))
	var kept, dropped int64
	for _, r := range records {
		if r.Line != nil {
			kept++
		}
		dropped += r.Dropped
	}
	if dropped == 0 || kept+dropped != written+1 {
		t.Errorf("%d kept and %d dropped of %d", kept, dropped, written+1)
	}
	if n := len(records); n < 2 || records[n-2].Dropped == 0 || records[n-1].Line == nil || *records[n-1].Line != "after" {
		t.Error("the marker is not before the next line")
	}
}
