package shm

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// scanner reads JSON values at a cursor. Every method that returns ok=false has recorded the syntax error.
type scanner struct {
	data    []byte
	pos     int
	err     *FileError
	names   interner
	scratch []byte // text without its escapes
}

func (s *scanner) fail(what string) bool {
	if s.err == nil {
		s.err = &FileError{CauseSyntax, fmt.Sprintf("%s at byte %d of %d", what, s.pos, len(s.data))}
	}
	return false
}

// peek skips white space and returns the byte there, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// member moves to the next value of an object: over the comma, the key and the colon. The cursor is behind the
// opening brace (first) or behind a value. It reports more=false behind the closing brace. The key is valid until
// the next text is read.
func (s *scanner) member(first bool) (key []byte, more, ok bool) {
	switch c := s.peek(); {
	case c == '}':
		s.pos++
		return nil, false, true
	case first:
	case c == ',':
		s.pos++
		s.peek()
	default:
		return nil, false, s.fail("comma or brace expected")
	}
	if s.peek() != '"' {
		return nil, false, s.fail("key expected")
	}
	raw, plain, ok := s.text()
	if !ok {
		return nil, false, false
	}
	if !plain {
		if raw, ok = s.unescape(raw); !ok {
			return nil, false, false
		}
	}
	return raw, true, s.colon()
}

func (s *scanner) colon() bool {
	if s.peek() != ':' {
		return s.fail("colon expected")
	}
	s.pos++
	return true
}

// element moves to the next value of an array, as member does in an object.
func (s *scanner) element(first bool) (more, ok bool) {
	switch c := s.peek(); {
	case c == ']' && first:
		s.pos++
		return false, true
	case first:
		return true, true
	case c == ']':
		s.pos++
		return false, true
	case c == ',':
		s.pos++
		return true, true
	}
	return false, s.fail("comma or bracket expected")
}

// text reads a string at its opening quote and returns what stands between the quotes; plain says that this is
// the text itself: UTF-8 without escapes.
func (s *scanner) text() (raw []byte, plain, ok bool) {
	start := s.pos + 1
	plain = true
	for from := start; ; {
		n := bytes.IndexByte(s.data[from:], '"')
		if n < 0 {
			return nil, false, s.fail("string without end")
		}
		end := from + n
		for from <= end {
			b := bytes.IndexByte(s.data[from:end], '\\')
			if b < 0 {
				raw = s.data[start:end]
				s.pos = end + 1
				return raw, plain && utf8.Valid(raw), true
			}
			plain = false
			from += b + 2
		}
		// The quote was escaped, and the search goes on behind it.
	}
}

// unescape returns the text of a string's inside, valid until its next call. What is not UTF-8 and surrogates
// without their half become U+FFFD.
func (s *scanner) unescape(raw []byte) ([]byte, bool) {
	out := s.scratch[:0]
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			r, n := utf8.DecodeRune(raw[i:])
			out = utf8.AppendRune(out, r) // U+FFFD for a byte that is none
			i += n
			continue
		}
		i++
		if i == len(raw) {
			return nil, s.fail("incomplete escape in a string")
		}
		switch c := raw[i]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(raw[i+1:])
			if !ok {
				return nil, s.fail("bad \\u escape in a string")
			}
			i += 4
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(raw) > i+2 && raw[i+1] == '\\' && raw[i+2] == 'u' {
					if low, ok := hex4(raw[i+3:]); ok {
						pair = utf16.DecodeRune(r, low)
					}
				}
				if r = pair; pair != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, s.fail("unknown escape in a string")
		}
		i++
	}
	s.scratch = out
	return out, true
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// str reads a string at its opening quote as an interned Go string; plain as in text.
func (s *scanner) str() (str string, plain, ok bool) {
	raw, plain, ok := s.text()
	if !ok {
		return "", false, false
	}
	if !plain {
		if raw, ok = s.unescape(raw); !ok {
			return "", false, false
		}
	}
	return s.names.get(raw), plain, true
}

// kind is what stood where a number was wanted.
type kind uint8

const (
	absent    kind = iota // no such key, or null
	number                // a finite number
	notFinite             // NaN or infinity in any spelling, or a number too large for a float
	wrongKind             // any other value
)

// numeric reads one value where a number is wanted.
func (s *scanner) numeric() (series.Number, kind, bool) {
	switch c := s.peek(); {
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 'n' && s.word("null"):
		return series.Number{}, absent, true
	case c == 'n', c == 'N', c == 'i', c == 'I', c == '+':
		return s.number()
	}
	return series.Number{}, wrongKind, s.skip()
}

// number reads a number. Integers beyond 64 bits saturate.
func (s *scanner) number() (series.Number, kind, bool) {
	start, i := s.pos, s.pos
	negative := s.data[i] == '-'
	if negative || s.data[i] == '+' {
		i++
	}
	var v uint64
	first := i
	for i < len(s.data) && s.data[i]-'0' <= 9 {
		v = v*10 + uint64(s.data[i]-'0')
		i++
	}
	digits := i - first
	switch {
	case digits == 0:
		return s.nonFinite(i)
	case s.data[start] == '+':
		return series.Number{}, wrongKind, s.fail("number with a plus sign")
	case digits > 1 && s.data[first] == '0':
		return series.Number{}, wrongKind, s.fail("number with a leading zero")
	}
	if i < len(s.data) && (s.data[i] == '.' || s.data[i]|0x20 == 'e') {
		return s.float(start, i)
	}
	s.pos = i
	// 19 digits always fit, 20 digits up to 18446744073709551615.
	if digits > 20 || digits == 20 && string(s.data[first:i]) > "18446744073709551615" {
		v = math.MaxUint64
	}
	if !negative {
		return series.Uint(v), number, true
	}
	if v > math.MaxInt64 {
		return series.Int(math.MinInt64), number, true
	}
	return series.Int(-int64(v)), number, true
}

// float reads a number that began at start and whose fraction or exponent is at i.
func (s *scanner) float(start, i int) (series.Number, kind, bool) {
	digits := func() bool {
		from := i
		for i < len(s.data) && s.data[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	if s.data[i] == '.' {
		i++
		if !digits() {
			return series.Number{}, wrongKind, s.fail("number without digits behind its point")
		}
	}
	if i < len(s.data) && s.data[i]|0x20 == 'e' {
		i++
		if i < len(s.data) && (s.data[i] == '+' || s.data[i] == '-') {
			i++
		}
		if !digits() {
			return series.Number{}, wrongKind, s.fail("number without digits in its exponent")
		}
	}
	s.pos = i
	f, err := strconv.ParseFloat(unsafe.String(&s.data[start], i-start), 64)
	if err != nil { // its only error here: out of range
		return series.Number{}, notFinite, true
	}
	return series.Float(f), number, true
}

// nonFinite reads what C, JavaScript and Python print for numbers that are none, at i behind an optional sign.
func (s *scanner) nonFinite(i int) (series.Number, kind, bool) {
	for _, word := range []string{"nan", "infinity", "inf"} {
		if len(s.data)-i < len(word) || !bytes.EqualFold(s.data[i:i+len(word)], []byte(word)) {
			continue
		}
		s.pos = i + len(word)
		if word == "nan" && s.pos < len(s.data) && s.data[s.pos] == '(' { // nan(0x8000000000000), -nan(ind)
			n := bytes.IndexByte(s.data[s.pos:min(s.pos+32, len(s.data))], ')')
			if n < 0 {
				return series.Number{}, wrongKind, s.fail("number expected")
			}
			s.pos += n + 1
		}
		return series.Number{}, notFinite, true
	}
	return series.Number{}, wrongKind, s.fail("value expected")
}

// word reads a literal if it is there.
func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
		return false
	}
	s.pos += len(w)
	return true
}

// skip reads over one value of any kind.
func (s *scanner) skip() bool {
	var objects uint64 // bit d: the container at depth d is an object
	for depth := 0; ; {
		switch c := s.peek(); c {
		case '{', '[':
			if depth == maxDepth {
				return s.fail("nested too deep")
			}
			s.pos++
			objects &^= 1 << depth
			if c == '{' {
				objects |= 1 << depth
			}
			depth++
			more, ok := s.nextIn(objects, depth, true)
			if !ok {
				return false
			}
			if more {
				continue
			}
			depth--
		case '"':
			if _, _, ok := s.text(); !ok {
				return false
			}
		default:
			if !s.literal(c) {
				return false
			}
		}
		for {
			if depth == 0 {
				return true
			}
			more, ok := s.nextIn(objects, depth, false)
			if !ok {
				return false
			}
			if more {
				break
			}
			depth--
		}
	}
}

// nextIn moves to the next value of the innermost of depth containers.
func (s *scanner) nextIn(objects uint64, depth int, first bool) (more, ok bool) {
	if objects>>(depth-1)&1 == 1 {
		_, more, ok = s.member(first)
		return more, ok
	}
	return s.element(first)
}

func (s *scanner) literal(c byte) bool {
	switch {
	case c == 0:
		return s.fail("value expected")
	case s.word("true"), s.word("false"), s.word("null"):
		return true
	}
	_, _, ok := s.number()
	return ok
}
