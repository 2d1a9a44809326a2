package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// unitSettings reads the settings of a unit file, those of all sections together.
func unitSettings(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[name] = value
		}
	}
	return settings
}

// TestSystemdUnit runs the node Collector as the unit of examples/systemd does: by its command line, under a user of no
// other rights than the unit's, over a program of another user in namespaces of its own.
func TestSystemdUnit(t *testing.T) {
	unit := filepath.Join(root, "examples", "systemd", "graphsignal-collector.service")
	settings := unitSettings(t, unit)
	p := newPods(t)
	config, err := os.ReadFile(example("node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "node.yaml"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	place := strings.NewReplacer("/usr/bin/", p.dir+"/", "/etc/graphsignal/", p.dir+"/")
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		local := filepath.Join(p.dir, filepath.Base(unit))
		if err := os.WriteFile(local, []byte(place.Replace(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", local).CombinedOutput()
		if err != nil || strings.Contains(string(out), local) {
			t.Errorf("systemd-analyze: %v\n%s", err, out)
		}
	}

	pid, _ := p.pod("exec " + p.demo("setpriv --reuid="+podUser+" --regid="+podUser+" --clear-groups", freeport.Get(t)))
	rights := func(setting string) (set string) {
		for _, name := range strings.Fields(settings[setting]) {
			set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
		}
		return set
	}
	const dynamicUser = "61184"
	service := []string{"setpriv", "--reuid=" + dynamicUser, "--regid=" + dynamicUser, "--clear-groups", "--no-new-privs",
		"--inh-caps=-all" + rights("AmbientCapabilities"), "--ambient-caps=-all" + rights("AmbientCapabilities"),
		"--bounding-set=-all" + rights("CapabilityBoundingSet")}
	view := &run{t: t, port: freeport.Get(t)}
	env := append(strings.Fields(strings.ReplaceAll(settings["Environment"], "%H", "node-7")), "GRAPHSIGNAL_LISTEN_PORT="+strconv.Itoa(view.port))
	p.command(env, append(service, strings.Fields(place.Replace(settings["ExecStart"]))...)...)
	d := view.signalsWhen("the pod is seen", func(d *document) bool {
		return d.find("demo_tokens", "process.pid="+strconv.Itoa(pid)) != nil && d.find("host_memory_usage_bytes") != nil
	})
	if d.Context["host.name"] != "node-7" {
		t.Errorf("context is %v", d.Context)
	}
	if hasError(d, "SYS_PTRACE") {
		t.Errorf("a right is missing: %+v", d.Errors)
	}
}
