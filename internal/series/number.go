package series

import (
	"math"
	"strconv"
)

type numberKind uint8

const (
	kindInt numberKind = iota
	kindUint
	kindFloat
)

// Number is a value that remembers whether it was an integer at its source, so that it is printed the
// way it was written. The zero value is the integer 0.
type Number struct {
	bits uint64
	kind numberKind
}

// Int returns an integer Number.
func Int(v int64) Number { return Number{bits: uint64(v), kind: kindInt} }

// Uint returns an integer Number for the whole unsigned 64-bit range.
func Uint(v uint64) Number {
	if v <= math.MaxInt64 {
		return Int(int64(v))
	}
	return Number{bits: v, kind: kindUint}
}

// Float returns a floating point Number. Non-finite values are for the caller to refuse.
func Float(v float64) Number { return Number{bits: math.Float64bits(v), kind: kindFloat} }

// IsInteger reports whether the number was an integer at its source.
func (n Number) IsInteger() bool { return n.kind != kindFloat }

// Float64 returns the value as a float, rounded where an integer has more than 53 bits.
func (n Number) Float64() float64 {
	switch n.kind {
	case kindInt:
		return float64(int64(n.bits))
	case kindUint:
		return float64(n.bits)
	}
	return math.Float64frombits(n.bits)
}

// Int64 returns the value truncated toward zero and saturated to the int64 range.
func (n Number) Int64() int64 {
	switch n.kind {
	case kindInt:
		return int64(n.bits)
	case kindUint:
		return math.MaxInt64
	}
	f := math.Float64frombits(n.bits)
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	case f != f:
		return 0
	}
	return int64(f)
}

// Uint64 returns the value truncated toward zero and saturated to the uint64 range; negative values are 0.
func (n Number) Uint64() uint64 {
	switch n.kind {
	case kindInt:
		return uint64(max(int64(n.bits), 0))
	case kindUint:
		return n.bits
	}
	f := math.Float64frombits(n.bits)
	switch {
	case f >= math.MaxUint64:
		return math.MaxUint64
	case f > 0:
		return uint64(f)
	}
	return 0
}

// IsFinite reports whether the number is neither NaN nor infinite.
func (n Number) IsFinite() bool {
	if n.kind != kindFloat {
		return true
	}
	f := math.Float64frombits(n.bits)
	return !math.IsNaN(f) && !math.IsInf(f, 0)
}

// Less compares two numbers, exactly when both are integers.
func (n Number) Less(m Number) bool {
	if n.kind == kindFloat || m.kind == kindFloat {
		return n.Float64() < m.Float64()
	}
	if n.kind == kindInt && m.kind == kindInt {
		return int64(n.bits) < int64(m.bits)
	}
	if n.kind == kindInt && int64(n.bits) < 0 {
		return true
	}
	if m.kind == kindInt && int64(m.bits) < 0 {
		return false
	}
	return n.bits < m.bits
}

// AppendJSON appends the JSON form: integers without point or exponent; floats as the shortest decimal
// that reads back equal and that still shows it is a float (2.0, 1e-05, 1e+16).
func (n Number) AppendJSON(dst []byte) []byte {
	switch n.kind {
	case kindInt:
		return strconv.AppendInt(dst, int64(n.bits), 10)
	case kindUint:
		return strconv.AppendUint(dst, n.bits, 10)
	}
	return AppendFloat(dst, math.Float64frombits(n.bits))
}

// AppendFloat appends a finite float as described at Number.AppendJSON: exponent form below 1e-4 and from
// 1e16 on, the exponent with at least two digits.
func AppendFloat(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, '.', '0')
}
