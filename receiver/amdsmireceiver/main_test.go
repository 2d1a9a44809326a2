package amdsmireceiver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// compileFake returns the compiled fake library; old is one without the functions of 25.
var compileFake = sync.OnceValues(func() (built struct{ current, old []byte }, err error) {
	dir, err := os.MkdirTemp("", "amdsmi-test-")
	if err != nil {
		return built, err
	}
	defer os.RemoveAll(dir)
	for name, flags := range map[string][]string{"current": nil, "old": {"-DBEFORE_25"}} {
		file := filepath.Join(dir, name)
		args := append(flags, "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-shared", "testdata/fake_amd_smi.c", "-o", file, "-ldl")
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return built, fmt.Errorf("gcc: %w\n%s", err, out)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return built, err
		}
		if name == "old" {
			built.old = content
		} else {
			built.current = content
		}
	}
	return built, nil
})

// fake is a library of its own in a folder, with its script beside it.
type fake struct {
	t    *testing.T
	path string
}

func newFake(t *testing.T, script string) *fake {
	t.Helper()
	built, err := compileFake()
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, path: filepath.Join(t.TempDir(), "libamd_smi.so.26")}
	content := built.current
	if strings.Contains(script, "abi 24") {
		content = built.old
	}
	if err := os.WriteFile(f.path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	f.script(script)
	return f
}

// script replaces what the library does.
func (f *fake) script(text string) {
	f.t.Helper()
	path := filepath.Join(filepath.Dir(f.path), "script")
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
}

func scenario(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".script"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run is a started receiver.
type run struct {
	t      *testing.T
	sink   consumertest.MetricsSink
	logs   *observer.ObservedLogs
	r      *amdsmiReceiver
	closed bool
}

// start runs a receiver on a library, collecting often. env are entries of the form NAME=VALUE.
func start(t *testing.T, path string, env ...string) *run {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	cfg := createDefaultConfig().(*Config)
	cfg.Interval = 20 * time.Millisecond
	cfg.LibraryPath = path
	x := &run{t: t, logs: logs}
	x.r = newReceiver(cfg, zap.New(core), &x.sink)
	x.r.lookup = func(name string) (string, bool) {
		for _, e := range env {
			if key, value, _ := strings.Cut(e, "="); key == name {
				return value, true
			}
		}
		return "", false
	}
	if err := x.r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.stop)
	return x
}

func (x *run) stop() {
	if !x.closed {
		x.closed = true
		// The test's own context has ended when this is a cleanup.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := x.r.Shutdown(ctx); err != nil {
			x.t.Error(err)
		}
	}
}

// eventually polls a condition for at most 20 seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out waiting until %s", what)
}

// next waits for a collection that begins from now on.
func (x *run) next() snapshot {
	x.t.Helper()
	since := time.Now().UnixNano()
	var found snapshot
	eventually(x.t, "metrics come", func() bool {
		all := x.sink.AllMetrics()
		if len(all) == 0 {
			return false
		}
		found = flatten(all[len(all)-1])
		return found.time >= since
	})
	return found
}

// snapshot is one collection: values by "bus id[/partition] name", and the devices' attributes.
type snapshot struct {
	values  map[string]string
	devices map[string]map[string]any
	time    int64
}

func flatten(md pmetric.Metrics) snapshot {
	s := snapshot{values: make(map[string]string), devices: make(map[string]map[string]any)}
	for _, rm := range md.ResourceMetrics().All() {
		attrs := rm.Resource().Attributes()
		bus, _ := attrs.Get(busIDKey)
		device := bus.Str()
		if p, ok := attrs.Get(partitionKey); ok {
			device += "/" + p.Str()
		}
		s.devices[device] = attrs.AsRaw()
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				var points pmetric.NumberDataPointSlice
				if m.Type() == pmetric.MetricTypeSum {
					points = m.Sum().DataPoints()
				} else {
					points = m.Gauge().DataPoints()
				}
				for _, p := range points.All() {
					s.time = max(s.time, int64(p.Timestamp()))
					text := strconv.FormatInt(p.IntValue(), 10)
					if p.ValueType() == pmetric.NumberDataPointValueTypeDouble {
						text = strconv.FormatFloat(p.DoubleValue(), 'g', -1, 64) + "f"
					}
					s.values[device+" "+m.Name()] = text
				}
			}
		}
	}
	return s
}

// expect checks the values of one device; want holds all of them.
func (s snapshot) expect(t *testing.T, device string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got, ok := s.values[device+" "+name]; !ok || got != value {
			t.Errorf("%s %s is %q, want %q", device, name, got, value)
		}
	}
	for key, value := range s.values {
		if name, ok := strings.CutPrefix(key, device+" "); ok {
			if _, ok := want[name]; !ok {
				t.Errorf("%s %s is %s, want none", device, name, value)
			}
		}
	}
}

func (x *run) logged(part string) int { return x.logs.FilterMessageSnippet(part).Len() }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
