package series

import (
	"math"
	"math/bits"
)

// Bin is one populated bin of a distribution: a lower edge (native grid) or an upper bound (Prometheus),
// and how many observations it holds.
type Bin struct {
	Value Number
	Count uint64
}

// Distribution is a histogram's value: bins, exact totals, or both. Bins keep the writer's order.
type Distribution struct {
	Bins []Bin

	// HasTotals says that Count and Sum are known; Min and Max exist only beside them.
	HasTotals      bool
	HasMin, HasMax bool
	Count          uint64
	Sum, Min, Max  Number
}

// Population is the sum of the bins' counts, saturating.
func (d *Distribution) Population() uint64 {
	var n uint64
	for _, b := range d.Bins {
		if n+b.Count < n {
			return math.MaxUint64
		}
		n += b.Count
	}
	return n
}

// Mean returns sum/count where totals exist (none at count 0), else the mean of the bins weighted by count.
func (d *Distribution) Mean() (float64, bool) {
	if d.HasTotals {
		if d.Count == 0 {
			return 0, false
		}
		return d.Sum.Float64() / float64(d.Count), true
	}
	n := d.Population()
	if n == 0 {
		return 0, false
	}
	var sum float64
	for _, b := range d.Bins {
		sum += b.Value.Float64() * float64(b.Count)
	}
	mean := sum / float64(n)
	return mean, !math.IsInf(mean, 0)
}

// Quantile returns the nearest-rank quantile over the bins (0 < q <= 1), clamped to Min and Max where they
// are known; no interpolation. It reports false without observations in bins.
func (d *Distribution) Quantile(q float64) (Number, bool) {
	n := d.Population()
	if n == 0 {
		return Number{}, false
	}
	rank := max(1, uint64(math.Ceil(q*float64(n))))
	v := d.Bins[len(d.Bins)-1].Value
	var seen uint64
	for _, b := range d.Bins {
		if seen += b.Count; seen >= rank {
			v = b.Value
			break
		}
	}
	if d.HasMin && v.Less(d.Min) {
		v = d.Min
	}
	if d.HasMax && d.Max.Less(v) {
		v = d.Max
	}
	return v, true
}

// GridSlots is the number of reachable bins of the native log-linear grid.
const GridSlots = 252

// GridIndex returns the bin of the native grid that holds v: exact for 0..3, then four bins a power of two.
func GridIndex(v uint64) int {
	if v < 4 {
		return int(v)
	}
	e := bits.Len64(v) - 1
	return 4*e - 4 + int(v>>(e-2)&3)
}

// GridLower returns the inclusive lower edge of bin i of the native grid, 2^64-1 past its end.
func GridLower(i int) uint64 {
	switch {
	case i < 4:
		return uint64(max(i, 0))
	case i >= GridSlots:
		return math.MaxUint64
	}
	return uint64(4+i&3) << (i/4 - 1)
}
