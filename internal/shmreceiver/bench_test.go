package shmreceiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
)

// BenchmarkCollection is one collection of five files of 1,000 series that were all rewritten (load c).
func BenchmarkCollection(b *testing.B) {
	compressed, err := os.Open("../shm/testdata/load-c-0.json.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer compressed.Close()
	unpacked, err := gzip.NewReader(compressed)
	if err != nil {
		b.Fatal(err)
	}
	data, err := io.ReadAll(unpacked)
	if err != nil {
		b.Fatal(err)
	}
	config := defaultConfig()
	config.SHMPath, config.ProcFSPath = b.TempDir(), b.TempDir()
	r := newReceiver(config, shm.AllBut(), "scope", componenttest.NewNopTelemetrySettings())
	r.metrics = consumertest.NewNop()
	dir := rundir.Path(config.SHMPath, 4711)
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	rewrite := func(n int) {
		data := bytes.Replace(data, []byte(`"write_ts":2`), fmt.Appendf(nil, `"write_ts":%d`, n), 1)
		for i := range 5 {
			path := filepath.Join(dir, fmt.Sprintf("load-c-%d.json", i))
			if err := os.WriteFile(path, data, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		rewrite(100 + i)
		b.StartTimer()
		r.collect(context.Background())
	}
}
