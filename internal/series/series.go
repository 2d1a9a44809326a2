// Package series describes one measured series: its identity (name, type, tags) and the value it can
// carry. It knows neither pdata nor JSON documents, so that parsers and the store can share it.
package series

import (
	"cmp"
	"slices"
)

// Type is the kind of a series. Its order is the order of types inside one name in /signals.
type Type uint8

// The four series types of /signals.
const (
	Counter Type = iota
	Gauge
	Histogram
	Profile
)

// String returns the word used in /signals and in the shared-memory documents.
func (t Type) String() string {
	switch t {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	case Profile:
		return "profile"
	}
	return "unknown"
}

// ParseType is the inverse of Type.String.
func ParseType(word string) (Type, bool) {
	for t := Counter; t <= Profile; t++ {
		if t.String() == word {
			return t, true
		}
	}
	return 0, false
}

// Tag is one key and value of a series' identity.
type Tag struct {
	Key, Value string
}

// Limits of a tag, in characters (code points).
const (
	MaxTagKey   = 50
	MaxTagValue = 250
)

// NormalizeTags cuts keys and values to their limits, sorts by key, and keeps the last of equal keys.
// It works in place and returns the shortened slice.
func NormalizeTags(tags []Tag) []Tag {
	for i := range tags {
		tags[i].Key = Truncate(tags[i].Key, MaxTagKey)
		tags[i].Value = Truncate(tags[i].Value, MaxTagValue)
	}
	slices.SortStableFunc(tags, func(a, b Tag) int { return cmp.Compare(a.Key, b.Key) })
	out := tags[:0]
	for i, t := range tags {
		if i+1 < len(tags) && tags[i+1].Key == t.Key {
			continue
		}
		out = append(out, t)
	}
	return out
}

// Truncate returns the first limit code points of s.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := 0
	for i := range s {
		if n == limit {
			return s[:i]
		}
		n++
	}
	return s
}

// CompareTags orders two sorted tag lists element by element; a proper prefix sorts first.
func CompareTags(a, b []Tag) int {
	return slices.CompareFunc(a, b, func(x, y Tag) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Value, y.Value))
	})
}
