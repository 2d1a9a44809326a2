package store

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// maxKeptTail is the longest rendering that is kept beside its series; longer ones (profiles with long names)
// would double the memory they take.
const maxKeptTail = 4096

// AppendMetrics appends the elements of the document's "metrics", without the brackets.
func (v View) AppendMetrics(dst []byte) []byte {
	for i, e := range v.store.metrics.ordered {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, e.head...)
		if !e.stale {
			dst = append(dst, e.tail...)
			continue
		}
		start := len(dst)
		dst = v.store.appendStats(dst, &e.Series)
		dst = append(dst, `, "updated_ns": `...)
		if e.Time > 0 {
			dst = strconv.AppendInt(dst, e.Time, 10)
		} else {
			dst = append(dst, "null"...)
		}
		dst = append(dst, '}')
		if len(dst)-start <= maxKeptTail {
			e.tail = append(e.tail[:0], dst[start:]...)
			e.stale = false
		} else {
			e.tail = nil
		}
	}
	return dst
}

// AppendResources appends the elements of the document's "resources", without the brackets.
func (v View) AppendResources(dst []byte) []byte {
	for i, r := range v.store.resources.ordered {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, r.head...)
		dst = strconv.AppendInt(dst, floorSeconds(r.FirstSeen), 10)
		dst = append(dst, `, "last_seen_ts": `...)
		dst = strconv.AppendInt(dst, floorSeconds(r.LastSeen), 10)
		dst = append(dst, '}')
	}
	return dst
}

func floorSeconds(ns int64) int64 {
	s := ns / int64(time.Second)
	if ns < s*int64(time.Second) {
		s--
	}
	return s
}

// AppendTags appends tags as a JSON object, in their order. Keys must be unique.
func AppendTags(dst []byte, tags []series.Tag) []byte {
	dst = append(dst, '{')
	for i, t := range tags {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = AppendString(dst, t.Key)
		dst = append(dst, ": "...)
		dst = AppendString(dst, t.Value)
	}
	return append(dst, '}')
}

// shownTags is the normalised form of tags in the order they came: of equal keys the first gives the place,
// the last the value.
func shownTags(tags []series.Tag) []series.Tag {
	out := make([]series.Tag, 0, len(tags))
	for _, t := range tags {
		t = series.Tag{Key: series.Truncate(t.Key, series.MaxTagKey), Value: series.Truncate(t.Value, series.MaxTagValue)}
		if i := slices.IndexFunc(out, func(o series.Tag) bool { return o.Key == t.Key }); i >= 0 {
			out[i].Value = t.Value
			continue
		}
		out = append(out, t)
	}
	return out
}

func appendHead(dst []byte, name string, typ series.Type, tags []series.Tag) []byte {
	dst = append(dst, `{"name": `...)
	dst = AppendString(dst, name)
	dst = append(dst, `, "type": "`...)
	dst = append(dst, typ.String()...)
	dst = append(dst, `", "tags": `...)
	dst = AppendTags(dst, shownTags(tags))
	dst = append(dst, `, "stats": `...)
	return slices.Clip(dst)
}

func appendResourceHead(dst []byte, r *Resource) []byte {
	dst = append(dst, `{"kind": `...)
	dst = AppendString(dst, r.Kind)
	dst = append(dst, `, "tags": `...)
	dst = AppendTags(dst, r.shown)
	dst = append(dst, `, "attributes": `...)
	dst = AppendTags(dst, r.Attributes)
	return append(dst, `, "first_seen_ts": `...)
}

func (s *Store) appendStats(dst []byte, e *Series) []byte {
	switch e.Type {
	case series.Counter:
		dst = append(dst, `{"total": `...)
		dst = e.Number.AppendJSON(dst)
	case series.Gauge:
		dst = append(dst, `{"value": `...)
		dst = e.Number.AppendJSON(dst)
	case series.Histogram:
		dst = appendDistribution(dst, e.Distribution)
	case series.Profile:
		dst = append(dst, `{"frames": [`...)
		dst = s.appendFrames(dst, e.Frames)
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendDistribution appends the histogram's stats without the closing brace.
func appendDistribution(dst []byte, d *series.Distribution) []byte {
	dst = append(dst, `{"count": `...)
	if d.HasTotals {
		dst = strconv.AppendUint(dst, d.Count, 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendOptional(dst, `, "sum": `, d.Sum, d.HasTotals)
	dst = appendOptional(dst, `, "min": `, d.Min, d.HasTotals && d.HasMin)
	dst = appendOptional(dst, `, "max": `, d.Max, d.HasTotals && d.HasMax)
	mean, ok := d.Mean()
	dst = appendOptional(dst, `, "mean": `, series.Float(mean), ok)
	p50, ok := d.Quantile(0.5)
	dst = appendOptional(dst, `, "p50": `, p50, ok)
	p95, ok := d.Quantile(0.95)
	return appendOptional(dst, `, "p95": `, p95, ok)
}

func appendOptional(dst []byte, key string, n series.Number, known bool) []byte {
	dst = append(dst, key...)
	if !known {
		return append(dst, "null"...)
	}
	return n.AppendJSON(dst)
}

// appendFrames appends frames by falling value, equal values by name.
func (s *Store) appendFrames(dst []byte, frames []series.Frame) []byte {
	order := s.order[:0]
	for i := range frames {
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(frames[b].Value, frames[a].Value), cmp.Compare(frames[a].Name, frames[b].Name), cmp.Compare(a, b))
	})
	s.order = order
	for i, at := range order {
		f := &frames[at]
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, `{"name": `...)
		dst = AppendString(dst, f.Name)
		dst = append(dst, `, "value": `...)
		dst = strconv.AppendUint(dst, f.Value, 10)
		dst = append(dst, `, "samples": `...)
		dst = strconv.AppendUint(dst, f.Samples, 10)
		dst = append(dst, '}')
	}
	return dst
}
