package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/graphsignal/graphsignal-collector/internal/fakenvml"
	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// pods runs programs in namespaces of their own, as a container runtime does.
type pods struct {
	t   *testing.T
	dir string // holds copies of our programs that every user may run
}

const podUser = "4242"

func newPods(t *testing.T) *pods {
	t.Helper()
	if os.Geteuid() != 0 || exec.Command("unshare", "-rpfm", "--mount-proc", "true").Run() != nil {
		t.Skip("needs root, and user, pid and mount namespaces")
	}
	dir := t.TempDir()
	for _, open := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	demo := filepath.Join(root, "bin", "graphsignal-demo")
	if _, err := os.Stat(demo); err != nil {
		t.Fatal("the demo engine is missing: run `make native` first")
	}
	for _, file := range []string{demo, filepath.Join(root, "lib", "graphsignal", "libgraphsignal_probe.so"), filepath.Join(bin, "graphsignal-collector")} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), raw, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &pods{t, dir}
}

// pod starts a shell script in a new mount and pid namespace (flags may ask for more) with its own /dev/shm, and
// returns the pid of its first process.
func (p *pods) pod(script string, flags ...string) (pid int, log *syncBuffer) {
	p.t.Helper()
	args := append(flags, "-pfm", "--mount-proc", "sh", "-c", "mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm && "+script)
	cmd := exec.Command("unshare", args...)
	cmd.Env = cleanEnv()
	log = new(syncBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		// With the first process all others of its namespace die.
		for _, first := range children(cmd.Process.Pid) {
			_ = syscall.Kill(first, syscall.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("pod: %s", log.String())
		}
	})
	eventually(p.t, "the pod runs", func() bool {
		if list := children(cmd.Process.Pid); len(list) > 0 {
			pid = list[0]
		}
		return pid != 0
	})
	return pid, log
}

// demo is the command of a demo engine with probes; as prefixes it, such as setpriv with a user.
func (p *pods) demo(as string, port int) string {
	return fmt.Sprintf("%s env GRAPHSIGNAL_PROBE_LIB=%s/libgraphsignal_probe.so %[2]s/graphsignal-demo --port %d", as, p.dir, port)
}

// confined is a command prefix: root with the given capabilities only, and no way to more.
func confined(capabilities string) []string {
	return []string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all" + capabilities}
}

// command runs one of our Collectors until the test ends.
func (p *pods) command(env []string, args ...string) *syncBuffer {
	p.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(cleanEnv(), env...)
	log := new(syncBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("Collector: %s", log.String())
		}
	})
	return log
}

// capabilitiesOf returns the effective capabilities of a process, as /proc shows them.
func capabilitiesOf(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(mask)
		}
	}
	return ""
}

// nodeCapabilities are those that examples/kubernetes/daemonset.yaml asks for.
const nodeCapabilities = ",+sys_ptrace,+dac_read_search"

// TestNode runs examples/collector/node.yaml over two pods: one in a user namespace, one of another user.
func TestNode(t *testing.T) {
	p := newPods(t)
	gpus := newGPUHost(t, fakenvml.H200s(2), false)
	g := newGateway(t, "http://127.0.0.1:9")
	ports := []int{freeport.Get(t), freeport.Get(t)}
	first, _ := p.pod("exec "+p.demo("", ports[0]), "-r")
	second, _ := p.pod("exec " + p.demo("setpriv --reuid="+podUser+" --regid="+podUser+" --clear-groups", ports[1]))
	view := &run{t: t, port: freeport.Get(t)}
	env := append(gpus.env, "GRAPHSIGNAL_LISTEN_PORT="+strconv.Itoa(view.port), "OTLP_ENDPOINT=http://"+g.host+":4318", "NODE_NAME=node-7",
		fmt.Sprintf("ENGINE_0=127.0.0.1:%d", ports[0]), fmt.Sprintf("ENGINE_1=127.0.0.1:%d", ports[1]))
	p.command(env, append(confined(nodeCapabilities), filepath.Join(bin, "graphsignal-collector"), "--config="+example("node.yaml"))...)

	complete := func(d *document) bool {
		for i, pid := range []int{first, second} {
			if d.find("demo_tokens", "process.pid="+strconv.Itoa(pid)) == nil || d.find("demo_request_latency_seconds", "replica="+strconv.Itoa(i)) == nil {
				return false
			}
		}
		gpus := 0
		for _, m := range d.Metrics {
			if m.Name == "gpu_memory_total_bytes" {
				gpus++
			}
		}
		return gpus == 2 && d.find("host_memory_usage_bytes") != nil
	}
	d := view.signalsWhen("both pods, both engines and all GPUs are seen", complete)
	if d.Context["host.name"] != "node-7" {
		t.Errorf("context is %v", d.Context)
	}
	for _, e := range d.Errors {
		if e.Level == "warning" {
			t.Errorf("the Collector complains: %s", e.Message)
		}
	}
	remote := g.signalsWhen("it reached the gateway", complete)
	for _, m := range remote.Metrics {
		if m.Tags["host.name"] != "node-7" {
			t.Errorf("%s arrived without its node: %v", m.Name, m.Tags)
		}
	}

	// The totals go on, and nothing of a pod was removed.
	before := d.find("demo_tokens", "process.pid="+strconv.Itoa(second)).stat("total")
	view.signalsWhen("the totals go on", func(d *document) bool {
		now := d.find("demo_tokens", "process.pid="+strconv.Itoa(second)).stat("total")
		return now != before && now != "absent"
	})
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/shm/graphsignal_1/probes.json", second)); err != nil {
		t.Errorf("the pod's run directory: %v", err)
	}
}

// TestNodeWithoutCapabilities: a Collector that lacks them says so and serves the rest.
func TestNodeWithoutCapabilities(t *testing.T) {
	p := newPods(t)
	pid, _ := p.pod("exec " + p.demo("setpriv --reuid="+podUser+" --regid="+podUser+" --clear-groups", freeport.Get(t)))
	view := &run{t: t, port: freeport.Get(t)}
	p.command([]string{"GRAPHSIGNAL_LISTEN_PORT=" + strconv.Itoa(view.port)},
		append(confined(""), filepath.Join(bin, "graphsignal-collector"), "--config="+example("node.yaml"))...)
	d := view.signalsWhen("the missing capabilities are told of", func(d *document) bool {
		return d.find("host_memory_usage_bytes") != nil && hasError(d, "SYS_PTRACE")
	})
	if d.find("demo_tokens", "process.pid="+strconv.Itoa(pid)) != nil {
		t.Error("the pod was read all the same")
	}
}

// object is one Kubernetes object, as far as the examples use it.
type object struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   metadata          `yaml:"metadata"`
	Data       map[string]string `yaml:"data"`
	Spec       struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		Template struct {
			Metadata metadata `yaml:"metadata"`
			Spec     podSpec  `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type metadata struct {
	Name      string            `yaml:"name"`
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
}

type podSpec struct {
	HostPID               bool            `yaml:"hostPID"`
	HostNetwork           bool            `yaml:"hostNetwork"`
	HostIPC               bool            `yaml:"hostIPC"`
	ShareProcessNamespace bool            `yaml:"shareProcessNamespace"`
	AutomountToken        *bool           `yaml:"automountServiceAccountToken"`
	SecurityContext       securityContext `yaml:"securityContext"`
	InitContainers        []container     `yaml:"initContainers"`
	Containers            []container     `yaml:"containers"`
	Volumes               []struct {
		Name     string    `yaml:"name"`
		HostPath yaml.Node `yaml:"hostPath"`
		EmptyDir *struct {
			Medium string `yaml:"medium"`
		} `yaml:"emptyDir"`
		ConfigMap *struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
	} `yaml:"volumes"`
}

type container struct {
	Name            string          `yaml:"name"`
	Image           string          `yaml:"image"`
	Command         []string        `yaml:"command"`
	Args            []string        `yaml:"args"`
	SecurityContext securityContext `yaml:"securityContext"`
	Env             []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	Ports []struct {
		Name string `yaml:"name"`
		Port int    `yaml:"containerPort"`
	} `yaml:"ports"`
	Resources struct {
		Limits map[string]string `yaml:"limits"`
	} `yaml:"resources"`
	ReadinessProbe *struct {
		HTTPGet struct {
			Path string `yaml:"path"`
			Port string `yaml:"port"`
		} `yaml:"httpGet"`
	} `yaml:"readinessProbe"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type securityContext struct {
	RunAsUser                *int  `yaml:"runAsUser"`
	RunAsNonRoot             *bool `yaml:"runAsNonRoot"`
	Privileged               *bool `yaml:"privileged"`
	AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   *bool `yaml:"readOnlyRootFilesystem"`
	Capabilities             struct {
		Add  []string `yaml:"add"`
		Drop []string `yaml:"drop"`
	} `yaml:"capabilities"`
}

// manifest reads a file of examples/kubernetes.
func manifest(t *testing.T, name string) (objects []object) {
	t.Helper()
	file, err := os.Open(filepath.Join(root, "examples", "kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	for {
		var o object
		err := decoder.Decode(&o)
		if err == io.EOF {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		objects = append(objects, o)
	}
}

// find returns the only object of a kind.
func find(t *testing.T, objects []object, kind string) object {
	t.Helper()
	i := slices.IndexFunc(objects, func(o object) bool { return o.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return objects[i]
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// TestKubernetesRights checks who may do what in the manifests.
func TestKubernetesRights(t *testing.T) {
	for file, kind := range map[string]string{"daemonset.yaml": "DaemonSet", "sidecar.yaml": "Deployment", "gateway.yaml": "Deployment"} {
		objects := manifest(t, file)
		for _, o := range objects {
			if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
				t.Errorf("%s: an object without apiVersion, kind or name: %+v", file, o)
			}
		}
		workload := find(t, objects, kind)
		pod := workload.Spec.Template.Spec
		if fmt.Sprint(workload.Spec.Selector.MatchLabels) != fmt.Sprint(workload.Spec.Template.Metadata.Labels) {
			t.Errorf("%s: the selector is not that of the pods", file)
		}
		if !isFalse(pod.AutomountToken) || pod.HostNetwork || pod.HostIPC {
			t.Errorf("%s: the pods get more of the host or the API than they need", file)
		}
		volumes := make(map[string]bool)
		for _, v := range pod.Volumes {
			volumes[v.Name] = true
			if !v.HostPath.IsZero() {
				t.Errorf("%s: volume %s is a path of the host", file, v.Name)
			}
			if v.ConfigMap != nil && file != "gateway.yaml" && find(t, objects, "ConfigMap").Metadata.Name != v.ConfigMap.Name {
				t.Errorf("%s: there is no ConfigMap %s", file, v.ConfigMap.Name)
			}
		}
		ours := 0
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: %s mounts %s, which is not there", file, c.Name, m.Name)
				}
			}
			if !strings.HasPrefix(c.Image, "graphsignal-collector:") {
				continue
			}
			ours++
			s := c.SecurityContext
			if !isFalse(s.Privileged) || !isFalse(s.AllowPrivilegeEscalation) || !isTrue(s.ReadOnlyRootFilesystem) || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: container %s is not confined: %+v", file, c.Name, s)
			}
			var added []string
			if file == "daemonset.yaml" {
				added = []string{"SYS_PTRACE", "DAC_READ_SEARCH"}
			} else if !isTrue(s.RunAsNonRoot) && !isTrue(pod.SecurityContext.RunAsNonRoot) {
				t.Errorf("%s: container %s may run as root", file, c.Name)
			}
			if !slices.Equal(s.Capabilities.Add, added) {
				t.Errorf("%s: container %s adds capabilities %v, want %v", file, c.Name, s.Capabilities.Add, added)
			}
			if c.Resources.Limits["memory"] == "" {
				t.Errorf("%s: container %s has no limit of memory", file, c.Name)
			}
			if c.Command != nil {
				continue // it only copies
			}
			if file != "gateway.yaml" && c.Resources.Limits["memory"] != "256Mi" {
				t.Errorf("%s: the limit of memory is %s", file, c.Resources.Limits["memory"])
			}
			if c.ReadinessProbe == nil {
				t.Fatalf("%s: container %s has no readiness probe", file, c.Name)
			}
			if probe := c.ReadinessProbe.HTTPGet; file != "gateway.yaml" && probe.Path != "/health" ||
				!slices.ContainsFunc(c.Ports, func(p struct {
					Name string `yaml:"name"`
					Port int    `yaml:"containerPort"`
				}) bool {
					return p.Name == probe.Port
				}) {
				t.Errorf("%s: the readiness probe asks %+v", file, probe)
			}
		}
		if ours == 0 {
			t.Errorf("%s: no container of ours", file)
		}
		if pod.HostPID != (file == "daemonset.yaml") || pod.ShareProcessNamespace != (file == "sidecar.yaml") {
			t.Errorf("%s: process namespaces are wrong", file)
		}
	}
}

// TestKubernetesSchemas decodes every object strictly into the API's own types.
func TestKubernetesSchemas(t *testing.T) {
	checker := filepath.Join("testdata", "kubecheck")
	if out, err := exec.Command("go", "-C", checker, "mod", "download").CombinedOutput(); err != nil {
		t.Skipf("the Kubernetes API's types cannot be had: %v\n%s", err, out)
	}
	args := []string{"-C", checker, "run", "."}
	for _, file := range []string{"daemonset.yaml", "sidecar.yaml", "gateway.yaml"} {
		args = append(args, filepath.Join(root, "examples", "kubernetes", file))
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestKubernetesDaemonSet runs the configuration of daemonset.yaml with its rights, on a read-only root.
func TestKubernetesDaemonSet(t *testing.T) {
	p := newPods(t)
	objects := manifest(t, "daemonset.yaml")
	pid, _ := p.pod("exec " + p.demo("setpriv --reuid="+podUser+" --regid="+podUser+" --clear-groups", freeport.Get(t)))
	config := filepath.Join(p.dir, "node.yaml")
	view := &run{t: t, port: freeport.Get(t)}
	text := strings.Replace(find(t, objects, "ConfigMap").Data["node.yaml"], "0.0.0.0:18259", "127.0.0.1:"+strconv.Itoa(view.port), 1)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "http://127.0.0.1:9")
	// Its own mount namespace, all of it read-only, but the host's pid namespace.
	script := "mount --make-rprivate / && mount -o remount,bind,ro / && exec \"$@\""
	args := append([]string{"unshare", "-m", "sh", "-c", script, "sh"}, confined(nodeCapabilities)...)
	args = append(args, filepath.Join(p.dir, "graphsignal-collector"), "--config="+config)
	p.command([]string{"NODE_NAME=node-7", "OTLP_ENDPOINT=http://" + g.host + ":4318"}, args...)
	seen := func(d *document) bool {
		return d.find("demo_tokens", "process.pid="+strconv.Itoa(pid)) != nil && d.find("host_memory_usage_bytes") != nil
	}
	view.signalsWhen("the pod is seen", seen)
	g.signalsWhen("it reached the gateway", seen)
}

// TestKubernetesSidecar runs the configuration of sidecar.yaml beside an engine: one pid namespace, one /dev/shm, the
// engine's user, no capability, a read-only root.
func TestKubernetesSidecar(t *testing.T) {
	p := newPods(t)
	objects := manifest(t, "sidecar.yaml")
	config := filepath.Join(p.dir, "sidecar.yaml")
	if err := os.WriteFile(config, []byte(find(t, objects, "ConfigMap").Data["sidecar.yaml"]), 0o644); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "http://127.0.0.1:9")
	view := &run{t: t, port: freeport.Get(t)}
	engine := freeport.Get(t)
	user := "setpriv --no-new-privs --reuid=" + podUser + " --regid=" + podUser + " --clear-groups --inh-caps=-all --bounding-set=-all"
	script := fmt.Sprintf("{ %s & } && exec unshare -m sh -c 'mount --make-rprivate / && mount -o remount,bind,ro / && exec %s env GRAPHSIGNAL_LISTEN_HOST=127.0.0.1 GRAPHSIGNAL_LISTEN_PORT=%d "+
		"ENGINE_METRICS=127.0.0.1:%d POD_NAME=engine-0 POD_NAMESPACE=serving OTLP_ENDPOINT=http://%s:4318 %s/graphsignal-collector --config=%s'",
		p.demo(user, engine), user, view.port, engine, g.host, p.dir, config)
	pid, _ := p.pod(script)
	seen := func(d *document) bool {
		m := d.find("demo_tokens")
		return m != nil && m.Tags["process.pid"] != "" && d.find("demo_request_latency_seconds") != nil
	}
	d := view.signalsWhen("the engine and its probes are seen", seen)
	if d.Context["k8s.pod.name"] != "engine-0" || d.Context["k8s.namespace.name"] != "serving" {
		t.Errorf("context is %v", d.Context)
	}
	if got := capabilitiesOf(t, pid); strings.Trim(got, "0") != "" {
		t.Errorf("the Collector has capabilities %s", got)
	}
	remote := g.signalsWhen("it reached the gateway", seen)
	if m := remote.find("demo_tokens"); m.Tags["k8s.pod.name"] != "engine-0" {
		t.Errorf("it arrived without its pod: %v", m.Tags)
	}
	// The sidecar's user is its engine's, so that the totals go on.
	before := d.find("demo_tokens").stat("total")
	view.signalsWhen("the totals go on", func(d *document) bool { return d.find("demo_tokens").stat("total") != before })
}
