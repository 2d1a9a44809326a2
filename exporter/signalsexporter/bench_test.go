package signalsexporter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

// load is 5,000 gauges as five processes have them, about 1 MB of document.
func load(seed int) pmetric.Metrics {
	b := signal.NewBuilder("bench")
	for pid := range 5 {
		r := b.Resource(nil, tag("process.pid", fmt.Sprint(4242+pid)))
		for i := range 1000 {
			r.Gauge(fmt.Sprintf("app_gauge_%d", pid), tag("index", fmt.Sprint(i), "shard", fmt.Sprint("s", i%16)),
				series.Float(float64(i*seed)/7), startTime, startTime+int64(seed))
		}
	}
	return b.Metrics()
}

// BenchmarkFoldAndRender is the work of one second on load c: 5,000 new values and one document.
func BenchmarkFoldAndRender(b *testing.B) {
	r := start(b, nil)
	loads := []pmetric.Metrics{load(1), load(2)}
	b.ReportAllocs()
	before := processTime(b)
	for i := 0; b.Loop(); i++ {
		if err := r.ConsumeMetrics(context.Background(), loads[i%2]); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(r.document.refresh(true).rest)))
	}
	b.ReportMetric((processTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// processTime is the CPU time of this process so far; unlike wall time it is the same on a busy machine.
func processTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkFold is the fold alone.
func BenchmarkFold(b *testing.B) {
	r := start(b, nil)
	loads := []pmetric.Metrics{load(1), load(2)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := r.ConsumeMetrics(context.Background(), loads[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet reads the document over HTTP on one connection, while new values come every 100 ms.
func BenchmarkGet(b *testing.B) {
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			r := start(b, nil)
			r.document.interval, r.document.share = renderInterval, renderShare
			loads := []pmetric.Metrics{load(1), load(2)}
			_ = r.ConsumeMetrics(context.Background(), loads[0])
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						_ = r.ConsumeMetrics(context.Background(), loads[i%2])
					}
				}
			}()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				req, err := http.NewRequest(http.MethodGet, "http://"+r.address+"/signals", nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Accept-Encoding", encoding)
				resp, err := r.client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(n)
				took = append(took, time.Since(begin))
			}
			close(stop)
			<-stopped
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
