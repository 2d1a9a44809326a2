package shm

import (
	"slices"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// pruneFrames is how many frames of one profile are collected before all but the largest are let go; and the most
// names that are remembered of a profile.
const pruneFrames = 4096

// profile reads the frames of a profile.
func (p *Parser) profile(f *fields, id *identity) bool {
	f.frames, f.framesKind, f.framesFull = nil, number, false
	if p.peek() != '{' {
		f.framesKind = p.otherKind()
		return p.skip()
	}
	p.pos++
	from := len(p.frames)
	same := true // as in the last document, as far as this one goes
	n := 0
	for first := true; ; first = false {
		name, more, known, ok := p.frameName(first, id.frames, n)
		if !ok {
			return false
		}
		if !more {
			break
		}
		if !known {
			same = false
			id.setFrame(n, name.text, name.plain)
		}
		n++
		value, samples, k, ok := p.pair()
		if !ok {
			return false
		}
		if k != number {
			f.framesKind = max(f.framesKind, k)
			continue
		}
		p.frames = append(p.frames, series.Frame{Name: name.text, Value: value, Samples: samples})
		if len(p.frames)-from == pruneFrames {
			p.distinct(from)
			p.largest(from)
		}
	}
	if !same || !id.distinct {
		id.distinct = !p.distinct(from) && f.framesKind == number && n <= pruneFrames
	}
	if n < len(id.frames) {
		clear(id.frames[n:])
		id.frames = id.frames[:n]
	}
	p.largest(from)
	if len(p.frames) > maxFrames {
		p.frames = p.frames[:from]
		f.framesFull = true
	}
	f.frames = p.frames[from:len(p.frames):len(p.frames)]
	return true
}

// frameKey is a frame's name; plain says that its JSON text is the name itself.
type frameKey struct {
	text  string
	plain bool
}

// frameName moves to the value of the next frame, the n-th. The name is known when it is the one of last time.
func (p *Parser) frameName(first bool, last []string, n int) (name frameKey, more, known, ok bool) {
	if n < len(last) {
		at := p.pos
		if !first && p.pos < len(p.data) && p.data[p.pos] == ',' {
			at++
		}
		want := last[n]
		if (first || at > p.pos) && at+len(want)+3 <= len(p.data) && p.data[at] == '"' &&
			string(p.data[at+1:at+1+len(want)]) == want && p.data[at+1+len(want)] == '"' && p.data[at+2+len(want)] == ':' {
			p.pos = at + len(want) + 3
			return frameKey{want, true}, true, true, true
		}
	}
	switch c := p.peek(); {
	case c == '}':
		p.pos++
		return name, false, false, true
	case first:
	case c == ',':
		p.pos++
	default:
		return name, false, false, p.fail("comma or brace expected")
	}
	if p.peek() != '"' {
		return name, false, false, p.fail("key expected")
	}
	name.text, name.plain, ok = p.str()
	return name, true, false, ok && p.colon()
}

// setFrame remembers the name of the n-th frame. A name that is not its own JSON text is remembered as "", which
// no such text equals.
func (id *identity) setFrame(n int, name string, plain bool) {
	if n >= pruneFrames {
		return
	}
	if !plain {
		name = ""
	}
	if n < len(id.frames) {
		id.frames[n] = name
		return
	}
	id.frames = append(id.frames, name)
}

// pair reads a frame's value and samples: an array of two numbers, fractions cut. Further elements are ignored.
func (p *Parser) pair() (value, samples uint64, k kind, ok bool) {
	if p.peek() != '[' {
		return 0, 0, wrongKind, p.skip()
	}
	p.pos++
	var got [2]uint64
	n := 0
	k = number
	for first := true; ; first = false {
		more, ok := p.element(first)
		if !ok {
			return 0, 0, wrongKind, false
		}
		if !more {
			break
		}
		if n >= len(got) {
			if !p.skip() {
				return 0, 0, wrongKind, false
			}
			continue
		}
		v, vk, ok := p.numeric()
		switch {
		case !ok:
			return 0, 0, wrongKind, false
		case vk == notFinite:
			k = max(k, notFinite)
		case vk != number || v.Float64() < 0:
			k = wrongKind
		}
		got[n] = v.Uint64()
		n++
	}
	if n < len(got) {
		k = wrongKind
	}
	return got[0], got[1], k, true
}

// distinct merges frames of one name from the given one on: the last one's value at the first one's place. It
// reports whether there were any.
func (p *Parser) distinct(from int) (repeated bool) {
	frames := p.frames[from:]
	if p.positions == nil {
		p.positions = make(map[string]int)
	}
	clear(p.positions)
	kept := frames[:0]
	for _, f := range frames {
		if at, ok := p.positions[f.Name]; ok {
			kept[at] = f
			repeated = true
			continue
		}
		p.positions[f.Name] = len(kept)
		kept = append(kept, f)
	}
	p.frames = p.frames[:from+len(kept)]
	clear(p.positions)
	return repeated
}

// largest keeps of the frames from the given one on the series.MaxFrames with the most value, in their order; the
// earlier ones of equal value.
func (p *Parser) largest(from int) {
	frames := p.frames[from:]
	if len(frames) <= series.MaxFrames {
		return
	}
	values := p.values[:0]
	for _, f := range frames {
		values = append(values, f.Value)
	}
	slices.Sort(values)
	p.values = values
	least := values[len(values)-series.MaxFrames]
	equal := 0 // frames of the least value that have a place
	for _, v := range values[len(values)-series.MaxFrames:] {
		if v == least {
			equal++
		}
	}
	kept := frames[:0]
	for _, f := range frames {
		if f.Value == least {
			equal--
		}
		if f.Value > least || f.Value == least && equal >= 0 {
			kept = append(kept, f)
		}
	}
	p.frames = p.frames[:from+len(kept)]
}
