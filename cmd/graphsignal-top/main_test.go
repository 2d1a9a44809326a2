package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/internal/top/scene"
	"github.com/graphsignal/graphsignal-collector/internal/top/tmuxtest"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

var (
	update = flag.Bool("update", false, "rewrite the golden screens in testdata")
	binary string // the program, built as it is released
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "graphsignal-top-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "graphsignal-top")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// top runs the program to its end.
func top(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestStaticBinary(t *testing.T) {
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a %v segment: it is not static", p.Type)
		}
	}
}

func TestArguments(t *testing.T) {
	if out, _, status := top(t, "--version"); out != "graphsignal-top "+version.Version+"\n" || status != 0 {
		t.Errorf("--version: %q, status %d", out, status)
	}
	for _, arg := range []string{"--help", "-h"} {
		if out, _, status := top(t, arg); !strings.HasPrefix(out, "usage: graphsignal-top") || status != 0 {
			t.Errorf("%s: %q, status %d", arg, out, status)
		}
	}
	for _, args := range [][]string{
		{"--colour"}, {"extra"}, {"--port", "0"}, {"--port", "70000"}, {"--port", "x"}, {"--window", "-1"}, {"--window", "NaN"},
		{"--window", "4000"}, {"--host", ""}, {"--host", "a/b"}, {"--host"},
	} {
		out, errs, status := top(t, args...)
		if status != 2 || out != "" || !strings.HasPrefix(errs, "graphsignal-top: ") || !strings.Contains(errs, "usage:") {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, status, out, errs)
		}
	}
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

var (
	portInURL = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

// masked replaces what differs from run to run.
func masked(s string) string {
	return timestamp.ReplaceAllString(portInURL.ReplaceAllString(s, "127.0.0.1:PORT"), "2026-01-02T03:04:05Z")
}

func serve(t *testing.T, s func(int) []byte, first, last int) *scene.Server {
	t.Helper()
	server := scene.Serve(s, first, last)
	t.Cleanup(server.Close)
	return server
}

func port(s *scene.Server) string { return fmt.Sprint(s.Port) }

func TestOncePiped(t *testing.T) {
	out, errs, status := top(t, "--once", "--window", "1", "--port", port(serve(t, scene.Serving, 60, 1000)))
	if status != 0 || errs != "" {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	golden(t, "once.txt", masked(out))
	out, _, _ = top(t, "--once", "--window", "0", "--port", port(serve(t, scene.Single, 60, 1000)))
	golden(t, "once-totals.txt", masked(out))
	out, _, _ = top(t, "--once", "--window", "1", "--port", port(serve(t, scene.Single, 60, 1000)))
	golden(t, "once-single.txt", masked(out))
	example, err := os.ReadFile(filepath.Join("..", "..", "docs", "top.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(example), "```text\n"+strings.ReplaceAll(masked(out), ":PORT/", ":18259/")) {
		t.Errorf("docs/top.md does not show what --once prints now:\n%s", out)
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.ContainsAny(line, "\x1b\r") || strings.HasSuffix(line, " ") {
			t.Errorf("not plain text: %q", line)
		}
	}
}

// TestOnceByHand computes from two documents, by other code, what the page has to say.
func TestOnceByHand(t *testing.T) {
	out, _, _ := top(t, "--once", "--window", "1", "--port", port(serve(t, scene.Serving, 100, 1000)))
	type frames map[string][2]float64
	read := func(tick int) (kernels frames, tokens float64) {
		var doc struct {
			Metrics []struct {
				Name  string
				Stats struct {
					Total  float64
					Frames []struct {
						Name           string
						Value, Samples float64
					}
				}
			}
		}
		if err := json.Unmarshal(scene.Serving(tick), &doc); err != nil {
			t.Fatal(err)
		}
		kernels = frames{}
		for _, m := range doc.Metrics {
			switch m.Name {
			case "cuda_kernels_nanoseconds":
				for _, f := range m.Stats.Frames {
					sum := kernels[f.Name]
					kernels[f.Name] = [2]float64{sum[0] + f.Value, sum[1] + f.Samples}
				}
			case "vllm:generation_tokens":
				tokens += m.Stats.Total
			}
		}
		return kernels, tokens
	}
	before, tokensBefore := read(100)
	after, tokensAfter := read(101) // one second later
	const name = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
	ns, calls := after[name][0]-before[name][0], after[name][1]-before[name][1]
	want := fmt.Sprintf("%.1f%%  %.2fs   %.1fk %.1fus   %.0fs  %.2fM matrix multiply    nvjet gemm bf16 128x256",
		100*ns/1e9/8, ns/1e9, calls/1e3, ns/calls/1e3, after[name][0]/1e9, after[name][1]/1e6)
	if !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
	if want := fmt.Sprintf("tokens/s out %.2fk", (tokensAfter-tokensBefore)/1e3); !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

func TestOnceNotReachable(t *testing.T) {
	free := freeport.Get(t)
	out, errs, status := top(t, "--once", "--port", fmt.Sprint(free))
	want := fmt.Sprintf("graphsignal-top: cannot read http://127.0.0.1:%d/signals: connection refused\n", free)
	if status != 1 || out != "" || errs != want {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

// TestHostileEndpoint gives the program replies that could fill memory, hang it or take over the terminal.
func TestHostileEndpoint(t *testing.T) {
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	for name, handler := range map[string]http.HandlerFunc{
		"endless body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"metrics":[`)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(`{"name":"a"},`, 5000)); err != nil {
					return
				}
			}
		},
		"slow": func(w http.ResponseWriter, r *http.Request) {
			for {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-gone:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
		"wrong JSON":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{\"metrics\":[\"\x1b[2J") },
		"other JSON":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"error": "not found"}`) },
		"escaping header": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) },
		"deep": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"context":`+strings.Repeat(`{"a":`, 1<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(handler)
			defer s.Close()
			defer s.CloseClientConnections()
			_, p, err := net.SplitHostPort(s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			out, errs, status := top(t, "--once", "--port", p)
			if status != 1 || out != "" || strings.Count(errs, "\n") != 1 || strings.ContainsAny(errs, "\x1b\x00\r") {
				t.Errorf("status %d, stdout %.200q, stderr %.500q", status, out, errs)
			}
		})
	}
}

// Names that are made to take minutes to read do not keep the program from ending when it is told to.
func TestEndsDuringAComputation(t *testing.T) {
	s := serve(t, func(n int) []byte {
		d := scene.New(n)
		frames := make([]scene.Frame, 4000)
		for i := range frames {
			frames[i] = scene.Frame{Name: fmt.Sprintf("_Z5f%04d%si", i, strings.Repeat("K", 4000)), Value: uint64(i), Samples: 1}
		}
		d.Profile("cuda_kernels_nanoseconds", nil, frames)
		return d.JSON()
	}, 60, 60)
	cmd := exec.Command(binary, "--once", "--window", "0", "--port", port(s))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.Now().Add(time.Minute)
	for ticks := 0; ticks < 200; { // 2 s of computing
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Skipf("it got %d ticks of the processor in a minute", ticks)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))
		if ticks, err = strconv.Atoi(fields[12]); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		if status := cmd.ProcessState.ExitCode(); status != 1 {
			t.Errorf("status %d", status)
		}
	case <-time.After(20 * time.Second):
		t.Error("it did not end")
	}
}

// view starts the interactive program in a terminal, between two lines of a shell.
func view(t *testing.T, width, height int, s *scene.Server, args string, env ...string) *tmuxtest.Terminal {
	t.Helper()
	command := fmt.Sprintf("sh -c 'echo before; %s --port %d %s; echo status $?; stty -a; sleep 60'", binary, s.Port, args)
	if !strings.Contains(strings.Join(env, " "), "LC_ALL=") {
		env = append(env, "LC_ALL=C.UTF-8")
	}
	return tmuxtest.Start(t, width, height, command, env...)
}

// ended checks that the terminal is what it was before the program.
func ended(t *testing.T, term *tmuxtest.Terminal, status int) {
	t.Helper()
	term.WaitUntil("the end of the alternate screen", func(string) bool { return term.Format("#{alternate_on}") == "0" })
	term.WaitFor("before", fmt.Sprintf("status %d", status), " icanon", " echo ")
	if got := term.Format("#{cursor_flag}"); got != "1" {
		t.Error("the cursor is still hidden")
	}
}

// TestScreens compares what a person sees. The scene stands still while it is looked at; on a machine so busy that this
// takes longer than the program waits for an answer, it is looked at again.
func TestScreens(t *testing.T) {
	const attempts = 5
	for n := range attempts {
		pictures := screens(t)
		outOfDate := false
		for _, text := range pictures {
			outOfDate = outOfDate || strings.Contains(text, "STALE since")
		}
		if outOfDate && n < attempts-1 {
			continue
		}
		for name, text := range pictures {
			golden(t, name, text)
		}
		return
	}
}

// screens goes through the program with keys and takes pictures.
func screens(t *testing.T) map[string]string {
	t.Helper()
	pictures := make(map[string]string)
	s := serve(t, scene.Serving, 60, 62)
	term := view(t, 80, 24, s, "--window 1")
	pictures["serving-80x24.txt"] = term.WaitFor("up 1m02s")
	term.Resize(160, 50)
	pictures["serving-160x50.txt"] = term.WaitFor("warning 1m15s ago")
	s.GoOn(63)
	term.WaitFor("up 1m03s")

	term.Type("Down", "Down", "Enter")
	pictures["details-160x50.txt"] = term.WaitFor("VLLM::Worker_TP0")
	s.GoOn(64)
	term.Type("Escape") // with the next key at once it would be Alt and that key
	term.WaitFor(">[k]ernels")
	term.Type("g")
	term.WaitFor(">[g]raphs", "up 1m04s")
	term.Type("m")
	pictures["memory-160x50.txt"] = term.WaitFor(">[m]emory")
	s.GoOn(65)
	term.Type("s")
	term.WaitFor(">[s]ync", "stream", "up 1m05s")
	term.Type("k", "/")
	term.Type("-l", "norm")
	term.WaitFor("/norm_", "2 of 16 rows")
	s.GoOn(66)
	term.Type("Enter")
	term.Resize(80, 24)
	term.WaitFor("filter: norm", "up 1m06s")
	term.Type("Escape")
	term.WaitFor("q quit")
	term.Type("?")
	pictures["help-80x24.txt"] = term.WaitFor("Keys")
	term.Type("?", "p")
	term.WaitFor("PAUSED")
	term.Type("p", "q")
	ended(t, term, 0)
	return pictures
}

func TestTerminalIsGivenBack(t *testing.T) {
	for name, end := range map[string]func(*tmuxtest.Terminal){
		"Ctrl-C": func(term *tmuxtest.Terminal) { term.Type("C-c") },
		"SIGTERM": func(term *tmuxtest.Terminal) {
			signalProgram(t, term, syscall.SIGTERM)
		},
		"SIGINT": func(term *tmuxtest.Terminal) { signalProgram(t, term, syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, scene.Single, 60, 1000)
			term := view(t, 80, 24, s, "")
			term.WaitFor("nvjet")
			if term.Format("#{alternate_on}") != "1" {
				t.Error("not on the alternate screen")
			}
			end(term)
			ended(t, term, 0)
		})
	}
}

// signalProgram sends a signal to the child of the terminal's shell.
func signalProgram(t *testing.T, term *tmuxtest.Terminal, sig syscall.Signal) {
	t.Helper()
	shell := term.Format("#{pane_pid}")
	children, err := os.ReadFile(filepath.Join("/proc", shell, "task", shell, "children"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(children), &pid); err != nil {
		t.Fatalf("children of the shell: %q", children)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

func TestColours(t *testing.T) {
	colour := regexp.MustCompile("\x1b\\[[0-9;]*3[0-7][;m]")
	for name, tc := range map[string]struct {
		args string
		env  []string
		want bool
	}{
		"on": {"", nil, true}, "NO_COLOR": {"", []string{"NO_COLOR=1"}, false}, "--no-color": {"--no-color", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			term := view(t, 80, 24, serve(t, scene.Single, 60, 1000), tc.args, tc.env...)
			term.WaitFor("nvjet")
			if got := colour.MatchString(term.Coloured()); got != tc.want {
				t.Errorf("colours: %v, want %v\n%q", got, tc.want, term.Coloured())
			}
		})
	}
}

func TestGoneAndBack(t *testing.T) {
	s := scene.Serve(scene.Single, 60, 1000)
	term := view(t, 100, 24, s, "--window 1")
	term.WaitFor("window 1.0s", "nvjet")
	s.Close()
	term.WaitFor("STALE since", "connection refused", "nvjet")
	term.Type("q")
	ended(t, term, 0)
}

func TestNotReachableYetThenThere(t *testing.T) {
	free := freeport.Get(t)
	term := tmuxtest.Start(t, 80, 24, fmt.Sprintf("%s --port %d", binary, free), "LC_ALL=C.UTF-8")
	term.WaitFor(fmt.Sprintf("http://127.0.0.1:%d/signals", free), "connection refused", "tried every second")
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", free))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(scene.Single(60)) }), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	term.WaitFor("python train.py")
}

func TestPlainTerminals(t *testing.T) {
	for name, env := range map[string]string{"dumb": "TERM=dumb", "no TERM": "TERM="} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, scene.Single, 60, 61)
			command := fmt.Sprintf("sh -c 'env %s %s --port %d --window 1 | tee /dev/null'", env, binary, s.Port)
			if name == "dumb" {
				command = fmt.Sprintf("sh -c 'env %s %s --port %d --window 1'", env, binary, s.Port)
			}
			term := tmuxtest.Start(t, 100, 60, command, "LC_ALL=C.UTF-8")
			term.WaitUntil("two pages", func(string) bool { return strings.Count(term.Everything(), "graphsignal-top "+version.Version) == 2 })
			if term.Format("#{alternate_on}") != "0" || strings.Contains(term.Coloured(), "\x1b[3") {
				t.Error("a terminal that cannot was drawn on or coloured")
			}
			if all := term.Everything(); !strings.Contains(all, "window totals") || !strings.Contains(all, "window 1.0s") {
				t.Errorf("pages:\n%s", all)
			}
		})
	}
}

func TestNoUnicode(t *testing.T) {
	term := view(t, 80, 24, serve(t, scene.Serving, 60, 62), "--window 1", "LC_ALL=C", "LANG=C")
	screen := term.WaitFor("up 1m02s")
	for _, r := range screen {
		if r > '~' {
			t.Fatalf("%q on a terminal without Unicode:\n%s", r, screen)
		}
	}
}

// TestHostileTerminal shows a document full of escape sequences in a real terminal.
func TestHostileTerminal(t *testing.T) {
	const poison = "\x1b]0;owned\x07\x1b[2J\x1b[?1049l\x1b[31m\u009b31m\u202e"
	s := serve(t, func(n int) []byte {
		d := scene.New(n)
		d.Context["host.name"] = poison + "host"
		d.Profile("cuda_kernels_nanoseconds", map[string]string{"process.pid": poison}, []scene.Frame{
			{Name: poison + "kernel", Value: uint64(n) * 1e8, Samples: 10}, {Name: strings.Repeat("k", 1<<20), Value: 18446744073709551615, Samples: 1},
		})
		d.Error("error", poison+strings.Repeat("A", 1<<20), 1, map[string]any{"stream": poison})
		return d.JSON()
	}, 60, 62)
	term := view(t, 80, 24, s, "--window 1")
	term.WaitFor("up 1m02s", "kernel", "AAAA", "host")
	if title := term.Format("#{pane_title}"); strings.Contains(title, "owned") {
		t.Errorf("the endpoint set the title %q", title)
	}
	term.Type("Enter")
	term.WaitFor("symbol")
	if term.Format("#{alternate_on}") != "1" {
		t.Error("the endpoint left the alternate screen")
	}
	term.Type("q")
	ended(t, term, 0)
}
