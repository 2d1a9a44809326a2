package enginereceiver

import (
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/internal/prom"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/metadata"
)

// builder makes pdata of pages.
type builder struct {
	tags []series.Tag // of every series
	help map[string]string
}

func newBuilder(tags map[string]string) builder {
	b := builder{help: make(map[string]string)}
	for key, value := range tags {
		b.tags = append(b.tags, series.Tag{Key: key, Value: value})
	}
	b.tags = series.NormalizeTags(b.tags)
	return b
}

// build returns the page's series; owner is when the process behind the page began, 0 when it is not known. Times are
// epoch nanoseconds.
func (b *builder) build(page []*prom.Series, owner, now int64) pmetric.Metrics {
	clear(b.help)
	for _, s := range page {
		if help := s.Help(); help != "" {
			b.help[s.Name] = help
		}
	}
	out := signal.NewBuilder(metadata.ScopeName).Describe(b.help)
	resource := out.Resource(nil, b.tags)
	for _, s := range page {
		switch s.Type {
		case series.Gauge:
			resource.Gauge(s.Name, s.Tags, series.Float(s.Value), 0, now)
		case series.Counter:
			resource.Counter(s.Name, s.Tags, series.Float(s.Value), startOf(s, owner), now)
		case series.Histogram:
			totals := series.Distribution{HasTotals: true, Count: s.Count, Sum: series.Float(s.Sum)}
			resource.BoundedHistogram(s.Name, s.Tags, totals, s.Bounds, s.Counts, startOf(s, owner), now)
		}
	}
	return out.Metrics()
}

// startOf is when the series began to count: what the page says, else the beginning of the process behind it, but not
// before the last time the total was seen to fall. Without any of them it is not known.
func startOf(s *prom.Series, owner int64) int64 {
	start := owner
	if s.Created != 0 {
		start = s.Created
	}
	return max(start, s.Reset)
}
