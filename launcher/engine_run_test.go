package launcher

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The engines' rows of the acceptance table: what the engine is given, and where its page is scraped.
func TestEngines(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"vllm", "sglang", "trtllm-serve", "llama-server", "llama"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args           []string
		given, at, way string
		others         []int
	}{
		{[]string{"vllm", "serve", "m", "--disable-log-stats", "--dtype", "auto"}, "serve m --dtype auto", "http://127.0.0.1:8000", "/metrics", nil},
		{[]string{"sglang", "serve", "--port", "30001"}, "serve --port 30001 --enable-metrics", "http://127.0.0.1:30001", "/metrics", nil},
		{[]string{"trtllm-serve", "m", "--host", "0.0.0.0", "--port", "8001"}, "m --host 0.0.0.0 --port 8001", "http://127.0.0.1:8001", "/prometheus/metrics", nil},
		{[]string{"--metrics-port", "9100", "env", "A=1", "vllm", "serve", "m"}, "serve m", "http://127.0.0.1:9100", "/metrics", nil},
		{[]string{"llama-server", "--port", "8088"}, "--port 8088 --metrics", "http://127.0.0.1:8088", "/metrics", nil},
		{[]string{"llama", "serve", "-hf", "a/b"}, "serve -hf a/b --metrics", "http://127.0.0.1:8080", "/metrics", []int{9931}},
	} {
		l, _ := runToEnd(t, settings{env: []string{"PATH=" + bin + ":" + os.Getenv("PATH")}}, c.args...)
		var config struct {
			Receivers struct {
				Engine struct {
					Endpoint string `json:"endpoint"`
					Path     string `json:"metrics_path"`
					Others   []int  `json:"other_ports"`
				}
			}
		}
		if err := json.Unmarshal([]byte(l.recorded("config.json")), &config); err != nil {
			t.Fatal(err)
		}
		if e := config.Receivers.Engine; l.stdout.String() != c.given+"\n" || e.Endpoint != c.at || e.Path != c.way || !slices.Equal(e.Others, c.others) {
			t.Errorf("%q: given %q, scraped at %s%s or %v", c.args, l.stdout.String(), e.Endpoint, e.Path, e.Others)
		}
	}
}
