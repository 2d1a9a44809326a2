package shm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func document(body string) []byte { return fmt.Appendf(nil, `{"version":1,%s}`, body) }

func gauge(name string) []byte {
	return document(`"metrics":[{"name":"` + name + `","type":"gauge","value":1}]`)
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	path := t.TempDir()
	d := NewDirectory(path)
	r := Reader{MaxFileSize: DefaultMaxFileSize}
	put(t, path, "a.json", gauge("a"))
	put(t, path, "bad.json", []byte("{"))
	if err := os.Symlink("a.json", filepath.Join(path, "link.json")); err != nil {
		t.Fatal(err)
	}
	if o := readOnce(t, &r, d, AllBut(), ours(Trust{})); !slices.Equal(o.entries, []string{"a gauge 1"}) || len(o.files) != 2 {
		t.Errorf("read %q, skipped %q", o.entries, o.files)
	}
	quiet := func() {
		t.Helper()
		if o := readOnce(t, &r, d, AllBut(), ours(Trust{})); len(o.entries)+len(o.files) != 0 {
			t.Errorf("what has not changed gave %q, skipped %q", o.entries, o.files)
		}
	}
	quiet() // while the file is young, and
	for f := d.files["a.json"]; !f.accepted.settled; {
		quiet() // until its times tell enough
	}
	quiet()

	put(t, path, "a.json", gauge("b"))
	if o := readOnce(t, &r, d, AllBut(), ours(Trust{})); !slices.Equal(o.entries, []string{"b gauge 1"}) {
		t.Errorf("a file that was replaced gave %q", o.entries)
	}
	if err := os.WriteFile(filepath.Join(path, "a.json"), gauge("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := readOnce(t, &r, d, AllBut(), ours(Trust{})); !slices.Equal(o.entries, []string{"c gauge 1"}) {
		t.Errorf("a file that was written in place gave %q", o.entries)
	}
	put(t, path, "bad.json", gauge("good"))
	if o := readOnce(t, &r, d, AllBut(), ours(Trust{})); !slices.Contains(o.entries, "good gauge 1") {
		t.Errorf("a bad file that became good gave %q", o.entries)
	}
}

func TestFileThatWasNotAcceptedIsReadAgain(t *testing.T) {
	path := t.TempDir()
	put(t, path, "a.json", document(`"metrics":[{"name":"a","type":"gauge","value":1}],"log":[{"ts":5,"level":"error","msg":"m"}]`))
	d := NewDirectory(path)
	r := Reader{MaxFileSize: DefaultMaxFileSize, Skipped: func(string, *FileError) {}}
	for range 3 {
		visits, lines := 0, 0
		r.Read(context.Background(), d, AllBut(), ours(Trust{}), func(f *File, doc *Document) {
			visits++
			lines += len(f.Log(doc))
		})
		if visits != 1 || lines != 1 {
			t.Fatalf("%d visits, %d lines", visits, lines)
		}
	}
}

func TestSelectionsCoverEveryFileOnce(t *testing.T) {
	path := t.TempDir()
	names := []string{"cupti.json", "rocm.json", "probes.json", "mine.json"}
	for _, name := range append(names, "cupti.json.tmp", ".hidden.json", ".owner", "json") {
		put(t, path, name, gauge(name))
	}
	r := Reader{MaxFileSize: DefaultMaxFileSize}
	named := readOnce(t, &r, NewDirectory(path), Named("cupti.json", "rocm.json"), ours(Trust{}))
	rest := readOnce(t, &r, NewDirectory(path), AllBut("cupti.json", "rocm.json"), ours(Trust{}))
	if want := []string{"cupti.json gauge 1", "rocm.json gauge 1"}; !slices.Equal(named.entries, want) {
		t.Errorf("named: %q", named.entries)
	}
	if want := []string{"mine.json gauge 1", "probes.json gauge 1"}; !slices.Equal(rest.entries, want) {
		t.Errorf("the rest: %q", rest.entries)
	}
	none := readOnce(t, &r, NewDirectory(filepath.Join(path, "absent")), AllBut(), ours(Trust{}))
	if len(none.files) != 0 {
		t.Errorf("a directory that does not exist: %q", none.files)
	}
}

func TestHostileDirectories(t *testing.T) {
	base := t.TempDir()
	real := filepath.Join(base, "real")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, real, "good.json", gauge("good"))
	if err := os.Symlink(filepath.Join(real, "good.json"), filepath.Join(real, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(real, "pipe.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, real, "large.json", slices.Concat(gauge("large"), []byte(strings.Repeat(" ", 5000))))
	r := Reader{MaxFileSize: 4096}
	o := readOnce(t, &r, NewDirectory(real), AllBut(), ours(Trust{}))
	if want := []string{"good gauge 1"}; !slices.Equal(o.entries, want) {
		t.Errorf("read %q", o.entries)
	}
	if want := []string{
		"large.json: larger than max_file_size",
		"link.json: not a regular file or directory",
		"pipe.json: not a regular file or directory",
	}; !slices.Equal(o.files, want) {
		t.Errorf("skipped %q", o.files)
	}

	link := filepath.Join(base, "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	o = readOnce(t, &r, NewDirectory(link), AllBut(), ours(Trust{}))
	if len(o.entries) != 0 || !slices.Equal(o.files, []string{"link: not a regular file or directory"}) {
		t.Errorf("a linked directory gave %q, skipped %q", o.entries, o.files)
	}

	foreign := Trust{Owner: func(uint32) bool { return false }}
	d := NewDirectory(real)
	o = readOnce(t, &r, d, AllBut(), foreign)
	if len(o.entries) != 0 || !slices.Equal(o.files, []string{"real: owned by another user"}) {
		t.Errorf("a foreign directory gave %q, skipped %q", o.entries, o.files)
	}
	if o = readOnce(t, &r, d, AllBut(), foreign); len(o.files) != 0 {
		t.Errorf("it is reported again: %q", o.files)
	}
}

func TestTooManyFiles(t *testing.T) {
	path := t.TempDir()
	for i := range MaxFiles + 1 {
		put(t, path, fmt.Sprintf("f%03d.json", i), gauge(fmt.Sprint("g", i)))
	}
	r := Reader{MaxFileSize: DefaultMaxFileSize}
	o := readOnce(t, &r, NewDirectory(path), AllBut(), ours(Trust{}))
	if len(o.entries) != MaxFiles || len(o.files) != 1 || !strings.HasSuffix(o.files[0], "too many files in one directory") {
		t.Errorf("%d entries, skipped %q", len(o.entries), o.files)
	}
}

// TestLeftovers: a pid is used again, and its directory holds what the earlier process wrote.
func TestLeftovers(t *testing.T) {
	started := time.Now().UnixNano()
	at := func(name string, start, write time.Duration) []byte {
		return document(fmt.Sprintf(`"pid":1,"start_ts":%d,"write_ts":%d,"metrics":[{"name":%q,"type":"gauge","value":1}]`,
			started+int64(start), started+int64(write), name))
	}
	path := t.TempDir()
	put(t, path, "earlier.json", at("earlier", -time.Hour, -time.Minute))
	put(t, path, "elsewhere.json", at("elsewhere", -time.Hour, time.Second))
	put(t, path, "coarse.json", at("coarse", -time.Second, time.Second)) // within what process start times are worth
	put(t, path, "own.json", at("own", time.Second, time.Second))
	put(t, path, "timeless.json", gauge("timeless"))
	for _, c := range []struct {
		trust Trust
		want  []string
	}{
		{Trust{Started: started}, []string{"coarse gauge 1", "own gauge 1", "timeless gauge 1"}},
		{Trust{Started: started, ByWrite: true}, []string{"coarse gauge 1", "elsewhere gauge 1", "own gauge 1", "timeless gauge 1"}},
		{Trust{}, []string{"coarse gauge 1", "earlier gauge 1", "elsewhere gauge 1", "own gauge 1", "timeless gauge 1"}},
	} {
		r := Reader{MaxFileSize: DefaultMaxFileSize}
		o := readOnce(t, &r, NewDirectory(path), AllBut(), ours(c.trust))
		if !slices.Equal(o.entries, c.want) {
			t.Errorf("%+v: read %q", c.trust, o.entries)
		}
		for _, skipped := range o.files {
			if !strings.HasSuffix(skipped, ": written by an earlier process of this pid") {
				t.Errorf("skipped %q", skipped)
			}
		}
	}
}

func TestReadStopsWithItsContext(t *testing.T) {
	path := t.TempDir()
	put(t, path, "a.json", gauge("a"))
	put(t, path, "b.json", gauge("b"))
	ctx, cancel := context.WithCancel(context.Background())
	r := Reader{MaxFileSize: DefaultMaxFileSize, Skipped: func(string, *FileError) {}}
	d := NewDirectory(path)
	visits := 0
	r.Read(ctx, d, AllBut(), ours(Trust{}), func(f *File, _ *Document) {
		visits++
		f.Accept()
		cancel()
	})
	if visits != 1 {
		t.Fatalf("%d files were read", visits)
	}
	if o := readOnce(t, &r, d, AllBut(), ours(Trust{})); !slices.Contains(o.entries, "b gauge 1") {
		t.Errorf("the next time gave %q", o.entries)
	}
}

func TestLogRing(t *testing.T) {
	path := t.TempDir()
	d := NewDirectory(path)
	r := Reader{MaxFileSize: DefaultMaxFileSize}
	read := func(start int, entries string) []string {
		t.Helper()
		put(t, path, "a.json", document(fmt.Sprintf(`"start_ts":%d,"log":[%s]`, start, entries)))
		return readOnce(t, &r, d, AllBut(), ours(Trust{})).log
	}
	for _, step := range []struct {
		what    string
		start   int
		entries string
		want    []string
	}{
		{"the first document", 1, `{"ts":5,"msg":"a"},{"ts":6,"level":"error","msg":"b"}`, []string{": a", "error: b"}},
		{"the same ring again", 1, `{"ts":5,"msg":"a"},{"ts":6,"level":"error","msg":"b"}`, nil},
		{"another entry of a known time", 1, `{"ts":6,"level":"error","msg":"b"},{"ts":6,"level":"error","msg":"c"}`, []string{"error: c"}},
		{"a clock that was set back", 1, `{"ts":6,"level":"error","msg":"c"},{"ts":2,"level":"error","msg":"d"}`, []string{"error: d"}},
		{"a writer restarted", 8, `{"ts":2,"level":"error","msg":"d"}`, []string{"error: d"}},
		{"an empty ring", 8, ``, nil},
		{"another one", 9, `{"ts":2,"level":"error","msg":"d"}`, []string{"error: d"}},
		{"twice the same", 9, `{"ts":10,"level":"error","msg":"e"},{"ts":10,"level":"error","msg":"e"}`, []string{"error: e"}},
		{"no time, no text, no object", 9, `{"level":"error","msg":"x"},{"ts":11},{"ts":12,"msg":""},"y",{"ts":"13","msg":"z"}`, nil},
	} {
		if got := read(step.start, step.entries); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf(`{"ts":%d,"msg":"m%d"}`, 100+i, i))
	}
	got := read(9, strings.Join(many, ","))
	if len(got) != MaxLogEntries || got[0] != ": m744" || got[MaxLogEntries-1] != ": m999" {
		t.Errorf("of 1,000 entries came %d, %q first", len(got), got[:min(1, len(got))])
	}
}
