package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// TestReload: after SIGHUP a Collector of one's own goes on with the new configuration, on the same endpoint, and one that
// it cannot read ends it with the key that is wrong.
func TestReload(t *testing.T) {
	file, port := filepath.Join(t.TempDir(), "collector.yaml"), freeport.Get(t)
	write := func(receiver, tag string) {
		t.Helper()
		config := fmt.Sprintf(`{receivers: {process: %s}, exporters: {signals: {endpoint: "127.0.0.1:%d", tags: {turn: %s}}},
			service: {pipelines: {metrics: {receivers: [process], exporters: [signals]}}}}`, receiver, port, tag)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{}", "first")
	log, pid := collector(t, nil, "--config", file)
	r := &run{t: t, port: port}
	first := r.signalsWhen("the first configuration serves", func(d *document) bool {
		return d.Context["turn"] == "first" && d.find("host_memory_usage_bytes") != nil
	})

	write(fmt.Sprintf("{pids: [%d]}", os.Getpid()), "second")
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.signalsWhen("the second one does", func(d *document) bool {
		return d.Context["turn"] == "second" && d.StartNS > first.StartNS && d.process(os.Getpid()) != nil
	})

	write("{pidz: [1]}", "third")
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Collector has ended", func() bool {
		_, _, err := r.signals()
		return err != nil && strings.Contains(log.String(), "has invalid keys: pidz")
	})
}
