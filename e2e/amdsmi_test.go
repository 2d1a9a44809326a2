package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// amdHome lays out a ROCm installation with the fake libamd_smi of a release and a script for it.
func amdHome(t *testing.T, soname, script string) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "rocm")
	lib := filepath.Join(home, "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-O1", "-fPIC", "-shared", "-Wl,-soname," + soname}
	if soname == "libamd_smi.so.24" {
		args = append(args, "-DBEFORE_25")
	}
	args = append(args, filepath.Join(root, "receiver", "amdsmireceiver", "testdata", "fake_amd_smi.c"), "-o", filepath.Join(lib, soname), "-ldl")
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(lib, "script"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

func amdScript(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "receiver", "amdsmireceiver", "testdata", name+".script"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// gpuPart is what a document says about GPUs, without times.
func gpuPart(t *testing.T, d *document) []byte {
	t.Helper()
	type entry struct {
		Name  string                     `json:"name"`
		Type  string                     `json:"type"`
		Tags  map[string]string          `json:"tags"`
		Stats map[string]json.RawMessage `json:"stats"`
	}
	type device struct {
		Tags       map[string]string `json:"tags"`
		Attributes map[string]string `json:"attributes"`
	}
	part := struct {
		Metrics []entry  `json:"metrics"`
		Devices []device `json:"devices"`
		Errors  []string `json:"errors"`
	}{Metrics: []entry{}, Devices: []device{}, Errors: []string{}}
	for _, m := range d.Metrics {
		if strings.HasPrefix(m.Name, "gpu_") {
			part.Metrics = append(part.Metrics, entry{m.Name, m.Type, m.Tags, m.Stats})
		}
	}
	for _, r := range d.Resources {
		if r.Kind == "device" {
			part.Devices = append(part.Devices, device{r.Tags, r.Attributes})
		}
	}
	for _, e := range d.Errors {
		part.Errors = append(part.Errors, e.Message)
	}
	text, err := json.MarshalIndent(part, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// TestAMDGPUs compares what /signals says of each kind of part with a golden document, which UPDATE_GOLDEN=1 writes
// anew.
func TestAMDGPUs(t *testing.T) {
	for _, tc := range []struct {
		name, soname string
		devices      int
	}{
		{"mi300x", "libamd_smi.so.26", 2},
		{"mi210", "libamd_smi.so.24", 1},
		{"radeon", "libamd_smi.so.25", 1},
		{"dpx", "libamd_smi.so.26", 2},
		{"cpx", "libamd_smi.so.26", 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			home := amdHome(t, tc.soname, amdScript(t, tc.name))
			r := start(t, []string{"ROCM_PATH=" + home}, "sleep", "60")
			d := r.signalsWhen("all devices are there", func(d *document) bool {
				n := 0
				for _, res := range d.Resources {
					if res.Kind == "device" {
						n++
					}
				}
				return n == tc.devices
			})
			got := gpuPart(t, d)
			golden := filepath.Join("testdata", "amdsmi", tc.name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if said := r.stderr.String(); said != "" {
				t.Errorf("standard error is %q", said)
			}
		})
	}
}

// TestAMDWithoutDriver: the library is there and the driver is not, which is no news.
func TestAMDWithoutDriver(t *testing.T) {
	home := amdHome(t, "libamd_smi.so.26", "init 34\n")
	r := start(t, []string{"ROCM_PATH=" + home}, "sleep", "60")
	since := r.signalsWhen("host metrics are there", func(d *document) bool { return d.find("host_memory_usage_bytes") != nil })
	d := r.signalsWhen("they are renewed", func(d *document) bool {
		m := d.find("host_memory_usage_bytes")
		return m != nil && string(m.UpdatedNS) != string(since.find("host_memory_usage_bytes").UpdatedNS)
	})
	if got := string(gpuPart(t, d)); got != "{\n \"metrics\": [],\n \"devices\": [],\n \"errors\": []\n}\n" {
		t.Errorf("/signals says %s", got)
	}
	if said := r.stderr.String(); said != "" {
		t.Errorf("standard error is %q", said)
	}
}

// TestAMDHang: a driver that does not answer keeps nobody else, nor the end.
func TestAMDHang(t *testing.T) {
	never := filepath.Join(t.TempDir(), "never")
	home := amdHome(t, "libamd_smi.so.25", amdScript(t, "radeon")+"hold metrics "+never+"\n")
	end := filepath.Join(t.TempDir(), "end")
	r := start(t, []string{"ROCM_PATH=" + home}, "sh", "-c", "while ! [ -e "+end+" ]; do sleep 0.05; done")
	eventually(t, "the driver hangs", func() bool {
		_, err := os.Stat(never + ".held")
		return err == nil
	})
	updated := ""
	for range 3 {
		d := r.signalsWhen("host metrics are renewed", func(d *document) bool {
			m := d.find("host_memory_usage_bytes")
			return m != nil && string(m.UpdatedNS) != updated
		})
		updated = string(d.find("host_memory_usage_bytes").UpdatedNS)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := r.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
