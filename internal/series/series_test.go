package series

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNumberJSON(t *testing.T) {
	for _, c := range []struct {
		n    Number
		want string
	}{
		{Number{}, "0"},
		{Int(-3), "-3"},
		{Int(math.MinInt64), "-9223372036854775808"},
		{Uint(math.MaxInt64), "9223372036854775807"},
		{Uint(math.MaxUint64), "18446744073709551615"},
		{Float(2), "2.0"},
		{Float(math.Copysign(0, -1)), "-0.0"},
		{Float(0), "0.0"},
		{Float(0.0001), "0.0001"},
		{Float(0.00001), "1e-05"},
		{Float(1e15), "1000000000000000.0"},
		{Float(1e16), "1e+16"},
		{Float(-1.5e300), "-1.5e+300"},
		{Float(5e-324), "5e-324"},
		{Float(0.1), "0.1"},
		{Float(math.MaxFloat64), "1.7976931348623157e+308"},
		{Float(123456789.25), "123456789.25"},
	} {
		assert.Equal(t, c.want, string(c.n.AppendJSON(nil)))
	}
}

func TestNumberJSONReadsBackEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		f := math.Float64frombits(random.Uint64())
		if !Float(f).IsFinite() {
			continue
		}
		text := string(Float(f).AppendJSON(nil))
		back, err := strconv.ParseFloat(text, 64)
		assert.NoError(t, err)
		assert.Equal(t, math.Float64bits(f), math.Float64bits(back), text)
		assert.True(t, strings.ContainsAny(text, ".e"), text)
	}
}

func TestNumberConversions(t *testing.T) {
	assert.Equal(t, int64(math.MaxInt64), Uint(math.MaxUint64).Int64())
	assert.Equal(t, int64(math.MaxInt64), Float(1e19).Int64())
	assert.Equal(t, int64(math.MinInt64), Float(-1e19).Int64())
	assert.Equal(t, int64(-1), Float(-1.9).Int64())
	assert.Equal(t, int64(0), Float(math.NaN()).Int64())
	assert.Equal(t, uint64(math.MaxUint64), Float(1e20).Uint64())
	assert.Equal(t, uint64(0), Float(-1).Uint64())
	assert.Equal(t, uint64(0), Float(math.NaN()).Uint64())
	assert.Equal(t, uint64(0), Int(-1).Uint64())
	assert.Equal(t, uint64(1)<<63, Uint(1<<63).Uint64())
	assert.False(t, Float(math.Inf(-1)).IsFinite())
	assert.True(t, Int(1).IsInteger())
	assert.False(t, Float(1).IsInteger())
}

func TestNumberLess(t *testing.T) {
	ascending := []Number{Float(-1e300), Int(math.MinInt64), Int(-1), Int(0), Float(0.5), Int(1), Int(1<<53 + 1), Int(1<<53 + 2),
		Int(math.MaxInt64), Uint(1<<63 + 1), Uint(math.MaxUint64), Float(1e300)}
	for i, a := range ascending {
		for j, b := range ascending {
			if i == j {
				assert.False(t, a.Less(b))
			} else {
				assert.Equal(t, i < j, a.Less(b), "%d %d", i, j)
			}
		}
	}
}

func TestParseType(t *testing.T) {
	for typ := Counter; typ <= Profile; typ++ {
		back, ok := ParseType(typ.String())
		assert.True(t, ok)
		assert.Equal(t, typ, back)
	}
	_, ok := ParseType("summary")
	assert.False(t, ok)
	assert.Equal(t, "unknown", Type(9).String())
}

func TestNormalizeTags(t *testing.T) {
	long := strings.Repeat("é", 60)
	value := strings.Repeat("日", 260)
	got := NormalizeTags([]Tag{
		{Key: "z", Value: "1"}, {Key: "a", Value: "first"}, {Key: "a", Value: "last"},
		{Key: long + "x", Value: "1"}, {Key: long + "y", Value: value},
	})
	assert.Equal(t, []Tag{
		{Key: "a", Value: "last"}, {Key: "z", Value: "1"},
		{Key: strings.Repeat("é", 50), Value: strings.Repeat("日", 250)},
	}, got)
	assert.Empty(t, NormalizeTags(nil))
}

func TestTruncate(t *testing.T) {
	assert.Equal(t, "", Truncate("", 0))
	assert.Equal(t, "ab", Truncate("abc", 2))
	assert.Equal(t, "日本", Truncate("日本語", 2))
	assert.Equal(t, "日本語", Truncate("日本語", 3))
	assert.Equal(t, "\xff", Truncate("\xff\xfe", 1), "bytes that are no UTF-8 count as a character each")
}

func TestCompareTags(t *testing.T) {
	ordered := [][]Tag{{}, {{"k", "1"}}, {{"k", "1"}, {"z", ""}}, {{"k", "10"}}, {{"l", ""}}}
	for i, a := range ordered {
		for j, b := range ordered {
			got := CompareTags(a, b)
			assert.Equal(t, i < j, got < 0)
			assert.Equal(t, i == j, got == 0)
		}
	}
}

func TestGrid(t *testing.T) {
	assert.Equal(t, uint64(0), GridLower(0))
	assert.Equal(t, uint64(0), GridLower(-1))
	assert.Equal(t, uint64(3), GridLower(3))
	assert.Equal(t, uint64(4), GridLower(4))
	assert.Equal(t, uint64(7)<<61, GridLower(GridSlots-1))
	assert.Equal(t, uint64(math.MaxUint64), GridLower(GridSlots))
	for i := range GridSlots {
		lower := GridLower(i)
		assert.Equal(t, i, GridIndex(lower))
		if i > 0 {
			assert.Equal(t, i-1, GridIndex(lower-1))
			assert.Less(t, GridLower(i-1), lower)
		}
	}
	assert.Equal(t, GridSlots-1, GridIndex(math.MaxUint64))
}

// TestDistribution holds the contract's worked examples.
func TestDistribution(t *testing.T) {
	ints := func(pairs ...int64) (bins []Bin) {
		for i := 0; i < len(pairs); i += 2 {
			bins = append(bins, Bin{Value: Int(pairs[i]), Count: uint64(pairs[i+1])})
		}
		return bins
	}
	show := func(n Number, ok bool) string {
		if !ok {
			return "null"
		}
		return string(n.AppendJSON(nil))
	}
	for _, c := range []struct {
		d              Distribution
		mean, p50, p95 string
	}{
		{Distribution{Bins: ints(96, 3, 112, 9, 128, 6, 160, 2), HasTotals: true, HasMin: true, HasMax: true, Count: 20, Sum: Int(2384), Min: Int(99), Max: Int(151)}, "119.2", "112", "151"},
		{Distribution{Bins: ints(64, 1, 80, 0), HasTotals: true, HasMin: true, HasMax: true, Count: 1, Sum: Int(70), Min: Int(70), Max: Int(70)}, "70.0", "70", "70"},
		{Distribution{HasTotals: true, Count: 5, Sum: Float(0.75)}, "0.15", "null", "null"},
		{Distribution{Bins: []Bin{{Float(0.005), 40}, {Float(0.01), 8}, {Float(0.025), 2}}}, "0.0066", "0.005", "0.01"},
		{Distribution{Bins: []Bin{{Float(1), 19}, {Float(2.5), 1}}, HasTotals: true, Count: 20, Sum: Float(21.5)}, "1.075", "1.0", "1.0"},
		{Distribution{Bins: ints(10, 1, 20, 3)}, "17.5", "20", "20"},
		{Distribution{Bins: ints(7, 1, 8, 1, 9, 1), HasTotals: true}, "null", "8", "9"},
		{Distribution{Bins: ints(10, 0, 20, 0)}, "null", "null", "null"},
		{Distribution{Bins: ints(10, 4), HasTotals: true, HasMax: true, Count: 4, Sum: Int(8), Max: Int(3)}, "2.0", "3", "3"},
	} {
		mean, ok := c.d.Mean()
		assert.Equal(t, c.mean, show(Float(mean), ok))
		assert.Equal(t, c.p50, show(c.d.Quantile(0.5)))
		assert.Equal(t, c.p95, show(c.d.Quantile(0.95)))
	}
	huge := Distribution{Bins: []Bin{{Int(1), math.MaxUint64}, {Int(2), 5}}}
	assert.Equal(t, uint64(math.MaxUint64), huge.Population())
	assert.Equal(t, "1", show(huge.Quantile(0.95)))
}

func TestLargestFrames(t *testing.T) {
	var frames []Frame
	for i := range 260 {
		frames = append(frames, Frame{Name: fmt.Sprint(i), Value: uint64(i / 2)})
	}
	kept := LargestFrames(frames)
	assert.Len(t, kept, MaxFrames)
	assert.Equal(t, "10", kept[0].Name, "the ten with the least value are gone and the order stays")
	assert.Equal(t, "259", kept[249].Name)
	same := LargestFrames(frames[:250])
	assert.Equal(t, frames[:250], same)

	var ties []Frame
	for i := range 251 {
		ties = append(ties, Frame{Name: fmt.Sprint(i)})
	}
	kept = LargestFrames(ties)
	assert.Equal(t, "249", kept[249].Name, "of equal values the earlier stays")
}
