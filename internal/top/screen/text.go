package screen

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/graphsignal/graphsignal-collector/internal/top/model"
)

// glyphs are what the terminal can show.
type glyphs struct {
	unicode bool
	bars    []rune // a trend line's levels, lowest first; none fills its cell, so that lines stay apart
	cut     string // stands for what was left out
}

func glyphsFor(utf8Locale bool) glyphs {
	if utf8Locale {
		return glyphs{unicode: true, bars: []rune("▁▂▃▄▅▆▇"), cut: "…"}
	}
	return glyphs{bars: []rune("_.-=+*#@"), cut: "~"}
}

// clean makes foreign text safe to print: no control characters, escape sequences, characters that reorder or hide text,
// or invalid UTF-8; each is replaced. White space becomes spaces, and only a few combining marks may pile up.
func (g glyphs) clean(s string) string {
	if ascii(s) {
		return s
	}
	var b strings.Builder
	marks := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
			continue
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
			marks = 0
			continue
		case !g.unicode, r == utf8.RuneError && size <= 1, !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r):
			b.WriteByte('?')
			marks = 0
			continue
		case unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > 2 {
				continue
			}
		default:
			marks = 0
		}
		b.WriteRune(r)
	}
	return b.String()
}

// ascii reports whether text is printable ASCII throughout: one column a byte.
func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func width(s string) int {
	if ascii(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// cutTo shortens clean text to a width, marking that something is missing.
func (g glyphs) cutTo(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if most := 16*w + 64; len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") // no column takes more bytes: the rest is out of sight
	}
	if width(s) <= w {
		return s
	}
	return ansi.Truncate(s, w, g.cut)
}

// middle shortens clean text to a width by leaving out its middle: the ends of kernel names tell them apart.
func (g glyphs) middle(s string, w int) string {
	n := width(s)
	if n <= w {
		return s
	}
	if w < 12 {
		return g.cutTo(s, w)
	}
	tail := (w - 1) / 3
	start := ansi.Truncate(s, w-1-tail, "") + g.cut
	// The end is wider than asked for where a wide character stands across the cut, and where characters take another width
	// beside other neighbours.
	for leave := n - tail; leave < n; leave++ {
		if text := start + ansi.TruncateLeft(s, leave, ""); width(text) <= w {
			return text
		}
	}
	return g.cutTo(s, w)
}

// wrap breaks clean text into lines of at most w columns.
func wrap(s string, w int) []string {
	if w < 1 {
		w = 1
	}
	return strings.Split(ansi.Hardwrap(s, w, true), "\n")
}

func right(s string, w int) string {
	if n := width(s); n < w {
		return strings.Repeat(" ", w-n) + s
	}
	return s
}

func left(s string, w int) string {
	if n := width(s); n < w {
		return s + strings.Repeat(" ", w-n)
	}
	return s
}

const none = "-"

// count prints a number in at most 6 columns: 0.12, 12.3, 123, 12.3k, 1.2M.
func count(v model.Value) string {
	if !v.OK {
		return none
	}
	return short(v.V, "")
}

func short(v float64, unit string) string {
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	if math.IsInf(v, 0) {
		return sign + "huge" // a product of numbers that were finite
	}
	if v >= 999.5e18 {
		return sign + strings.Replace(strconv.FormatFloat(v, 'e', 0, 64), "e+", "e", 1) + unit
	}
	for _, prefix := range []string{"", "k", "M", "G", "T", "P", "E"} {
		if v < 999.5 {
			return sign + digits(v) + prefix + unit
		}
		v /= 1000
	}
	return sign + digits(v) + "E" + unit
}

// digits prints a number below 1000 with three significant digits, whole ones without a fraction.
func digits(v float64) string {
	switch {
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v < 0.01:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// nanos prints a time given in ns: 950ns, 12.3us, 1.24ms, 1.24s, 20.5m, 5.10h, 12.0d.
func nanos(v model.Value) string {
	if !v.OK {
		return none
	}
	ns := v.V
	for _, u := range []struct {
		size float64
		unit string
	}{{1, "ns"}, {1e3, "us"}, {1e6, "ms"}} {
		if ns < 999.5*u.size {
			return digits(ns/u.size) + u.unit
		}
	}
	switch s := ns / 1e9; {
	case s < 999.5:
		return digits(s) + "s"
	case s < 60*999.5:
		return digits(s/60) + "m"
	case s < 3600*99.95:
		return digits(s/3600) + "h"
	default:
		return short(s/86400, "d")
	}
}

func seconds(v model.Value) string { return nanos(model.Value{V: v.V * 1e9, OK: v.OK}) }

// percent prints a ratio in at most 6 columns.
func percent(v model.Value) string {
	if !v.OK {
		return none
	}
	p := v.V * 100
	switch {
	case p >= 9999.5 || p <= -999.5:
		return short(p, "%")
	case p >= 99.95:
		return strconv.FormatFloat(p, 'f', 0, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// whole prints a number without a fraction.
func whole(v model.Value) string {
	if !v.OK {
		return none
	}
	if v.V >= 99999.5 || v.V <= -9999.5 {
		return short(v.V, "")
	}
	return strconv.FormatFloat(v.V, 'f', 0, 64)
}

// gib prints bytes in GiB.
func gib(v model.Value) string {
	if !v.OK {
		return none
	}
	g := v.V / (1 << 30)
	if g >= 9999.5 || g < 0 {
		return short(g, "")
	}
	return strconv.FormatFloat(g, 'f', 1, 64)
}

// perSecond prints a rate of bytes.
func perSecond(v model.Value) string {
	if !v.OK {
		return none
	}
	return short(v.V, "B/s")
}

// uptime prints 45s, 12m05s, 3h04m, 2d03h.
func uptime(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s < 60:
		return strconv.FormatInt(s, 10) + "s"
	case s < 3600:
		return strconv.FormatInt(s/60, 10) + "m" + two(s%60) + "s"
	case s < 86400:
		return strconv.FormatInt(s/3600, 10) + "h" + two(s/60%60) + "m"
	}
	return strconv.FormatInt(s/86400, 10) + "d" + two(s/3600%24) + "h"
}

func two(v int64) string {
	if v < 10 {
		return "0" + strconv.FormatInt(v, 10)
	}
	return strconv.FormatInt(v, 10)
}

// trend draws the last w points between 0 and top; top 0 means the greatest of them.
func (g glyphs) trend(points []float64, w int, top float64) string {
	if w <= 0 {
		return ""
	}
	if len(points) > w {
		points = points[len(points)-w:]
	}
	if top <= 0 {
		for _, p := range points {
			top = max(top, p)
		}
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", w-len(points)))
	for _, p := range points {
		level := 0
		if top > 0 && p > 0 {
			level = min(int(math.Ceil(p/top*float64(len(g.bars))))-1, len(g.bars)-1)
			level = max(level, 0)
		}
		b.WriteRune(g.bars[level])
	}
	return b.String()
}
