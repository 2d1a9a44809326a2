package console

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// checkEntry holds what is true of every entry, whatever was printed.
func checkEntry(t *testing.T, e Entry) {
	if e.Message == "" || !utf8.ValidString(e.Message) || utf8.RuneCountInString(e.Message) > MaxMessage {
		t.Fatalf("message of %d bytes: %q", len(e.Message), e.Message)
	}
	if !utf8.ValidString(e.Exception) || utf8.RuneCountInString(e.Exception) > MaxException {
		t.Fatalf("exception of %d bytes: %q", len(e.Exception), e.Exception)
	}
	if countDigits(e.PID) != len(e.PID) {
		t.Fatalf("pid %q", e.PID)
	}
}

// FuzzLines feeds arbitrary console output to the extractor.
func FuzzLines(f *testing.F) {
	paths, err := filepath.Glob("testdata/transcripts/*/02-*.txt")
	if err != nil || len(paths) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	for _, seed := range []string{
		"\x1b[31mERROR\x1b[0m:  x", "(a pid=1) (b pid=2, ip=c) [rank0]: [1,0]<stderr>:E0309 00:00:1.2 3 a.cc:1] x",
		"[2026-03-09T14:02:11Z ERROR a] x", `{"level":50,"msg":"x","error":{"message":"y","stack":"z"}}`,
		`time=1 level=error msg="a\"b" err=c`, "0.01.234.567 E a: b", "x ERROR 03-09 14:02:11 [a.py:1] y",
		tb + "\n  File\n\n" + directCause + "\n\n" + tb + "\n  + " + groupHeader + "\n  | x\nqueue.Empty",
		"Fatal Python error: x\nCurrent thread 0x1\n  File", "[a:1] *** Process received signal ***\n[a:1] x",
		"thread 'a' panicked at b:\nc\nnote: run with `RUST_BACKTRACE", "WARNING: " + tb + "\n  x\nValueError: y",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		var last string
		p := NewParser(nil, func(e Entry) { checkEntry(t, e); last = e.Message })
		now := time.Unix(1000, 0)
		for i, l := range strings.Split(input, "\n") {
			p.Record(now, line(int64(i), StreamStderr, l))
			if len(p.extractor.open) > maxOpen {
				t.Fatal("open entries:", len(p.extractor.open))
			}
		}
		p.Flush(now)

		// After a silence the next error is one, whatever came before.
		now = now.Add(time.Minute)
		p.Expire(now)
		p.Record(now, line(1, StreamStderr, "ERROR 03-09 14:02:11 [core.py:11] a neighbour failed"))
		p.Record(now, Record{Kind: KindStatus, Time: 2, ExitCode: 3})
		if !strings.Contains(last, "3") {
			t.Fatalf("the last entry is %q", last)
		}
		p.Flush(now)
	})
}

// FuzzSegmentRecord decodes arbitrary bytes as a record, and holds the fast ways against the library.
func FuzzSegmentRecord(f *testing.F) {
	for _, seed := range []string{
		`{"ts":1,"stream":"stdout","line":"x"}`, `{"ts": 1, "stream": "stderr", "line": "a\u001b[0m\"\\\n\ud83d\ude00\ud800"}`,
		`{"ts":1,"dropped":5}`, `{"ts":1,"exit_code":3}`, `{"ts":1,"signal":9}`, `{"line":"x","stream":"stdout","ts":-7}`,
		`{"ts":9223372036854775807,"signal":9223372036854775808}`, `{"ts":1e3,"exit_code":1.5}`, `{"ts":01,"signal":1}`,
		`{"line":null,"stream":"stdout","ts":0}`, `{}`, `[]`, `{"ts":1,"stream":"stdout","line":"x"`, `{"ts":1,"ts":2,"signal":1,}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		got, err := decodeRecord(input)
		var scanned recordFields
		var fast bool
		if r, ok := decodeLine(input); ok {
			scanned, fast = recordFields{record: r, line: true}, true
		} else {
			scanned, fast = scanRecord(input)
		}
		if !fast || !json.Valid([]byte(input)) || !utf8.ValidString(input) {
			return
		}
		want, wantErr := unmarshalRecord(input)
		if wantErr != nil {
			return // the fast ways are more lenient about nothing that matters here: null and overflow go to the library
		}
		scanned.record.Kind = want.record.Kind
		if scanned != want {
			t.Fatalf("%q: %+v, want %+v (%+v, %v)", input, scanned, want, got, err)
		}
	})
}

// FuzzSegment reads arbitrary bytes as a segment.
func FuzzSegment(f *testing.F) {
	f.Add([]byte("{\"ts\":1,\"stream\":\"stdout\",\"line\":\"ERROR: x\"}\n{\"ts\":2,\"exit_code\":1}\n{\"ts\":3"))
	f.Add([]byte("\n\n\x00\xff{\"ts\":1}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "log_0.jsonl"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		p := NewParser(nil, func(e Entry) { checkEntry(t, e) })
		r := NewSegmentReader(dir)
		defer r.Close()
		var count int
		var last int64
		read := func() {
			t.Helper()
			if err := r.Read(context.Background(), func(rec Record) { count++; last = rec.Time; p.Record(time.Unix(1, 0), rec) }); err != nil {
				t.Fatal(err)
			}
		}
		read()
		first := count
		if read(); count != first {
			t.Fatalf("%d records at first, %d at the second reading", first, count)
		}
		// What is appended later is read, whatever stands before it.
		file, err := os.OpenFile(filepath.Join(dir, "log_0.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString("\n{\"ts\":4711,\"stream\":\"stdout\",\"line\":\"x\"}\n{\"ts\":4712,\"exit_code\":1}\n"); err != nil {
			t.Fatal(err)
		}
		if read(); last != 4712 || count < first+2 {
			t.Fatalf("%d records, then %d; the last is of %d", first, count, last)
		}
		if seen := uint64(count) + r.Stats().Malformed; seen > uint64(bytes.Count(data, []byte("\n")))+3 {
			t.Fatalf("%d records of %d lines", seen, bytes.Count(data, []byte("\n")))
		}
		p.Flush(time.Unix(2, 0))
	})
}

// FuzzCgroup: the count of kills is found whatever other lines the files have.
func FuzzCgroup(f *testing.F) {
	f.Add("12:memory:/a\n0::/b\n", "low 0\nhigh 0\noom 1\n", int64(3))
	f.Add("1:name=systemd:/\n0::/../..\n", "oom_kill_disable 0\nunder_oom 0\noom_kill\n", int64(0))
	dir := f.TempDir()
	root := filepath.Join(dir, "fs")
	for _, name := range []string{filepath.Join(dir, "proc", "7"), filepath.Join(root, "zz")} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, cgroup, events string, kills int64) {
		write := func(name, text string) {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kills &= 1<<62 - 1
		write(filepath.Join(dir, "proc", "7", "cgroup"), cgroup+"\n0::/zz\n")
		write(filepath.Join(root, "zz", "memory.events"), events+"\noom_kill "+strconv.FormatInt(kills, 10)+"\n")
		got, ok := NewCgroupOOM(filepath.Join(dir, "proc"), root, 7).Kills()
		if strings.Contains(cgroup, "memory") || strings.Contains(cgroup, "::") || strings.Contains(events, "oom_kill ") || len(cgroup)+len(events) > maxCgroupFile/2 {
			return
		}
		if !ok || got != kills {
			t.Fatalf("%q, %q: %d, %v", cgroup, events, got, ok)
		}
	})
}
