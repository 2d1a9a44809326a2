package nvmlreceiver

import "time"

// The driver's PCIe byte counters have 32 bits and wrap: at full speed in less than a tenth of a second. pcieMeter makes
// rates of them that are right nevertheless, or none.
//
// While little passes, one reading in a collection is enough. Growth above quietBytes may be growth and a wrap, so it is
// not believed; instead the counters are from then on read so often (every pollInterval) that none can be missed, until
// it has been quiet for quietWindows collections.
type pcieMeter struct {
	// wrap is the least time in which the counters can go round.
	wrap time.Duration
	// polling says that the counters are read every pollInterval.
	polling bool

	started bool
	at      time.Time
	last    [2]uint64 // tx, rx
	begin   time.Time // of the window
	growth  [2]uint64 // in the window
	// gap is the longest time between two readings in the window.
	gap   time.Duration
	quiet int
}

const (
	quietBytes   = 1 << 27
	quietWindows = 10
)

// newPCIeMeter returns a meter of a link of the given generation and width, 0 where unknown.
func newPCIeMeter(generation, width int) pcieMeter {
	// Bytes a second and lane, per generation. What is not known yet is taken for faster.
	perLane := 15.2e9
	if speeds := []float64{0.25e9, 0.5e9, 0.985e9, 1.97e9, 3.94e9, 7.57e9}; generation >= 1 && generation <= len(speeds) {
		perLane = speeds[generation-1]
	}
	if width < 1 || width > 32 {
		width = 16
	}
	return pcieMeter{wrap: time.Duration(float64(1<<32) / (perLane * float64(width)) * float64(time.Second))}
}

// pollInterval leaves room for a reading that comes late.
func (m *pcieMeter) pollInterval() time.Duration { return max(m.wrap*7/10, 5*time.Millisecond) }

// add takes a reading of the counters; wide ones have 64 bits and do not wrap.
func (m *pcieMeter) add(at time.Time, tx, rx uint64, wide bool) {
	now := [2]uint64{tx, rx}
	if !m.started {
		m.started, m.begin = true, at
	} else {
		for i := range now {
			if wide {
				m.growth[i] += now[i] - min(m.last[i], now[i]) // no growth where the driver began anew
			} else {
				m.growth[i] += uint64(uint32(now[i]) - uint32(m.last[i]))
			}
		}
		if !wide {
			m.gap = max(m.gap, at.Sub(m.at))
		}
	}
	m.at, m.last = at, now
}

// take ends a window and returns its rates in kB/s, or false where they are not known.
func (m *pcieMeter) take() (tx, rx int64, ok bool) {
	window := m.at.Sub(m.begin)
	growth, exact := m.growth, m.gap < m.wrap
	quiet := growth[0] < quietBytes && growth[1] < quietBytes
	m.begin, m.growth, m.gap = m.at, [2]uint64{}, 0
	if !m.started || window <= 0 {
		return 0, 0, false
	}
	if !quiet {
		m.polling, m.quiet = m.polling || !exact, 0
	} else if m.polling {
		m.quiet++
		m.polling = m.quiet < quietWindows
	}
	if !exact && !quiet {
		return 0, 0, false
	}
	rate := func(bytes uint64) int64 { return int64(float64(bytes) / 1000 / window.Seconds()) }
	return rate(growth[0]), rate(growth[1]), true
}

// reset forgets the counters, as after readings that failed.
func (m *pcieMeter) reset() {
	*m = pcieMeter{wrap: m.wrap}
}
