package nvmlreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// traffic feeds a meter with counters of a link that carries bytes per second, for n windows of a second, and returns the
// last window's rate.
func traffic(m *pcieMeter, at *time.Time, total *uint64, perSecond float64, n int, step time.Duration) (tx int64, ok bool) {
	for range n {
		for passed := time.Duration(0); passed < time.Second; passed += step {
			*at = at.Add(step)
			*total += uint64(perSecond * step.Seconds())
			m.add(*at, uint64(uint32(*total)), 0, false)
		}
		tx, _, ok = m.take()
	}
	return tx, ok
}

func TestPCIeMeter(t *testing.T) {
	m := newPCIeMeter(5, 16)
	assert.InDelta(t, 68, m.wrap.Milliseconds(), 1)
	at, total := time.Unix(0, 0), uint64(1<<32-100)
	m.add(at, total, 0, false)
	_, _, ok := m.take()
	assert.False(t, ok, "one reading is no rate")

	tx, ok := traffic(&m, &at, &total, 20e6, 3, time.Second)
	assert.True(t, ok)
	assert.EqualValues(t, 20_000, tx, "a wrap is seen through")
	assert.False(t, m.polling)

	_, ok = traffic(&m, &at, &total, 50e9, 1, time.Second)
	assert.False(t, ok, "what may have wrapped unseen is not told")
	assert.True(t, m.polling)
	assert.Less(t, m.pollInterval(), m.wrap)

	tx, ok = traffic(&m, &at, &total, 50e9, 2, 20*time.Millisecond)
	assert.True(t, ok)
	assert.InEpsilon(t, 50_000_000, tx, 0.001)

	_, ok = traffic(&m, &at, &total, 50e9, 1, 500*time.Millisecond)
	assert.False(t, ok, "readings that came too late")
	assert.True(t, m.polling)

	_, ok = traffic(&m, &at, &total, 1e6, quietWindows, 20*time.Millisecond)
	assert.True(t, ok)
	assert.False(t, m.polling)

	m.reset()
	m.add(at, 5, 5, false)
	_, _, ok = m.take()
	assert.False(t, ok)
}

func TestPCIeMeterWide(t *testing.T) {
	m := newPCIeMeter(0, 0)
	at := time.Unix(0, 0)
	m.add(at, 1<<40, 7, true)
	m.take()
	m.add(at.Add(time.Second), 1<<40+50e9, 7, true)
	tx, rx, ok := m.take()
	assert.True(t, ok)
	assert.EqualValues(t, 50_000_000, tx)
	assert.Zero(t, rx)
	assert.False(t, m.polling)
	m.add(at.Add(2*time.Second), 3, 7, true) // the driver began anew
	tx, _, ok = m.take()
	assert.True(t, ok)
	assert.Zero(t, tx)
}
