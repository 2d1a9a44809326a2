// Package endpoint reads the /signals document of a profiler that may be slow, gone or hostile.
//
// The document's shape is the profiler's own (signals contract, section 2). Reading is tolerant: a record or field of the
// wrong kind is left out and counted, only a body that is not one JSON object fails. Everything is bounded.
package endpoint

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	jsoniter "github.com/json-iterator/go"
)

// Bounds of what is kept of one document. A profiler publishes at most 5,000 series, 250 frames each, and 10 errors.
const (
	maxMetrics   = 20_000
	maxFrames    = 1 << 16 // over all metrics
	maxErrors    = 100
	maxResources = 10_000
	maxTags      = 64
	maxName      = 16 << 10 // bytes of a frame's name; writers send at most 4 KiB
	maxMessage   = 4 << 10  // bytes
	maxException = 16 << 10 // bytes
)

// Type is the kind of a metric.
type Type string

// The kinds of metric that /signals carries.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
	Profile   Type = "profile"
)

// Document is one /signals reply.
type Document struct {
	ProfilerVersion string
	PayloadNS       int64 // when it was made, epoch ns; 0 if not given
	StartNS         int64 // start of the profiler instance, epoch ns; 0 if not given
	Context         map[string]string
	Metrics         []Metric // ascending by name
	Errors          []Error  // oldest first
	Resources       []Resource
	Skipped         int // records and fields left out because of their kind or number
}

// Metric is one series. Which of the values are set depends on Type.
type Metric struct {
	Name      string
	Type      Type
	Tags      Tags
	UpdatedNS int64 // time of the measurement, epoch ns; 0 if not given

	Value  Number  // gauge value or counter total
	Stats  Stats   // histogram
	Frames []Frame // profile, in the document's order
}

// Stats are a histogram's statistics since the start. Absent ones are not measured.
type Stats struct {
	Count, Sum, Min, Max, Mean, P50, P95 Number
}

// Frame is one entry of a profile.
type Frame struct {
	Name    string
	Value   uint64 // in the unit of the metric's name
	Samples uint64
}

// Error is one entry of the errors list.
type Error struct {
	Level, Message, Exception string
	Tags                      Tags
	LogNS                     int64
}

// Resource is a host, process or device.
type Resource struct {
	Kind        string
	Tags        Tags
	Attributes  map[string]string
	FirstSeenTS int64 // epoch seconds
	LastSeenTS  int64
}

// Tag is one key with its value.
type Tag struct{ Key, Value string }

// Tags are sorted by key, each key once.
type Tags []Tag

// Get returns the value of a key, "" if it is not there.
func (t Tags) Get(key string) string {
	for _, tag := range t {
		if tag.Key == key {
			return tag.Value
		}
	}
	return ""
}

// String is a form that is equal exactly for equal tag sets.
func (t Tags) String() string {
	var b strings.Builder
	for _, tag := range t {
		b.WriteString(tag.Key)
		b.WriteByte(0)
		b.WriteString(tag.Value)
		b.WriteByte(0)
	}
	return b.String()
}

// Number is a number of the document, exact if it was written as a non-negative integer that fits 64 bits. The zero
// Number is absent: null, not given, or not finite.
type Number struct {
	kind  numberKind
	whole uint64
	float float64
}

type numberKind uint8

const (
	absent numberKind = iota
	whole
	fraction
)

// Present reports whether there is a value.
func (n Number) Present() bool { return n.kind != absent }

// Float is the value, 0 if absent.
func (n Number) Float() float64 {
	if n.kind == whole {
		return float64(n.whole)
	}
	return n.float
}

// Whole is an exact number.
func Whole(v uint64) Number { return Number{kind: whole, whole: v} }

// Fraction is an inexact number; NaN and infinities are absent.
func Fraction(v float64) Number {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Number{}
	}
	return Number{kind: fraction, float: v}
}

// Growth is how much a cumulative total has grown since before. A total that went down has restarted: then all of it is
// growth. It is false if either is absent.
func (n Number) Growth(before Number) (float64, bool) {
	if n.kind == absent || before.kind == absent {
		return 0, false
	}
	if n.kind == whole && before.kind == whole {
		if n.whole < before.whole {
			return float64(n.whole), true
		}
		return float64(n.whole - before.whole), true
	}
	if n.Float() < before.Float() {
		return n.Float(), true
	}
	return n.Float() - before.Float(), true
}

// Decode reads a document.
func Decode(body []byte) (*Document, error) {
	d := decoder{doc: &Document{Context: map[string]string{}}}
	it := jsoniter.ParseBytes(jsoniter.ConfigDefault, body)
	if it.WhatIsNext() != jsoniter.ObjectValue {
		return nil, errors.New("the reply is not a JSON object")
	}
	it.ReadObjectCB(d.field)
	if it.Error != nil {
		return nil, fmt.Errorf("the reply is not valid JSON: %s", brief(it.Error))
	}
	if it.WhatIsNext(); it.Error != io.EOF {
		return nil, errors.New("the reply is not valid JSON: more follows the document")
	}
	if !d.known {
		return nil, errors.New("the reply is a JSON object but not a /signals document")
	}
	byName := func(a, b Metric) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(d.doc.Metrics, byName) { // profilers sort; readers of this rely on it
		slices.SortStableFunc(d.doc.Metrics, byName)
	}
	return d.doc, nil
}

// brief is the first part of a JSON error: the rest quotes the input.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", error found in")
	if len(text) > 120 {
		text = text[:120]
	}
	return text
}

type decoder struct {
	doc    *Document
	frames int
	known  bool // a top-level key of a /signals document was seen
}

func (d *decoder) skip(it *jsoniter.Iterator) bool {
	d.doc.Skipped++
	pass(it)
	return it.Error == nil
}

// pass reads a value and forgets it. The library's own Skip refuses numbers that no float64 holds.
func pass(it *jsoniter.Iterator) {
	switch it.WhatIsNext() {
	case jsoniter.NumberValue:
		it.ReadNumber()
	case jsoniter.ArrayValue:
		it.ReadArrayCB(func(it *jsoniter.Iterator) bool {
			pass(it)
			return it.Error == nil
		})
	case jsoniter.ObjectValue:
		it.ReadObjectCB(func(it *jsoniter.Iterator, _ string) bool {
			pass(it)
			return it.Error == nil
		})
	default:
		it.Skip()
	}
}

func (d *decoder) field(it *jsoniter.Iterator, key string) bool {
	switch key {
	case "profiler":
		return d.object(it, func(it *jsoniter.Iterator, key string) bool {
			if key == "version" {
				d.known = true
				d.text(it, &d.doc.ProfilerVersion, maxMessage)
				return it.Error == nil
			}
			pass(it)
			return it.Error == nil
		})
	case "payload_ns":
		d.integer(it, &d.doc.PayloadNS)
	case "start_ns":
		d.integer(it, &d.doc.StartNS)
	case "context":
		d.doc.Context = d.stringMap(it)
	case "metrics":
		d.known = true
		return d.array(it, d.metric)
	case "errors":
		return d.array(it, d.errorEntry)
	case "resources":
		return d.array(it, d.resource)
	default:
		pass(it)
	}
	return it.Error == nil
}

// object reads an object; any other value is left out, null silently.
func (d *decoder) object(it *jsoniter.Iterator, field func(*jsoniter.Iterator, string) bool) bool {
	switch it.WhatIsNext() {
	case jsoniter.ObjectValue:
		return it.ReadObjectCB(field) && it.Error == nil
	case jsoniter.NilValue:
		return it.ReadNil()
	default:
		return d.skip(it)
	}
}

func (d *decoder) array(it *jsoniter.Iterator, element func(*jsoniter.Iterator) bool) bool {
	switch it.WhatIsNext() {
	case jsoniter.ArrayValue:
		return it.ReadArrayCB(element) && it.Error == nil
	case jsoniter.NilValue:
		return it.ReadNil()
	default:
		return d.skip(it)
	}
}

func (d *decoder) text(it *jsoniter.Iterator, into *string, limit int) bool {
	switch it.WhatIsNext() {
	case jsoniter.StringValue:
		s := it.ReadString()
		if len(s) > limit {
			s = strings.Clone(s[:limit]) // the whole must not stay in memory for its beginning
		}
		*into = s
		return it.Error == nil
	case jsoniter.NilValue:
		return it.ReadNil()
	default:
		return d.skip(it)
	}
}

func (d *decoder) number(it *jsoniter.Iterator, into *Number) bool {
	switch it.WhatIsNext() {
	case jsoniter.NumberValue:
		*into = parseNumber(string(it.ReadNumber()))
		if !into.Present() {
			d.doc.Skipped++
		}
		return it.Error == nil
	case jsoniter.NilValue:
		return it.ReadNil()
	default:
		return d.skip(it)
	}
}

func parseNumber(text string) Number {
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return Whole(u)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Number{}
	}
	return Fraction(f)
}

func (d *decoder) integer(it *jsoniter.Iterator, into *int64) bool {
	var n Number
	ok := d.number(it, &n)
	if n.kind == whole && n.whole <= math.MaxInt64 {
		*into = int64(n.whole)
	} else if n.Present() {
		d.doc.Skipped++
	}
	return ok
}

func (d *decoder) stringMap(it *jsoniter.Iterator) map[string]string {
	m := make(map[string]string)
	for _, t := range d.tags(it) {
		m[t.Key] = t.Value
	}
	return m
}

// tags reads an object of scalars; integers occur in the tags of errors.
func (d *decoder) tags(it *jsoniter.Iterator) Tags {
	var tags Tags
	d.object(it, func(it *jsoniter.Iterator, key string) bool {
		var value string
		switch it.WhatIsNext() {
		case jsoniter.StringValue:
			if !d.text(it, &value, maxMessage) {
				return false
			}
		case jsoniter.NumberValue:
			value = string(it.ReadNumber())
		case jsoniter.BoolValue:
			value = strconv.FormatBool(it.ReadBool())
		case jsoniter.NilValue:
			return it.ReadNil()
		default:
			return d.skip(it)
		}
		if len(tags) < maxTags {
			tags = append(tags, Tag{key, value})
		} else {
			d.doc.Skipped++
		}
		return it.Error == nil
	})
	slices.SortStableFunc(tags, func(a, b Tag) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(tags, func(a, b Tag) bool { return a.Key == b.Key })
}

func (d *decoder) metric(it *jsoniter.Iterator) bool {
	if it.WhatIsNext() != jsoniter.ObjectValue || len(d.doc.Metrics) >= maxMetrics {
		return d.skip(it)
	}
	var m Metric
	var kind string
	skipped := d.doc.Skipped
	it.ReadObjectCB(func(it *jsoniter.Iterator, key string) bool {
		switch key {
		case "name":
			return d.text(it, &m.Name, maxMessage)
		case "type":
			return d.text(it, &kind, maxMessage)
		case "tags":
			m.Tags = d.tags(it)
		case "updated_ns":
			d.integer(it, &m.UpdatedNS)
		case "stats":
			return d.object(it, func(it *jsoniter.Iterator, key string) bool { return d.stat(it, key, &m) })
		default:
			pass(it)
		}
		return it.Error == nil
	})
	m.Type = Type(kind)
	usable := m.Name != ""
	switch m.Type {
	case Gauge, Counter:
		usable = usable && m.Value.Present()
	case Histogram, Profile:
	default:
		usable = false
	}
	if !usable {
		d.doc.Skipped = skipped + 1 // the record counts once, whatever is wrong with it
		return it.Error == nil
	}
	d.doc.Metrics = append(d.doc.Metrics, m)
	return it.Error == nil
}

// statFields are the statistics that are single numbers.
var statFields = map[string]func(*Metric) *Number{
	"value": func(m *Metric) *Number { return &m.Value },
	"total": func(m *Metric) *Number { return &m.Value },
	"count": func(m *Metric) *Number { return &m.Stats.Count },
	"sum":   func(m *Metric) *Number { return &m.Stats.Sum },
	"min":   func(m *Metric) *Number { return &m.Stats.Min },
	"max":   func(m *Metric) *Number { return &m.Stats.Max },
	"mean":  func(m *Metric) *Number { return &m.Stats.Mean },
	"p50":   func(m *Metric) *Number { return &m.Stats.P50 },
	"p95":   func(m *Metric) *Number { return &m.Stats.P95 },
}

func (d *decoder) stat(it *jsoniter.Iterator, key string, m *Metric) bool {
	if field := statFields[key]; field != nil {
		return d.number(it, field(m))
	}
	if key == "frames" {
		return d.array(it, func(it *jsoniter.Iterator) bool { return d.frame(it, m) })
	}
	pass(it)
	return it.Error == nil
}

func (d *decoder) frame(it *jsoniter.Iterator, m *Metric) bool {
	if it.WhatIsNext() != jsoniter.ObjectValue || d.frames >= maxFrames {
		return d.skip(it)
	}
	var f Frame
	var value, samples Number
	var named bool
	it.ReadObjectCB(func(it *jsoniter.Iterator, key string) bool {
		switch key {
		case "name":
			named = it.WhatIsNext() == jsoniter.StringValue
			return d.text(it, &f.Name, maxName)
		case "value":
			return d.number(it, &value)
		case "samples":
			return d.number(it, &samples)
		default:
			pass(it)
			return it.Error == nil
		}
	})
	if !named || value.kind != whole {
		d.doc.Skipped++
		return it.Error == nil
	}
	f.Value = value.whole
	if samples.kind == whole {
		f.Samples = samples.whole
	}
	d.frames++
	m.Frames = append(m.Frames, f)
	return it.Error == nil
}

func (d *decoder) errorEntry(it *jsoniter.Iterator) bool {
	if it.WhatIsNext() != jsoniter.ObjectValue {
		return d.skip(it)
	}
	var e Error
	it.ReadObjectCB(func(it *jsoniter.Iterator, key string) bool {
		switch key {
		case "level":
			return d.text(it, &e.Level, maxMessage)
		case "message":
			return d.text(it, &e.Message, maxMessage)
		case "exception":
			return d.text(it, &e.Exception, maxException)
		case "tags":
			e.Tags = d.tags(it)
		case "log_ns":
			d.integer(it, &e.LogNS)
		default:
			pass(it)
		}
		return it.Error == nil
	})
	if len(d.doc.Errors) == maxErrors { // the newest stand at the end
		d.doc.Errors = slices.Delete(d.doc.Errors, 0, 1)
		d.doc.Skipped++
	}
	d.doc.Errors = append(d.doc.Errors, e)
	return it.Error == nil
}

func (d *decoder) resource(it *jsoniter.Iterator) bool {
	if it.WhatIsNext() != jsoniter.ObjectValue || len(d.doc.Resources) >= maxResources {
		return d.skip(it)
	}
	var r Resource
	it.ReadObjectCB(func(it *jsoniter.Iterator, key string) bool {
		switch key {
		case "kind":
			return d.text(it, &r.Kind, maxMessage)
		case "tags":
			r.Tags = d.tags(it)
		case "attributes":
			r.Attributes = d.stringMap(it)
		case "first_seen_ts":
			d.integer(it, &r.FirstSeenTS)
		case "last_seen_ts":
			d.integer(it, &r.LastSeenTS)
		default:
			pass(it)
		}
		return it.Error == nil
	})
	d.doc.Resources = append(d.doc.Resources, r)
	return it.Error == nil
}
