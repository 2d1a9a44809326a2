package engines

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each command line is written with blanks between its words.

func TestDetection(t *testing.T) {
	for _, c := range []struct{ line, name string }{
		// Programs and modules, and the wrappers that are seen through.
		{"vllm serve m", VLLM},
		{"/opt/x/bin/vllm serve m", VLLM},
		{"./vllm serve m", VLLM},
		{"vllm bench serve", VLLM},
		{"vllm", VLLM},
		{"vllm-foo serve", Generic},
		{"python -m vllm.entrypoints.openai.api_server --model m", VLLM},
		{"sglang serve m", SGLang},
		{"/usr/bin/sglang", SGLang},
		{"sglang.launch_server --model m", SGLang},
		{"python -m sglang.launch_server --model m", SGLang},
		{"python3.11 -m sglang serve", SGLang},
		{"/usr/bin/python3 -m sglang.launch_server", SGLang},
		{"python -u -m sglang.launch_server", SGLang},
		{"python -m sglang.bench_serving", Generic},
		{"torchrun --nproc-per-node 2 -m sglang.launch_server", SGLang},
		{"trtllm-serve m", TensorRTLLM},
		{"trtllm serve m", TensorRTLLM},
		{"trtllm-llmapi-launch trtllm-serve m", TensorRTLLM},
		{"/opt/trt/trtllm-serve m", TensorRTLLM},
		{"python -m tensorrt_llm.commands.serve m", TensorRTLLM},
		{"llama-server -m m.gguf", LlamaCPP},
		{"/opt/llama/llama-server -m m.gguf", LlamaCPP},
		{"llama serve -hf a/b", LlamaCPP},
		{"nice /opt/bin/llama serve", LlamaCPP},
		{"llama server -m m.gguf", LlamaCPP},
		{"llama cli -hf a/b", Generic},
		{"llama", Generic},
		{"uv run vllm serve", VLLM},
		{"env A=1 vllm serve", VLLM},
		{"nice vllm serve", VLLM},
		{"numactl --cpunodebind=0 --membind 0 vllm serve", VLLM},
		{"mpirun -n 4 --allow-run-as-root trtllm-serve m", TensorRTLLM},
		{"sudo -E -u llm A=1 vllm serve m", VLLM},
		{"sudo -s vllm serve m", Generic},
		{"gosu llm:llm sglang serve", SGLang},
		{"/sbin/docker-init -s -- tini -p SIGTERM vllm serve", VLLM},
		{"dumb-init --rewrite 15:2 -- llama-server", LlamaCPP},
		{"conda run --no-capture-output -n serving vllm serve", VLLM},
		{"micromamba -r /opt/mamba run -p /env python -m sglang.launch_server", SGLang},
		{"conda install vllm", Generic},
		{"poetry -C app run vllm serve", VLLM},
		{"pipenv run trtllm-serve m", TensorRTLLM},
		{"time -f %e llama-server", LlamaCPP},
		{"python -m torch.distributed.run --nproc-per-node 2 -m sglang.launch_server", SGLang},
		{"python3 -m torch.distributed.launch --nproc_per_node=2 /opt/bin/vllm serve", VLLM},
		{"python -m torch.distributed.run", Generic},
		{"/lib64/ld-linux-x86-64.so.2 --library-path /a:/b --argv0 l /usr/bin/llama-server -m m", LlamaCPP},
		{"/lib64/ld-linux-x86-64.so.2 --list /usr/bin/llama-server", Generic},
		{"A=1 vllm serve m", Generic},
		{"bash run.sh", Generic},
		{"sh -c vllm", Generic},
		{"./run.sh", Generic},
		{"python app.py", Generic},
		{"app.py", Generic},

		// Wrappers with options of every shape.
		{"env", Generic},
		{"env -i -u HOME PATH=/bin A=b=c -- vllm serve", VLLM},
		{"env --unset=HOME --chdir /tmp A=1 python -m vllm.entrypoints.openai.api_server", VLLM},
		{"env -S vllm serve", Generic},
		{"env A=1 B=2", Generic},
		{"nice -n 5 env A=1 sglang serve", SGLang},
		{"nice -5 sglang serve", SGLang},
		{"timeout -k 5 90 llama-server", LlamaCPP},
		{"timeout 90", Generic},
		{"taskset -c 0-3 vllm serve", VLLM},
		{"taskset -p vllm", Generic},
		{"chrt -f 10 vllm serve", VLLM},
		{"ionice -c 2 -n 0 vllm serve", VLLM},
		{"stdbuf -oL vllm serve", VLLM},
		{"nohup setsid -w vllm serve", VLLM},
		{"numactl -N 0 -m 0 -- trtllm-serve m", TensorRTLLM},
		{"uv --project p run --with x --python 3.12 vllm serve", VLLM},
		{"uv run -m sglang.launch_server", SGLang},
		{"uv run -- python -m sglang.launch_server", SGLang},
		{"uv tool run vllm serve", VLLM},
		{"uv pip install vllm", Generic},
		{"uv run", Generic},
		{"uvx --from vllm vllm serve", VLLM},
		{"torchrun --standalone --nproc_per_node=2 app.py vllm", Generic},
		{"torchrun --no-python --nproc-per-node 1 vllm serve", VLLM},
		{"mpirun --mca btl tcp -x PATH -H a,b -np 2 trtllm-llmapi-launch trtllm-serve m", TensorRTLLM},
		{"mpiexec -genv A B -n 2 trtllm-serve m", TensorRTLLM},
		{"srun --job-name vllm python app.py", Generic},
		{"srun -n 2 --mpi=pmix --container-image i trtllm-llmapi-launch trtllm-serve m", TensorRTLLM},
		{"srun --multi-prog vllm", Generic},
		{"python3 -X dev -W ignore -OO -m vllm.entrypoints.openai.api_server", VLLM},
		{"python3 -um sglang.launch_server", SGLang},
		{"python3 -msglang.launch_server", SGLang},
		{"python3 -Xdev -Bm sglang", SGLang},
		{"python3 --check-hash-based-pycs always -m sglang", SGLang},
		{"python3 /opt/venv/bin/vllm serve m", VLLM},
		{"python3 -m", Generic},
		{"python3 -c vllm", Generic},
		{"python3 - vllm", Generic},
		{"python3 --version", Generic},
		{"python3 -m vllm.benchmarks.serve", Generic},
		{"graphsignal-run vllm serve", VLLM}, // the inner launcher becomes the program
		{"nice nice nice nice", Generic},
	} {
		argv := strings.Fields(c.line)
		got := Detect(argv, 0, nil)
		if got.Name != c.name {
			t.Errorf("%s: %s, want %s", c.line, got.Name, c.name)
		}
	}
	if got := Detect(nil, 0, nil); got.Name != Generic || len(got.Argv) != 0 || got.Endpoint != nil {
		t.Errorf("no words: %+v", got)
	}
}

func TestRealName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"vllm", "python3.12"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"serve": "vllm", "py": "python3.12", "dangling": "nothing"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for line, want := range map[string]string{
		"serve m":                  VLLM,
		dir + "/serve m":           VLLM,
		"env A=1 serve m":          VLLM,
		"py -m sglang":             SGLang,
		"dangling m":               Generic,
		"vllm-does-not-exist":      Generic,
		"py " + dir + "/serve m":   VLLM,
		"nice python3.12 app.py m": Generic,
	} {
		if got := Detect(strings.Fields(line), 0, nil); got.Name != want {
			t.Errorf("%s: %s, want %s", line, got.Name, want)
		}
	}
}

func TestAdjustments(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"vllm serve m --disable-log-stats --dtype auto", "vllm serve m --dtype auto"},
		{"vllm --disable-log-stats serve m --disable-log-stats", "vllm serve m"},
		{"vllm serve m --disable-log-stats=true", "vllm serve m --disable-log-stats=true"},
		{"vllm serve m --disable-log-statsx", "vllm serve m --disable-log-statsx"},
		{"env A=1 vllm serve m --disable-log-stats", "env A=1 vllm serve m"},
		{"sglang serve --port 30001", "sglang serve --port 30001 --enable-metrics"},
		{"sglang serve --enable-metrics", "sglang serve --enable-metrics"},
		{"sglang serve --enable-metrics=1 x", "sglang serve --enable-metrics=1 x"},
		{"sglang serve --enable-metrics --enable-metrics", "sglang serve --enable-metrics --enable-metrics"},
		{"sglang --help", "sglang --help --enable-metrics"},
		{"sglang serve --", "sglang serve -- --enable-metrics"},
		{"sglang serve --enable-metrics-for-all-schedulers", "sglang serve --enable-metrics-for-all-schedulers --enable-metrics"},
		{"uv run -m sglang.launch_server", "uv run -m sglang.launch_server --enable-metrics"},
		{"python -m sglang.bench_serving", "python -m sglang.bench_serving"},
		{"trtllm-serve m --grpc", "trtllm-serve m --grpc"},
		{"trtllm-serve m --enable-metrics --disable-log-stats", "trtllm-serve m --enable-metrics --disable-log-stats"},
		{"llama-server -m m.gguf", "llama-server -m m.gguf --metrics"},
		{"llama-server --metrics -m m.gguf", "llama-server --metrics -m m.gguf"},
		{"llama-server --metrics=1", "llama-server --metrics=1"},
		{"llama serve -hf a/b", "llama serve -hf a/b --metrics"},
		{"llama cli -hf a/b", "llama cli -hf a/b"},
		{"python app.py --disable-log-stats", "python app.py --disable-log-stats"},
	} {
		argv := strings.Fields(c.line)
		before := slices.Clone(argv)
		got := Detect(argv, 0, nil)
		if line := strings.Join(got.Argv, " "); line != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.line, line, c.want)
		}
		if !slices.Equal(argv, before) {
			t.Errorf("%s: the given words were changed to %q", c.line, argv)
		}
		got.Argv[0] = "changed"
		if argv[0] == "changed" {
			t.Errorf("%s: the result shares memory with the given words", c.line)
		}
	}
}

// Words that no adjustment names pass byte for byte, whatever is in them.
func TestWordsPassUnchanged(t *testing.T) {
	odd := []string{"", " ", "\xff\xfe", "a\nb", `{"a": "--disable-log-stats"}`, "--", "-", "--x=", "核", "$(id)"}
	for _, first := range [][]string{{"vllm"}, {"trtllm-serve"}, {"python", "app.py"}, {"./x"}} {
		argv := append(slices.Clone(first), odd...)
		if got := Detect(argv, 0, nil).Argv; !slices.Equal(got, argv) {
			t.Errorf("%q became %q", argv, got)
		}
	}
	for first, flag := range map[string]string{"sglang": "--enable-metrics", "llama-server": "--metrics"} {
		argv := append([]string{first}, odd...)
		if got := Detect(argv, 0, nil).Argv; !slices.Equal(got, append(argv, flag)) {
			t.Errorf("%q became %q", argv, got)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		line string
		port int
		want string
	}{
		{"vllm serve m", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m --port 8001", 0, "http://127.0.0.1:8001/metrics"},
		{"vllm serve m --port=8001 --port 9", 0, "http://127.0.0.1:8001/metrics"},
		{"vllm serve m --port x", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m --port", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m --port 8_001", 0, "http://127.0.0.1:8001/metrics"},
		{"vllm serve m --port +80", 0, "http://127.0.0.1:80/metrics"},
		{"vllm serve m --port 70000", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m --port 0", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m -p 9", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m --host 0.0.0.0", 0, "http://127.0.0.1:8000/metrics"},
		{"vllm serve m --host ::", 0, "http://[::1]:8000/metrics"},
		{"vllm serve m --host=10.0.0.5", 0, "http://10.0.0.5:8000/metrics"},
		{"vllm serve m --host fd00::5", 0, "http://[fd00::5]:8000/metrics"},
		{"vllm serve m --uds e.sock", 0, ""},
		{"vllm serve m --uds=e.sock", 9100, "http://127.0.0.1:9100/metrics"},
		{"vllm serve m --uds e.sock --port 8002", 0, "http://127.0.0.1:8002/metrics"},
		{"vllm serve m --port 8001", 9100, "http://127.0.0.1:9100/metrics"},
		{"vllm bench serve --port 8000", 0, "http://127.0.0.1:8000/metrics"},
		// An option that is not known is taken as one without value: the run is generic.
		{"mpirun --host a,b --port 7 vllm serve m", 0, "http://127.0.0.1:7/metrics"},
		{"mpirun -host a,b -np 1 vllm serve m", 0, "http://127.0.0.1:8000/metrics"},
		{"sglang serve", 0, "http://127.0.0.1:30000/metrics"},
		{"sglang serve --port 30001 --host 0.0.0.0", 0, "http://127.0.0.1:30001/metrics"},
		{"python -m sglang.launch_server --host 192.0.2.7", 0, "http://192.0.2.7:30000/metrics"},
		{"trtllm-serve m", 0, "http://localhost:8000/prometheus/metrics"},
		{"trtllm-serve m --host 0.0.0.0 --port 8001", 0, "http://127.0.0.1:8001/prometheus/metrics"},
		{"trtllm-serve m --host=engine.local", 0, "http://engine.local:8000/prometheus/metrics"},
		{"trtllm-serve m --grpc", 0, "http://localhost:8000/prometheus/metrics"},
		{"trtllm-serve m", 9100, "http://localhost:9100/prometheus/metrics"},
		{"llama-server", 0, "http://127.0.0.1:8080|9931/metrics"},
		{"llama-server --port x", 0, "http://127.0.0.1:8080|9931/metrics"},
		{"llama-server", 9100, "http://127.0.0.1:9100/metrics"},
		{"llama serve --port 8085", 0, "http://127.0.0.1:8085/metrics"},
		{"llama-server --host 0.0.0.0,:: --port 81", 0, "http://127.0.0.1:81/metrics"},
		{"llama-server --host /run/l.sock,10.0.0.5 --port 81", 0, "http://10.0.0.5:81/metrics"},
		{"llama-server --host 0.0.0.0 --port 81", 0, "http://127.0.0.1:81/metrics"},
		{"llama-server --host ::", 0, "http://[::1]:8080|9931/metrics"},
		{"llama-server --host [::1]", 0, "http://[::1]:8080|9931/metrics"},
		{"llama-server --api-prefix /llm/", 0, "http://127.0.0.1:8080|9931/llm/metrics"},
		{"llama-server --api-prefix /", 0, "http://127.0.0.1:8080|9931/metrics"},
		{"llama-server --host /run/l.sock", 0, ""},
		{"llama-server --host /run/l.sock", 9100, "http://127.0.0.1:9100/metrics"},
		{"python app.py", 0, ""},
		{"python app.py --port 5000", 0, "http://127.0.0.1:5000/metrics"},
		{"python app.py --port 5000 --host 10.0.0.1", 0, "http://127.0.0.1:5000/metrics"},
		{"python app.py --port x", 0, ""},
		{"python app.py", 9100, "http://127.0.0.1:9100/metrics"},
		{"bash -c vllm --port 12", 0, "http://127.0.0.1:12/metrics"},
	} {
		got := Detect(strings.Fields(c.line), c.port, nil)
		url := ""
		if got.Endpoint != nil {
			url = got.Endpoint.BaseURL()
			for _, port := range got.Endpoint.OtherPorts {
				url += "|" + strconv.Itoa(port)
			}
			url += got.Endpoint.Path
			if got.Endpoint.Explicit != (c.port > 0) {
				t.Errorf("%s: explicit is %v", c.line, got.Endpoint.Explicit)
			}
		}
		if url != c.want {
			t.Errorf("%s: %s, want %s", c.line, url, c.want)
		}
	}
}

func TestConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("plain.yaml", "# comment\nmodel: m\nport: 8001\n")
	quoted := file("quoted.yaml", "host: '0.0.0.0' # all\nport: \"8002\"   # here\nlist:\n  port: 9\n- port: 10\nurl: http://x:11\n")
	silent := file("silent.yaml", "disable-log-stats: true\n")
	if got := Detect(strings.Fields("vllm serve m --config "+silent), 0, nil); len(got.Warnings) != 1 {
		t.Errorf("statistics switched off in the file: warned %q", got.Warnings)
	}
	socket := file("socket.yaml", "uds: /run/e.sock\n")
	binary := file("binary.yaml", strings.Repeat("\x00\xff", 1<<20))
	for line, want := range map[string]string{
		"vllm serve m --config " + plain:                                  "http://127.0.0.1:8001/metrics",
		"vllm serve m --config=" + plain:                                  "http://127.0.0.1:8001/metrics",
		"vllm serve m --port 7 --config " + plain:                         "http://127.0.0.1:7/metrics",
		"vllm serve m --config " + quoted:                                 "http://127.0.0.1:8002/metrics",
		"vllm serve m --config " + quoted + " --host 192.0.2.1":           "http://192.0.2.1:8002/metrics",
		"vllm serve m --config " + socket:                                 "",
		"vllm serve m --config " + binary:                                 "http://127.0.0.1:8000/metrics",
		"vllm serve m --config " + dir:                                    "http://127.0.0.1:8000/metrics",
		"vllm serve m --config " + dir + "/none":                          "http://127.0.0.1:8000/metrics",
		"sglang serve --config " + plain:                                  "http://127.0.0.1:8001/metrics",
		"python app.py --config " + plain:                                 "",
		"trtllm-serve m --config " + plain:                                "http://localhost:8000/prometheus/metrics",
		"env A=1 python -m vllm.entrypoints.api_server --config=" + plain: "http://127.0.0.1:8001/metrics",
	} {
		got := Detect(strings.Fields(line), 0, nil)
		url := ""
		if got.Endpoint != nil {
			url = got.Endpoint.URL()
		}
		if url != want {
			t.Errorf("%s: %s, want %s", line, url, want)
		}
	}
	if got := Detect(strings.Fields("vllm serve m --config "+dir+"/none"), 0, nil); len(got.Notes) != 1 {
		t.Errorf("an unreadable file is not noted: %q", got.Notes)
	}
}

func TestWarnings(t *testing.T) {
	for line, word := range map[string]string{
		"vllm serve m":                         "",
		"vllm serve m --api-key k":             "",
		"vllm serve m --disable_log_stats":     "disable_log_stats",
		"vllm serve m --disable-log-stats":     "",
		"vllm serve m --ssl-keyfile k":         "TLS",
		"sglang serve --ssl-certfile=k":        "TLS",
		"trtllm-serve m":                       "",
		"trtllm-serve m --grpc":                "--grpc",
		"trtllm-serve m --grpc=true":           "--grpc",
		"llama-server":                         "",
		"llama-server --api-key k":             "--api-key",
		"llama-server --api-key-file k":        "--api-key-file",
		"llama-server --api-keys-file k":       "--api-keys-file",
		"llama-server --ssl-key-file k":        "--ssl-key-file",
		"python app.py --api-key k --grpc --x": "",
	} {
		warnings := Detect(strings.Fields(line), 0, nil).Warnings
		switch {
		case word == "" && len(warnings) != 0:
			t.Errorf("%s: warned %q", line, warnings)
		case word != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], word)):
			t.Errorf("%s: warned %q, want one with %s", line, warnings, word)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := func(name string) (string, bool) {
		value, set := map[string]string{"LLAMA_ARG_PORT": "9000", "LLAMA_ARG_HOST": "0.0.0.0", "LLAMA_ARG_API_PREFIX": "/llm", "LLAMA_API_KEY": "k",
			"LLAMA_ARG_SSL_KEY_FILE": ""}[name]
		return value, set
	}
	for line, want := range map[string]string{
		"llama-server -m m": "http://127.0.0.1:9000/llm/metrics",
		"llama-server --port 81 --host 192.0.2.1 --api-prefix /other": "http://192.0.2.1:81/other/metrics",
		"python app.py": "",
	} {
		got := Detect(strings.Fields(line), 0, env)
		url := ""
		if got.Endpoint != nil {
			url = got.Endpoint.URL()
		}
		if url != want {
			t.Errorf("%s: %s, want %s", line, url, want)
		}
		if warned := len(got.Warnings) == 1 && strings.Contains(got.Warnings[0], "LLAMA_API_KEY"); warned != (want != "") {
			t.Errorf("%s: warned %q", line, got.Warnings)
		}
	}
}

func FuzzDetect(f *testing.F) {
	for _, line := range []string{
		"vllm serve m --port 8001", "env -i A=1 python -um sglang", "uv run -m", "mpirun --mca a b", "timeout -k", "python -W", "nice", "",
	} {
		f.Add(line, 0)
	}
	f.Fuzz(func(t *testing.T, line string, port int) {
		argv := strings.Split(line, " ")
		if slices.ContainsFunc(argv, func(w string) bool { return strings.HasPrefix(w, "--config") }) {
			t.Skip("would read a file")
		}
		got := Detect(argv, port, nil)
		if n := len(got.Argv) - len(argv); n > 1 {
			t.Fatalf("%d words added", n)
		}
		if e := got.Endpoint; e != nil && (e.Port < 1 || e.Path == "" || e.Path[0] != '/' || e.Host == "") {
			t.Fatalf("endpoint %+v", *e)
		}
		// The words stay as they are, but for those that switch metrics on or off, and the adjusted line is the same engine.
		want := argv
		if got.Name == VLLM {
			want = slices.DeleteFunc(slices.Clone(argv), func(w string) bool { return w == disableLogStats })
		}
		if len(got.Argv) < len(want) || !slices.Equal(got.Argv[:len(want)], want) {
			t.Fatalf("%q became %q", argv, got.Argv)
		}
		again := Detect(got.Argv, port, nil)
		if again.Name != got.Name || !slices.Equal(again.Argv, got.Argv) || (again.Endpoint == nil) != (got.Endpoint == nil) ||
			got.Endpoint != nil && !reflect.DeepEqual(again.Endpoint, got.Endpoint) {
			t.Fatalf("%q is %+v, adjusted %+v", argv, got, again)
		}
	})
}
