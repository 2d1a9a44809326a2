package shm

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// fields are the members of one entry as they were read, before its type says which of them count.
type fields struct {
	name       string
	typ        series.Type
	hasName    bool
	hasType    bool
	known      bool // the type
	tags       []series.Tag
	tagsFailed bool
	failed     Skip

	value, count, sum, min, max                     series.Number
	valueKind, countKind, sumKind, minKind, maxKind kind
	edgesKind, countsKind, framesKind               kind
	framesFull                                      bool
	frames                                          []series.Frame
}

// entry reads one entry at its opening brace and appends it to the document, or counts why not.
func (p *Parser) entry(id *identity) bool {
	var f fields
	p.edges, p.counts = p.edges[:0], p.counts[:0]
	start := p.pos
	matched := id.raw != "" && bytes.HasPrefix(p.data[start:], []byte(id.raw))
	if matched {
		p.pos += len(id.raw)
		f.name, f.hasName, f.typ, f.hasType, f.known, f.tags = id.name, true, id.typ, true, true, id.tags
	} else {
		p.pos++
	}
	end := p.pos // behind the leading members that identify the entry
	leading, alone := !matched, true
	for first := !matched; ; first = false {
		key, more, ok := p.member(first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		identifies := true
		switch string(key) {
		case "name":
			ok = p.readName(&f)
		case "type":
			ok = p.readType(&f)
		case "tags":
			ok = p.readTags(&f)
		default:
			identifies, leading = false, false
			ok = p.readValue(key, &f, id)
		}
		if !ok {
			return false
		}
		if leading {
			end = p.pos
		} else if identifies {
			alone = false
		}
	}
	if !matched {
		id.remember(&f, p.data[start:end], alone)
	}
	if skip, ok := p.finish(&f); !ok {
		p.doc.Skipped[skip]++
	}
	return true
}

// remember keeps an entry's identity for the next document, if its leading text alone tells it.
func (id *identity) remember(f *fields, raw []byte, alone bool) {
	id.raw, id.name, id.tags = "", "", nil
	// A text that ends in a delimiter is not the beginning of a longer value.
	delimited := bytes.IndexByte([]byte(`"}]`), raw[len(raw)-1]) >= 0
	if alone && delimited && f.name != "" && f.known && !f.tagsFailed {
		id.raw, id.name, id.typ, id.tags = string(raw), f.name, f.typ, slices.Clone(f.tags)
	}
}

func (p *Parser) readName(f *fields) (ok bool) {
	f.name, f.hasName = "", p.peek() == '"'
	if !f.hasName {
		return p.skip()
	}
	f.name, _, ok = p.str()
	return ok
}

func (p *Parser) readType(f *fields) bool {
	f.hasType, f.known = p.peek() == '"', false
	if !f.hasType {
		return p.skip()
	}
	raw, plain, ok := p.text()
	if ok && !plain {
		raw, ok = p.unescape(raw)
	}
	f.hasType = len(raw) > 0
	switch string(raw) {
	case "counter":
		f.typ, f.known = series.Counter, true
	case "gauge":
		f.typ, f.known = series.Gauge, true
	case "histogram":
		f.typ, f.known = series.Histogram, true
	case "profile":
		f.typ, f.known = series.Profile, true
	}
	return ok
}

// readValue reads a member that does not identify the entry.
func (p *Parser) readValue(key []byte, f *fields, id *identity) (ok bool) {
	switch string(key) {
	case "value":
		f.value, f.valueKind, ok = p.numeric()
	case "count":
		f.count, f.countKind, ok = p.numeric()
	case "sum":
		f.sum, f.sumKind, ok = p.numeric()
	case "min":
		f.min, f.minKind, ok = p.numeric()
	case "max":
		f.max, f.maxKind, ok = p.numeric()
	case "bins":
		p.edges, f.edgesKind, ok = p.integers(p.edges[:0])
	case "counts":
		p.counts, f.countsKind, ok = p.integers(p.counts[:0])
	case "frames":
		ok = p.profile(f, id)
	default:
		ok = p.skip()
	}
	return ok
}

// readTags reads an entry's tags. Anything but an object stands for no tags.
func (p *Parser) readTags(f *fields) bool {
	f.tags, f.tagsFailed = nil, false
	if p.peek() != '{' {
		return p.skip()
	}
	p.pos++
	from := len(p.tags)
	for first := true; ; first = false {
		key, more, ok := p.member(first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		name := p.names.get(key)
		value, state, ok := p.tagValue()
		switch {
		case !ok:
			return false
		case state == tagWrong:
			f.tagsFailed, f.failed = true, SkipKind
		case state == tagNull:
		case len(p.tags)-from == MaxTags, len(p.tags) == maxTags:
			f.tagsFailed, f.failed = true, SkipLimit
		default:
			p.tags = append(p.tags, series.Tag{Key: name, Value: value})
		}
	}
	f.tags = p.tags[from:len(p.tags):len(p.tags)]
	return true
}

// integers reads an array of whole numbers that are not negative.
func (p *Parser) integers(to []uint64) ([]uint64, kind, bool) {
	if p.peek() != '[' {
		return to, p.otherKind(), p.skip()
	}
	p.pos++
	k := number
	for first := true; ; first = false {
		more, ok := p.element(first)
		if !ok {
			return to, wrongKind, false
		}
		if !more {
			return to, k, true
		}
		v, vk, ok := p.numeric()
		switch {
		case !ok:
			return to, wrongKind, false
		case vk == notFinite:
			k = max(k, notFinite)
		case vk != number || !isWhole(v) || len(to) == maxBins:
			k = wrongKind
		default:
			to = append(to, v.Uint64())
		}
	}
}

// otherKind is the kind of a value that is not the array or object that was wanted.
func (p *Parser) otherKind() kind {
	if bytes.HasPrefix(p.data[p.pos:], []byte("null")) {
		return absent
	}
	return wrongKind
}

// isWhole reports whether v is a whole number that is not negative.
func isWhole(v series.Number) bool {
	if v.IsInteger() {
		return !v.Less(series.Int(0))
	}
	f := v.Float64()
	return f >= 0 && f == float64(uint64(f))
}

// finish appends the entry that f describes, or tells why it cannot be used.
func (p *Parser) finish(f *fields) (Skip, bool) {
	switch {
	case !f.hasName || f.name == "" || !f.hasType:
		return SkipName, false
	case f.tagsFailed:
		return f.failed, false
	case !f.known:
		return SkipType, false
	}
	e := Entry{Name: f.name, Type: f.typ, Tags: f.tags}
	var skip Skip
	ok := true
	switch f.typ {
	case series.Gauge, series.Counter:
		e.Value = f.value
		skip, ok = usable(f.valueKind)
	case series.Histogram:
		e.Distribution, skip, ok = p.distribution(f)
	case series.Profile:
		e.Frames = f.frames
		if skip, ok = usable(f.framesKind); ok && f.framesFull {
			skip, ok = SkipLimit, false
		}
	}
	if ok {
		p.doc.Entries = append(p.doc.Entries, e)
	}
	return skip, ok
}

func usable(k kind) (Skip, bool) {
	switch k {
	case absent:
		return SkipAbsent, false
	case notFinite:
		return SkipNotFinite, false
	case wrongKind:
		return SkipKind, false
	}
	return 0, true
}

// distribution makes the value of a histogram of whichever halves are there.
func (p *Parser) distribution(f *fields) (d series.Distribution, skip Skip, ok bool) {
	given := false
	for _, k := range [...]kind{f.edgesKind, f.countsKind, f.countKind, f.sumKind, f.minKind, f.maxKind} {
		if k == absent {
			continue
		}
		if skip, ok := usable(k); !ok {
			return d, skip, false
		}
		given = true
	}
	edges, counts := p.edges, p.counts
	switch {
	case f.countKind == number && f.count.Float64() < 0:
		return d, SkipKind, false
	case len(edges) == 0 || len(counts) == 0:
		// Half a pair of arrays is none.
	case len(edges) != len(counts):
		return d, SkipUnequal, false
	case len(p.bins)+len(edges) > maxBins:
		return d, SkipLimit, false
	default:
		d.Bins = p.appendBins(edges, counts)
	}
	if f.countKind == number && f.sumKind == number {
		d.HasTotals, d.Count, d.Sum = true, f.count.Uint64(), f.sum
		d.HasMin, d.Min = f.minKind == number, f.min
		d.HasMax, d.Max = f.maxKind == number, f.max
	}
	if len(d.Bins) == 0 && !d.HasTotals {
		// Empty arrays, or none at all, are an instrument without recordings.
		if !given || len(edges) == 0 && len(counts) == 0 && f.countKind == absent && f.sumKind == absent {
			return d, SkipUnrecorded, false
		}
		return d, SkipAbsent, false
	}
	return d, 0, true
}

// appendBins stores bins in ascending order; bins of one edge become one.
func (p *Parser) appendBins(edges, counts []uint64) []series.Bin {
	from := len(p.bins)
	sorted := true
	for i, edge := range edges {
		p.bins = append(p.bins, series.Bin{Value: series.Uint(edge), Count: counts[i]})
		sorted = sorted && (i == 0 || edges[i-1] < edge)
	}
	if !sorted {
		bins := p.bins[from:]
		slices.SortStableFunc(bins, func(a, b series.Bin) int {
			return cmp.Compare(a.Value.Uint64(), b.Value.Uint64())
		})
		merged := bins[:1]
		for _, b := range bins[1:] {
			if last := &merged[len(merged)-1]; last.Value == b.Value {
				last.Count += b.Count
				continue
			}
			merged = append(merged, b)
		}
		p.bins = p.bins[:from+len(merged)]
	}
	return p.bins[from:len(p.bins):len(p.bins)]
}
