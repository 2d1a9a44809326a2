package store

import (
	"iter"
	"slices"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Limits of a resource attribute, in characters.
const (
	maxAttributeKey   = 50
	maxAttributeValue = 2500
)

// Resource is one host, process or device.
type Resource struct {
	Kind string
	// Tags are normalised and sorted by key; with Kind they are the identity.
	Tags       []series.Tag
	Attributes []series.Tag
	// FirstSeen and LastSeen are epoch nanoseconds.
	FirstSeen, LastSeen int64

	key   string
	until int64
	shown []series.Tag // tags in the order they came
	head  []byte       // rendered up to the times
}

type resourceTable struct {
	byKey   map[string]*Resource
	ordered []*Resource // by registration
	cleanup cleanup
}

// Resource records that a resource was there from firstSeen to lastSeen (0: now). Its attributes replace the
// former ones. A resource without kind is ignored.
func (b *Batch) Resource(kind string, tags, attributes []series.Tag, firstSeen, lastSeen int64) {
	if kind == "" {
		return
	}
	t := &b.store.resources
	if t.cleanup.isDue(b.clock) {
		b.changed = t.removeExpired(b.clock) || b.changed
	}
	if firstSeen == 0 {
		firstSeen = b.now
	}
	if lastSeen == 0 {
		lastSeen = b.now
	}
	key := b.identity(0, kind, tags)
	r, ok := t.byKey[string(key)]
	if !ok {
		if len(t.ordered) >= MaxResources {
			b.outcome.DroppedResources++
			return
		}
		r = &Resource{
			Kind: strings.Clone(kind), Tags: cloneTags(b.tags), FirstSeen: firstSeen, LastSeen: lastSeen,
			key: string(key), shown: cloneTags(shownTags(tags)),
		}
		t.byKey[r.key] = r
		t.ordered = append(t.ordered, r)
		b.changed = true
	}
	if firstSeen < r.FirstSeen || lastSeen > r.LastSeen {
		r.FirstSeen, r.LastSeen = min(r.FirstSeen, firstSeen), max(r.LastSeen, lastSeen)
		b.changed = true
	}
	r.until = b.until(r.LastSeen)
	if r.head == nil || !slices.Equal(r.Attributes, attributes) {
		r.Attributes = normalizeAttributes(r.Attributes[:0], attributes)
		r.head = appendResourceHead(r.head[:0], r)
		b.changed = true
	}
}

// normalizeAttributes cuts attributes to their limits; of equal keys the last value stays, in the first place.
func normalizeAttributes(dst, attributes []series.Tag) []series.Tag {
	for _, a := range attributes {
		key := series.Truncate(a.Key, maxAttributeKey)
		value := series.Truncate(a.Value, maxAttributeValue)
		if i := slices.IndexFunc(dst, func(t series.Tag) bool { return t.Key == key }); i >= 0 {
			dst[i].Value = value
			continue
		}
		dst = append(dst, series.Tag{Key: key, Value: value})
	}
	return dst
}

func (t *resourceTable) removeExpired(clock int64) bool {
	before := len(t.ordered)
	t.ordered = slices.DeleteFunc(t.ordered, func(r *Resource) bool {
		if r.until >= clock {
			return false
		}
		delete(t.byKey, r.key)
		return true
	})
	return len(t.ordered) != before
}

// Resources lists all resources in the order of their registration.
func (v View) Resources() iter.Seq[*Resource] { return slices.Values(v.store.resources.ordered) }
