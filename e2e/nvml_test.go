package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/fakenvml"
	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// gpuHost is a host whose NVML says what a script says.
type gpuHost struct {
	script, log string
	env         []string
}

func newGPUHost(t *testing.T, script string, old bool) *gpuHost {
	t.Helper()
	dir := t.TempDir()
	if _, err := fakenvml.Build(dir, old); err != nil {
		t.Fatal(err)
	}
	h := &gpuHost{script: filepath.Join(dir, "script"), log: filepath.Join(dir, "log")}
	h.env = []string{"LD_LIBRARY_PATH=" + dir, fakenvml.ScriptVariable + "=" + h.script, fakenvml.LogVariable + "=" + h.log,
		"CUDA_VISIBLE_DEVICES=", "LOCAL_RANK=none"}
	h.rewrite(t, script)
	return h
}

func (h *gpuHost) rewrite(t *testing.T, script string) {
	t.Helper()
	if err := fakenvml.Write(h.script, script); err != nil {
		t.Fatal(err)
	}
}

// calls counts the calls of an NVML function so far.
func (h *gpuHost) calls(t *testing.T, function string) int {
	t.Helper()
	raw, err := os.ReadFile(h.log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(append([]byte("\n"), raw...), []byte("\n"+function+" "))
}

// gpuView is what a document says of GPUs, without times.
func gpuView(t *testing.T, d *document) string {
	t.Helper()
	type row struct {
		Name  string                     `json:"name"`
		Type  string                     `json:"type"`
		Tags  map[string]string          `json:"tags"`
		Stats map[string]json.RawMessage `json:"stats"`
	}
	type entry struct {
		Level   string         `json:"level"`
		Message string         `json:"message"`
		Tags    map[string]any `json:"tags"`
	}
	type entity struct {
		Tags       map[string]string `json:"tags"`
		Attributes map[string]string `json:"attributes"`
	}
	view := struct {
		Metrics   []row    `json:"metrics"`
		Errors    []entry  `json:"errors"`
		Resources []entity `json:"resources"`
	}{[]row{}, []entry{}, []entity{}}
	for _, m := range d.Metrics {
		if strings.HasPrefix(m.Name, "gpu_") {
			view.Metrics = append(view.Metrics, row{m.Name, m.Type, m.Tags, m.Stats})
		}
	}
	for _, e := range d.Errors {
		delete(e.Tags, "watcher.pid")
		view.Errors = append(view.Errors, entry{e.Level, e.Message, e.Tags})
	}
	for _, r := range d.Resources {
		if r.Kind == "device" {
			view.Resources = append(view.Resources, entity{r.Tags, r.Attributes})
		}
	}
	slices.SortFunc(view.Resources, func(a, b entity) int { return cmp.Compare(a.Tags["device.uuid"], b.Tags["device.uuid"]) })
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(view); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// golden waits until /signals says of GPUs what testdata/nvml/NAME.json says. With UPDATE_GOLDEN set it waits for series
// that stay the same for three seconds, and writes the file.
func (r *run) golden(name string) *document {
	r.t.Helper()
	file := filepath.Join("testdata", "nvml", name+".json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		r.record(file)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	var view string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("last view, which differs from %s: %s", file, view)
		}
	}()
	return r.signalsWhen("/signals is as in "+file, func(d *document) bool {
		view = gpuView(r.t, d)
		return view == string(want)
	})
}

func (r *run) record(file string) {
	r.t.Helper()
	var view string
	var since time.Time
	eventually(r.t, "the series stay the same", func() bool {
		d, _, err := r.signals()
		if err != nil {
			return false
		}
		if v := gpuView(r.t, d); v != view {
			view, since = v, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(view), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// TestGPUs compares the whole of what /signals says of each kind of part.
func TestGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		old    bool
	}{
		"h200":          {script: fakenvml.H200},
		"h200x8":        {script: fakenvml.H200s(8)},
		"a100-mig":      {script: fakenvml.MIGA100},
		"gb10":          {script: fakenvml.GB10},
		"geforce":       {script: fakenvml.GeForce},
		"geforce-r470":  {script: fakenvml.GeForce, old: true},
		"samples-empty": {script: strings.Replace(fakenvml.H200, "GetSamples.1 0 0 0 0 0", "GetSamples.1 6", 1)},
		"field-errors": {script: strings.NewReplacer("field.197.0 0 1 2664821868", "field.197.0 3", "field.198.0 0 1 1931227568", "field.198.0 999").
			Replace(fakenvml.H200) + "  field.138.4294967295 0 3 77\n  field.139.4294967295 999\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newGPUHost(t, tc.script, tc.old)
			r := start(t, h.env, "sleep", "60")
			d := r.golden(name)
			for _, res := range d.Resources {
				if now := time.Now().Unix(); res.Kind == "device" && (res.First < now-60 || res.Last < res.First || res.Last > now+1) {
					t.Errorf("times of %v are %d and %d", res.Tags, res.First, res.Last)
				}
			}
		})
	}
}

// TestGPUsToTheEnd: a run long enough for the sidecar to give memory back makes calls at its end that it never made
// before, and still writes the final document.
func TestGPUsToTheEnd(t *testing.T) {
	h := newGPUHost(t, fakenvml.H200, false)
	output := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, h.env, "--output", output, "sleep", "7")
	if code := r.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	raw, err := os.ReadFile(output)
	if err != nil {
		t.Fatalf("no final document: %v", err)
	}
	d, err := parseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d.find("gpu_temperature_celsius") == nil || len(d.Errors) > 0 {
		t.Errorf("the final document is %s", raw)
	}
	for _, last := range []string{"EventSetFree", "Shutdown"} {
		if h.calls(t, last) == 0 {
			t.Errorf("%s was not called", last)
		}
	}
}

// TestGPUSelection: the sidecar inherits what tells the workload which GPUs it has.
func TestGPUSelection(t *testing.T) {
	h := newGPUHost(t, fakenvml.H200s(4), false)
	r := start(t, append(h.env, "CUDA_VISIBLE_DEVICES=3,GPU-8f076161"), "sleep", "60")
	d := r.signalsWhen("GPUs are there", func(d *document) bool { return d.find("gpu_temperature_celsius") != nil })
	var devices []string
	for _, res := range d.Resources {
		if res.Kind == "device" {
			devices = append(devices, res.Tags["device.bus_id"])
		}
	}
	slices.Sort(devices)
	if want := []string{"00000000:2A:00.0", "00000000:4C:00.0"}; !slices.Equal(devices, want) {
		t.Errorf("devices %v, want %v", devices, want)
	}
}

// TestDriverMismatch is the case of a driver that was updated under the running system, and its relatives.
func TestDriverMismatch(t *testing.T) {
	for code, warned := range map[int]bool{18: true, 999: true, 4: true, 9: false, 12: false} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			h := newGPUHost(t, fmt.Sprintf("Init %d\n", code)+fakenvml.H200, false)
			r := start(t, h.env, "sleep", "5")
			r.golden(fmt.Sprintf("init-%d", code))
			d := r.signalsWhen("other metrics are there", func(d *document) bool { return d.find("host_memory_usage_bytes") != nil })
			if warned != (len(d.Errors) == 1 && strings.Contains(d.Errors[0].Message, fmt.Sprintf("(%d)", code)) && strings.Contains(d.Errors[0].Message, "different versions")) {
				t.Errorf("errors are %v", d.Errors)
			}
			if rc := r.wait().ExitCode(); rc != 0 {
				t.Errorf("exit status %d", rc)
			}
			if n := h.calls(t, "Init"); n != 1 {
				t.Errorf("%d calls of nvmlInit in 5 s", n)
			}
			if n := h.calls(t, "Shutdown"); n != 0 {
				t.Errorf("%d calls of nvmlShutdown after a failed nvmlInit", n)
			}
		})
	}
}

// TestLostGPU is the case of one GPU of several that falls off the bus and comes back.
func TestLostGPU(t *testing.T) {
	good := fakenvml.H200s(4)
	h := newGPUHost(t, good, false)
	r := start(t, h.env, "sleep", "60")
	uuid := func(i int) string { return fmt.Sprintf("device.uuid=GPU-8f07616%d-ee1c-bf09-b577-0f480718bcdc", i) }
	temperature := func(d *document, i int) string {
		if m := d.find("gpu_temperature_celsius", uuid(i)); m != nil {
			return string(m.UpdatedNS)
		}
		return ""
	}
	r.signalsWhen("all GPUs are there", func(d *document) bool { return temperature(d, 3) != "" })
	blocks := strings.SplitAfter(good, "gpu\n")
	blocks[2] = "  all 15\n  event 79\n" + blocks[2]
	h.rewrite(t, strings.Join(blocks, ""))
	d := r.golden("lost")
	at := temperature(d, 1)
	other := temperature(d, 2)
	d = r.signalsWhen("the others go on", func(d *document) bool { return temperature(d, 2) > other && temperature(d, 0) > other })
	if now := temperature(d, 1); now != at {
		t.Errorf("the lost GPU's temperature moved from %s to %s", at, now)
	}
	h.rewrite(t, good)
	r.signalsWhen("the GPU is back", func(d *document) bool { return temperature(d, 1) > at })
}

// TestXIDs: errors of one second are told in their order, and a burst does not hide the others.
func TestXIDs(t *testing.T) {
	h := newGPUHost(t, fakenvml.H200, false)
	r := start(t, h.env, "sleep", "60")
	r.signalsWhen("the GPU is there", func(d *document) bool { return d.find("gpu_xid_critical_errors").stat("total") == "0" })
	events := "  event 62\n  event 45\n  event 45\n"
	h.rewrite(t, fakenvml.H200+events)
	r.golden("xid")
	events += strings.Repeat("  event 13\n", 20)
	h.rewrite(t, fakenvml.H200+events)
	r.golden("xid-burst")
}

// TestHungDriver: a driver whose calls take 30 s delays neither other metrics nor the end.
func TestHungDriver(t *testing.T) {
	h := newGPUHost(t, fakenvml.H200s(2), false)
	if err := exec.Command("mkfifo", h.script+".end").Run(); err != nil {
		t.Fatal(err)
	}
	r := start(t, h.env, "sh", "-c", "read x <"+h.script+".end; exit 3")
	r.signalsWhen("both GPUs are there", func(d *document) bool {
		return d.find("gpu_temperature_celsius", "device.bus_id=00000000:19:00.0") != nil && d.find("gpu_temperature_celsius", "device.bus_id=00000000:2A:00.0") != nil
	})
	blocks := strings.SplitAfter(fakenvml.H200s(2), "gpu\n")
	blocks[2] = "  delay 30000\n" + blocks[2]
	h.rewrite(t, strings.Join(blocks, ""))
	updated := func(d *document, name string, tags ...string) string {
		if m := d.find(name, tags...); m != nil {
			return string(m.UpdatedNS)
		}
		return ""
	}
	d, _, err := r.signals()
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // seconds
		before := d
		d = r.signalsWhen("the rest goes on", func(d *document) bool {
			return updated(d, "host_memory_usage_bytes") > updated(before, "host_memory_usage_bytes") &&
				updated(d, "gpu_temperature_celsius", "device.bus_id=00000000:19:00.0") > updated(before, "gpu_temperature_celsius", "device.bus_id=00000000:19:00.0")
		})
	}
	if err := os.WriteFile(h.script+".end", []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if rc := r.wait().ExitCode(); rc != 3 {
		t.Errorf("exit status %d", rc)
	}
}

// TestBindNow: LD_BIND_NOW in the workload's environment does not reach the sidecar, which could not start with it.
func TestBindNow(t *testing.T) {
	h := newGPUHost(t, fakenvml.GB10, false)
	r := start(t, append(h.env, "LD_BIND_NOW=1"), "sh", "-c", "echo bind:$LD_BIND_NOW; sleep 60")
	r.signalsWhen("the GPU is there", func(d *document) bool { return d.find("gpu_power_usage_watts").stat("value") == "23.45" })
	eventually(t, "the workload has the variable", func() bool { return strings.Contains(r.stdout.String(), "bind:1") })
}

// TestOldGlibc runs the Collector that `make` built (GRAPHSIGNAL_COLLECTOR) under the loader and libraries of an older
// glibc, unpacked at GRAPHSIGNAL_OLD_GLIBC, with a GPU. scripts/gate-collector.sh calls it.
func TestOldGlibc(t *testing.T) {
	old, collector := os.Getenv("GRAPHSIGNAL_OLD_GLIBC"), os.Getenv("GRAPHSIGNAL_COLLECTOR")
	if old == "" || collector == "" {
		t.Skip("runs in scripts/gate-collector.sh only")
	}
	find := func(name string) string {
		var found string
		err := filepath.WalkDir(old, func(path string, d os.DirEntry, err error) error {
			if err == nil && found == "" && d.Name() == name {
				found = path
			}
			return err
		})
		if err != nil || found == "" {
			t.Fatalf("%s is not in %s (%v)", name, old, err)
		}
		return found
	}
	h := newGPUHost(t, fakenvml.H200, false)
	r := &run{t: t, port: freeport.Get(t), waited: make(chan struct{})}
	config := fmt.Sprintf("{receivers: {nvml: {}, process: {}}, exporters: {signals: {endpoint: '127.0.0.1:%d'}}, "+
		"service: {pipelines: {metrics: {receivers: [nvml, process], exporters: [signals]}, logs: {receivers: [nvml], exporters: [signals]}}}}", r.port)
	r.cmd = exec.Command(find("ld-linux-x86-64.so.2"), "--library-path", filepath.Dir(find("libc.so.6"))+":"+filepath.Dir(h.script), collector, "--config=yaml:"+config)
	r.cmd.Env = append(cleanEnv(), h.env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.waitErr = r.cmd.Wait()
		close(r.waited)
	}()
	defer func() {
		_ = r.cmd.Process.Signal(os.Interrupt)
		if rc := r.wait().ExitCode(); rc != 0 {
			t.Errorf("exit status %d\n%s", rc, r.stderr.String())
		}
	}()
	r.golden("h200")
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/libc") && !strings.Contains(line, old) {
			t.Errorf("another C library is loaded: %s", line)
		}
	}
}
