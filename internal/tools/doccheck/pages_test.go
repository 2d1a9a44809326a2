package doccheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

const (
	// deadline is how long a command of a page may take.
	deadline = 2 * time.Minute
	// What pages name; tests put free ports in their place.
	endpointPort, enginePort = "18259", "18500"
)

// projectRoot is the project's directory.
func projectRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// userPages are the pages for users; all their commands are marked.
func userPages(t *testing.T) []*Page {
	t.Helper()
	root := projectRoot(t)
	files := []string{filepath.Join(root, "README.md"), filepath.Join(root, "SKILL.md")}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, append(files, docs...))
}

func read(t *testing.T, files []string) (pages []*Page) {
	t.Helper()
	for _, file := range files {
		p, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p)
	}
	return pages
}

// TestLinks follows every link of every page in the project.
func TestLinks(t *testing.T) {
	root := projectRoot(t)
	var files []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{".git", "testdata", "build", "bin", "lib", "dist"}, entry.Name())):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range read(t, files) {
		for _, broken := range p.BrokenLinks(root) {
			t.Error(broken)
		}
	}
}

// TestInstalledPages follows the links of the pages where `make install` puts them.
func TestInstalledPages(t *testing.T) {
	prefix := t.TempDir()
	install := exec.CommandContext(t.Context(), "make", "-C", projectRoot(t), "install-files", "PREFIX="+prefix)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	shared := filepath.Join(prefix, "share", "graphsignal")
	var files []string
	err := filepath.WalkDir(shared, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	for _, p := range read(t, files) {
		for _, broken := range p.BrokenLinks(shared) {
			t.Error(broken)
		}
	}
}

// TestMarks checks that every command block says how it is checked, and is a program for the shell.
func TestMarks(t *testing.T) {
	for _, p := range userPages(t) {
		for _, b := range p.Blocks {
			if b.Language != "sh" && b.Language != "bash" {
				continue
			}
			if b.Mark != "" && !Marks[b.Mark] {
				t.Errorf("%s:%d: unknown mark %q", b.Page, b.Line, b.Mark)
			}
			if b.Mark == "" && !strings.HasPrefix(filepath.Base(filepath.Dir(b.Page)), "docs") {
				t.Errorf("%s:%d: nothing says how this is checked", b.Page, b.Line)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-n")
			// <model> and the like stand for words of the reader's.
			cmd.Stdin = strings.NewReader(placeholder.ReplaceAllString(b.Text, "word"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v: %s", b.Page, b.Line, err, out)
			}
		}
	}
}

var placeholder = regexp.MustCompile(`<[a-z][a-z-]*>`)

// TestMakeTargets checks the commands that are typed in a checkout.
func TestMakeTargets(t *testing.T) {
	root := projectRoot(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range userPages(t) {
		for _, b := range p.Blocks {
			if b.Mark != "checkout" {
				continue
			}
			for line := range strings.Lines(b.Text) {
				words := strings.Fields(line)
				if len(words) < 2 || words[0] != "make" || strings.HasPrefix(words[1], "-") {
					continue
				}
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(words[1]) + `:`).Match(makefile) {
					t.Errorf("%s:%d: the Makefile has no target %q", b.Page, b.Line, words[1])
				}
			}
		}
	}
}

// TestCommands executes the blocks that need no GPU, as a reader would who types them in a directory with the programs
// on PATH.
func TestCommands(t *testing.T) {
	root := projectRoot(t)
	for _, program := range []string{"graphsignal-run", "graphsignal-collector", "graphsignal-top", "graphsignal-demo"} {
		if _, err := os.Stat(filepath.Join(root, "bin", program)); err != nil {
			t.Fatalf("%v: run `make build` first", err)
		}
	}
	pages := userPages(t)
	var live string
	if slices.ContainsFunc(pages, func(p *Page) bool {
		return slices.ContainsFunc(p.Blocks, func(b Block) bool { return b.Mark == "live" })
	}) {
		live = startDemo(t, root)
	}
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Mark != "run" && b.Mark != "live" {
				continue
			}
			name, _ := filepath.Rel(root, fmt.Sprintf("%s:%d", b.Page, b.Line))
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				port := strconv.Itoa(freeport.Get(t))
				if b.Mark == "live" {
					port = live
				}
				execute(t, root, b, port)
			})
		}
	}
}

// execute runs a block with a directory of its own. A line that a reader would see as a failure is one.
func execute(t *testing.T, root string, b Block, port string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bin", "lib", "include", "examples", "python", "docs"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.NewReplacer(endpointPort, port, enginePort, strconv.Itoa(freeport.Get(t))).Replace(b.Text)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", text)
	cmd.Dir = dir
	cmd.Env = append(environment(), "PATH="+shims(t, root, port)+":"+filepath.Join(root, "bin")+":"+os.Getenv("PATH"),
		"GRAPHSIGNAL_LISTEN_PORT="+port, "PYTHONPATH="+filepath.Join(root, "python"))
	// What a block leaves running ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	if err != nil {
		t.Errorf("%v\n%s\nstdout: %s\nstderr: %s", err, text, stdout.String(), stderr.String())
	}
	if strings.Contains(stderr.String(), "Traceback") {
		t.Errorf("stderr: %s", stderr.String())
	}
	if b.Mark == "live" && strings.TrimSpace(stdout.String()) == "" {
		t.Errorf("%s\nprints nothing", text)
	}
}

// shims is a directory with a graphsignal-top that looks at this test's endpoint, for pages that rely on the default.
func shims(t *testing.T, root, port string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' --port %s \"$@\"\n", filepath.Join(root, "bin", "graphsignal-top"), port)
	if err := os.WriteFile(filepath.Join(dir, "graphsignal-top"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func environment() []string {
	env := []string{"GRAPHSIGNAL_DISABLE_VERSION_CHECK=1"}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GRAPHSIGNAL_") && !strings.HasPrefix(entry, "PATH=") {
			env = append(env, entry)
		}
	}
	return env
}

// startDemo runs the demo engine under the profiler until the end of the test, and returns the endpoint's port when all
// of its signals are there.
func startDemo(t *testing.T, root string) string {
	t.Helper()
	port := strconv.Itoa(freeport.Get(t))
	cmd := exec.Command(filepath.Join(root, "bin", "graphsignal-run"), "--listen-port", port,
		filepath.Join(root, "bin", "graphsignal-demo"), "--port", strconv.Itoa(freeport.Get(t)))
	cmd.Env = append(environment(), "PATH="+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	var last error
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = hasSeries(port, "demo_decode_step_nanoseconds", "demo_request_latency_seconds", "process_cpu_usage_percent"); last == nil {
			return port
		}
	}
	t.Fatalf("the demo is not seen: %v", last)
	return ""
}

func hasSeries(port string, names ...string) error {
	client := http.Client{Timeout: 5 * time.Second}
	reply, err := client.Get("http://127.0.0.1:" + port + "/signals")
	if err != nil {
		return err
	}
	defer reply.Body.Close() //nolint:errcheck // only read
	var document struct{ Metrics []struct{ Name string } }
	if err := json.NewDecoder(reply.Body).Decode(&document); err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(document.Metrics, func(m struct{ Name string }) bool { return m.Name == name }) {
			return errors.New(name + " is not there")
		}
	}
	return nil
}
