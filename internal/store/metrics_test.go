package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// TestSequenceOfSets: whatever order sets come in, and whatever is removed between, each finds its own series.
func TestSequenceOfSets(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	s := NewWithClock(func() time.Time { return now })
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]int64)
	for round := range 200 {
		now = now.Add(time.Duration(random.IntN(400)) * time.Second)
		s.Update(func(b *Batch) {
			for range random.IntN(30) {
				name, pid := fmt.Sprint("m", random.IntN(4)), fmt.Sprint(random.IntN(5))
				tags := []series.Tag{{Key: "process.pid", Value: pid}, {Key: "a", Value: "x"}}
				if random.IntN(2) == 0 {
					tags[0], tags[1] = tags[1], tags[0]
				}
				value := int64(round*1000 + random.IntN(1000))
				b.Gauge(name, tags, series.Int(value), 0, now.UnixNano())
				want[name+pid] = value
			}
		})
		s.View(func(v View) {
			for e := range v.Series() {
				if got := e.Number.Int64(); got != want[e.Name+e.Tags[1].Value] {
					t.Fatalf("round %d: %s %v is %d, want %d", round, e.Name, e.Tags, got, want[e.Name+e.Tags[1].Value])
				}
			}
		})
	}
}
