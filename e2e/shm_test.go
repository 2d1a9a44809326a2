package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// put writes one file into the run directory of a process, the way a writer does.
func put(t *testing.T, pid int, name, content string) {
	t.Helper()
	dir := fmt.Sprintf("/dev/shm/graphsignal_%d", pid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// A process that outlives the launcher leaves it behind, for the next one of its pid to stumble over.
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".tmp", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// header is the beginning of a document that a process started just now would write.
func header(pid int) string {
	now := time.Now().UnixNano()
	return fmt.Sprintf(`{"version":1,"pid":%d,"start_ts":%d,"write_ts":%d,`, pid, now, now)
}

// TestHandWrittenDocument follows the example of the format: exact integers up to 2^63-1, every type.
func TestHandWrittenDocument(t *testing.T) {
	r := start(t, nil, "sleep", "60")
	pid := r.workload()
	put(t, pid, "cupti.json", header(pid)+`"context":{"rank":"0","unknown":"x"},"metrics":[
		{"name":"cuda_kernels_nanoseconds","type":"profile","tags":{},"frames":{"_Z3addPf":[81200,12],"big":[9223372036854775807,1]}},
		{"name":"cuda_memcpy_bytes","type":"counter","tags":{"kind":"host_to_device"},"value":9223372036854775807},
		{"name":"cuda_graph_trace_mode","type":"gauge","tags":{},"value":0},
		{"name":"never_recorded","type":"histogram","tags":{}},
		{"name":"app_step_ns","type":"histogram","tags":{"op":"a"},"bins":[40,96],"counts":[1,2],"count":3,"sum":243,"min":42,"max":101}],
		"log":[{"ts":1700000001000000000,"level":"error","msg":"cupti said no \n"},{"ts":1700000001000000001,"level":"debug","msg":"chatter"}]}`)
	put(t, pid, "hostile.json", header(pid)+`"metrics":[{"name":"half`)
	put(t, pid, "binary.json", "\x00\xff\xfe{")
	d := r.signalsWhen("the document is imported", func(d *document) bool {
		return d.find("app_step_ns") != nil && hasError(d, "cupti said no")
	})
	tag := "process.pid=" + strconv.Itoa(pid)
	if got := d.find("cuda_memcpy_bytes", tag, "kind=host_to_device", "process.rank=0").stat("total"); got != "9223372036854775807" {
		t.Errorf("counter total is %s", got)
	}
	if got := d.find("cuda_graph_trace_mode", tag).stat("value"); got != "0" {
		t.Errorf("gauge is %s", got)
	}
	if got, want := d.find("cuda_kernels_nanoseconds", tag).stat("frames"),
		`[{"name": "big", "value": 9223372036854775807, "samples": 1}, {"name": "_Z3addPf", "value": 81200, "samples": 12}]`; got != want {
		t.Errorf("frames are %s", got)
	}
	h := d.find("app_step_ns", tag, "op=a")
	for key, want := range map[string]string{"count": "3", "sum": "243", "min": "42", "max": "101", "mean": "81.0", "p50": "96", "p95": "96"} {
		if got := h.stat(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if d.find("never_recorded") != nil {
		t.Error("an instrument nobody recorded is published")
	}
	if hasError(d, "chatter") {
		t.Error("a debug entry is among the errors")
	}
	r.signalsWhen("hostile files take nothing else with them", func(d *document) bool {
		return d.find("host_memory_usage_bytes") != nil && d.process(pid) != nil
	})
	r.signalsWhen("the skipped files are reported", func(d *document) bool {
		for _, e := range d.Errors {
			if e.Level == "warning" && e.Tags["scope.name"] == "watcher" && strings.HasPrefix(e.Message, "Graphsignal ") {
				return true
			}
		}
		return false
	})
}

// TestRestartedWriter: totals that went down are served as they are.
func TestRestartedWriter(t *testing.T) {
	r := start(t, nil, "sleep", "60")
	pid := r.workload()
	put(t, pid, "app.json", header(pid)+`"metrics":[{"name":"steps","type":"counter","value":900}]}`)
	r.signalsWhen("900 is read", func(d *document) bool { return d.find("steps").stat("total") == "900" })
	put(t, pid, "app.json", header(pid)+`"metrics":[{"name":"steps","type":"counter","value":3}]}`)
	r.signalsWhen("3 is read", func(d *document) bool { return d.find("steps").stat("total") == "3" })
}

// TestDyingChild: what a child wrote just before its end is read before its directory is removed.
func TestDyingChild(t *testing.T) {
	script := `
import os, time
pid = os.fork()
if pid == 0:
    time.sleep(1.2)
    d = "/dev/shm/graphsignal_%d" % os.getpid(); os.makedirs(d, 0o700); t = time.time_ns()
    open(d + "/app.json.tmp", "w").write('{"version":1,"pid":%d,"start_ts":%d,"write_ts":%d,"metrics":[{"name":"last_words","type":"counter","value":41}]}' % (os.getpid(), t, t))
    os.rename(d + "/app.json.tmp", d + "/app.json")
    os._exit(0)
os.waitpid(pid, 0)
print(pid, flush=True)
time.sleep(60)`
	r := start(t, nil, "python3", "-c", script)
	r.signalsWhen("the child's last document is read", func(d *document) bool { return d.find("last_words").stat("total") == "41" })
	child := strings.TrimSpace(r.stdout.String())
	eventually(t, "the child's directory is removed", func() bool {
		_, err := os.Stat("/dev/shm/graphsignal_" + child)
		return os.IsNotExist(err)
	})
}

// TestBytesThatAreNoText is the case of a kernel name with bytes that are not UTF-8.
func TestBytesThatAreNoText(t *testing.T) {
	r := start(t, nil, "sleep", "60")
	pid := r.workload()
	put(t, pid, "cupti.json", header(pid)+`"metrics":[`+
		`{"name":"cuda_kernels_nanoseconds","type":"profile","tags":{},"frames":{"gemm_`+"\x9f\xfe"+`_v2":[5000,2],"ok_kernel":[700,1]}},`+
		`{"name":"app_steps","type":"counter","tags":{"who":"`+"\xc3"+`"},"value":12}]}`)
	put(t, pid, "rocm.json", header(pid)+`"metrics":[{"name":"other","type":"counter","value":3}]}`)
	d := r.signalsWhen("both files are imported", func(d *document) bool { return d.find("other") != nil && d.find("app_steps") != nil })
	if got := d.find("app_steps", "who=\ufffd").stat("total"); got != "12" {
		t.Errorf("app_steps is %s", got)
	}
	frames := d.find("cuda_kernels_nanoseconds").stat("frames")
	if !strings.Contains(frames, `"ok_kernel", "value": 700, "samples": 1`) || !strings.Contains(frames, `"value": 5000, "samples": 2`) {
		t.Errorf("frames are %s", frames)
	}
}

// TestForeignDirectories is the case of two containers that share /dev/shm: what is written to is nobody's to sweep.
func TestForeignDirectories(t *testing.T) {
	if os.Geteuid() != 0 || exec.Command("unshare", "-rpf", "--mount-proc", "true").Run() != nil {
		t.Skip("needs pid namespaces")
	}
	writer := exec.Command("unshare", "-rpf", "--mount-proc", "--kill-child", "python3", "-c", `
import os, time
d = "/dev/shm/graphsignal_54321"; os.makedirs(d, 0o700, exist_ok=True); os.makedirs("/dev/shm/graphsignal_log_54321", exist_ok=True)
print("up", flush=True)
while True:
    t = time.time_ns(); f = d + "/cupti.json"
    open(f + ".tmp", "w").write("{\"version\":1,\"pid\":54321,\"start_ts\":%d,\"write_ts\":%d,\"metrics\":[]}" % (t, t)); os.rename(f + ".tmp", f)
    time.sleep(0.2)`)
	var up syncBuffer
	writer.Stdout = &up
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = writer.Process.Kill()
		_ = writer.Wait()
		_ = os.RemoveAll("/dev/shm/graphsignal_54321")
		_ = os.RemoveAll("/dev/shm/graphsignal_log_54321")
		_ = os.RemoveAll("/dev/shm/graphsignal_54322")
	})
	eventually(t, "the other container writes", func() bool { return strings.Contains(up.String(), "up") })
	stale := "/dev/shm/graphsignal_54322"
	if err := os.MkdirAll(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "sleep", "60")
	r.signalsWhen("the run is up", func(d *document) bool { return len(d.Resources) > 0 })
	eventually(t, "the stale directory is swept", func() bool {
		_, err := os.Stat(stale)
		return os.IsNotExist(err)
	})
	for _, dir := range []string{"/dev/shm/graphsignal_54321", "/dev/shm/graphsignal_log_54321"} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s of a live container is gone: %v", dir, err)
		}
	}
	if writer.ProcessState != nil {
		t.Error("the other container's writer failed")
	}
}

// TestHostileTitles is the case of process titles that hold blanks, parentheses and bytes that are not text.
func TestHostileTitles(t *testing.T) {
	r := start(t, nil, "python3", "-c", `
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"VLLM::W) Z 1 (", 0, 0, 0)
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"\xff\xfe w\n1", 0, 0, 0)
t = time.time()
while time.time() - t < 60: pass`)
	pid := r.workload()
	d := r.signalsWhen("both processes show CPU use", func(d *document) bool {
		busy := 0
		for _, m := range d.Metrics {
			if m.Name == "process_cpu_usage_percent" {
				if v, err := strconv.ParseFloat(m.stat("value"), 64); err == nil && v > 0 { // how much depends on what else runs
					busy++
				}
			}
		}
		return busy == 2
	})
	if p := d.process(pid); p == nil || p.First < time.Now().Unix()-30 {
		t.Errorf("the target's resource is %+v", p)
	}
}

// referencePID is the workload's pid in the reference's reply.
const referencePID = "9083"

// TestReferenceDocument compares the whole of /signals with what the reference answered to the same input. Departures
// are three: a null tag is skipped, integers saturate at 2^63-1, and frames of equal value are sorted by name.
func TestReferenceDocument(t *testing.T) {
	r := start(t, []string{"GRAPHSIGNAL_TAG_TEAM_NAME=Infra", "GRAPHSIGNAL_TAG_EMPTY=", "GRAPHSIGNAL_TAG_Mixed_Case=a b"}, "sleep", "60")
	pid := r.workload()
	input, err := os.ReadFile("testdata/scenario-1-cupti.json")
	if err != nil {
		t.Fatal(err)
	}
	put(t, pid, "cupti.json", refreshed(t, input))
	reference, err := os.ReadFile("testdata/scenario-1.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseDocument(reference)
	if err != nil {
		t.Fatal(err)
	}
	d := r.signalsWhen("the document is imported", func(d *document) bool { return d.find("app_big_float") != nil })
	compareSeries(t, d, want, pid)
	delete(want.Context, "instance.id")
	delete(want.Context, "host.name")
	for key, value := range want.Context {
		if d.Context[key] != value {
			t.Errorf("context %s is %q, the reference has %q", key, d.Context[key], value)
		}
	}
}

// refreshed gives a recorded document times of now, since its series would have expired.
func refreshed(t *testing.T, input []byte) string {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(input, &doc); err != nil {
		t.Fatal(err)
	}
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	doc["start_ts"], doc["write_ts"] = json.RawMessage(now), json.RawMessage(now)
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// compareSeries compares the series of the shared-memory file, in order.
func compareSeries(t *testing.T, got, want *document, pid int) {
	t.Helper()
	own := func(d *document) []metric {
		return slices.DeleteFunc(slices.Clone(d.Metrics), func(m metric) bool {
			return strings.HasPrefix(m.Name, "process_") || strings.HasPrefix(m.Name, "host_")
		})
	}
	ours, theirs := own(got), own(want)
	var names, wantNames []string
	for _, m := range ours {
		names = append(names, m.Name+" "+m.Type)
	}
	for _, m := range theirs {
		wantNames = append(wantNames, m.Name+" "+m.Type)
	}
	if !slices.Equal(names, wantNames) {
		t.Fatalf("series are\n%q\nthe reference has\n%q", names, wantNames)
	}
	for i, m := range theirs {
		if m.Tags["process.pid"] == referencePID {
			m.Tags["process.pid"] = strconv.Itoa(pid)
		}
		delete(m.Tags, "null")
		if !maps.Equal(ours[i].Tags, m.Tags) {
			t.Errorf("%s: tags %v, the reference has %v", m.Name, ours[i].Tags, m.Tags)
		}
		for key, value := range m.Stats {
			want := departed(t, key, value)
			if string(ours[i].Stats[key]) != want {
				t.Errorf("%s: %s is %s, the reference has %s", m.Name, key, ours[i].Stats[key], want)
			}
		}
	}
}

// departed rewrites a statistic of the reference where ours differs on purpose.
func departed(t *testing.T, key string, value json.RawMessage) string {
	t.Helper()
	text := strings.ReplaceAll(string(value), "18446744073709551615", "9223372036854775807")
	if key != "frames" {
		return text
	}
	var frames []struct {
		Name           json.RawMessage
		Value, Samples json.Number
	}
	if err := json.Unmarshal([]byte(text), &frames); err != nil {
		t.Fatal(err)
	}
	var order []string
	for i := range frames {
		var name string
		if err := json.Unmarshal(frames[i].Name, &name); err != nil {
			t.Fatal(err)
		}
		order = append(order, name)
	}
	index := make([]int, len(frames))
	for i := range index {
		index[i] = i
	}
	slices.SortStableFunc(index, func(a, b int) int {
		if frames[a].Value != frames[b].Value {
			return a - b // already descending
		}
		return strings.Compare(order[a], order[b])
	})
	var parts []string
	for _, i := range index {
		parts = append(parts, fmt.Sprintf(`{"name": %s, "value": %s, "samples": %s}`, frames[i].Name, frames[i].Value, frames[i].Samples))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// TestDamagedDocuments gives each damaged file of the reference's list to a run of its own directory and checks that
// the reply stays valid, that the good file beside it is there, and that everything the reference published of
// well-formed entries is there too.
func TestDamagedDocuments(t *testing.T) {
	raw, err := os.ReadFile("testdata/scenario-1b-malformed.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Case  string            `json:"case"`
		Files map[string]string `json:"files"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 35 {
		t.Fatalf("%d cases", len(cases))
	}
	// One run with a process for each case; a good file written last shows that the others were read.
	r := start(t, nil, "sh", "-c", fmt.Sprintf("for i in $(seq %d); do sleep 120 & done; wait", len(cases)))
	pid := r.workload()
	eventually(t, "all processes are started", func() bool { return len(children(pid)) == len(cases) })
	pids := children(pid)
	r.signalsWhen("the run is up", func(d *document) bool { return d.process(pid) != nil })
	for i, c := range cases {
		for name, content := range c.Files {
			if text, ok := strings.CutPrefix(content, "base64:"); ok {
				decoded, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					t.Fatal(err)
				}
				content = string(decoded)
			}
			if strings.HasPrefix(content, "'[' repeated") {
				content = strings.Repeat("[", 100000)
			}
			now := time.Now()
			content = strings.NewReplacer("@NOW@", strconv.FormatInt(now.UnixNano(), 10),
				"@OLD@", strconv.FormatInt(now.Add(-20*time.Minute).UnixNano(), 10)).Replace(content)
			put(t, pids[i], name, content)
		}
		put(t, pids[i], "zzz.json", header(pids[i])+`"metrics":[{"name":"marker","type":"gauge","value":1}]}`)
	}
	d := r.signalsWhen("the good file beside each case is read", func(d *document) bool {
		n := 0
		for _, m := range d.Metrics {
			if m.Name == "marker" {
				n++
			}
		}
		return n == len(cases)
	})
	for i, c := range cases {
		if len(c.Files["z.json"]) > 0 && d.find("zz_good", "process.pid="+strconv.Itoa(pids[i])) == nil {
			t.Errorf("%s: the good file z.json is not imported", c.Case)
		}
	}
	for _, m := range d.Metrics {
		for key, v := range m.Stats {
			if !json.Valid(v) {
				t.Errorf("%s.%s is %s", m.Name, key, v)
			}
		}
	}
}
