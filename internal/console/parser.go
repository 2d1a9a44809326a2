package console

import (
	"time"
)

// Parser turns the records of console segments into entries. It is not safe for concurrent use.
type Parser struct {
	extractor *Extractor
	condenser *Condenser
	emit      func(Entry)
	oom       OOMCounter
	oomStart  int64
	oomKnown  bool
	dropped   uint64
}

// NewParser returns a Parser that hands entries to emit. oom may be nil; its count is taken as the run's begin.
func NewParser(oom OOMCounter, emit func(Entry)) *Parser {
	p := &Parser{emit: emit, oom: oom}
	p.condenser = NewCondenser(emit)
	p.extractor = NewExtractor(p.condenser.Add)
	if oom != nil {
		p.oomStart, p.oomKnown = oom.Kills()
	}
	return p
}

// Record takes one record; now is the caller's clock. It keeps no part of the record's strings.
func (p *Parser) Record(now time.Time, r Record) {
	switch r.Kind {
	case KindLine:
		p.extractor.Line(now, r.Time, r.Stream, r.Line)
	case KindDropped:
		p.dropped += uint64(max(r.Dropped, 0))
	case KindStatus:
		message := statusMessage(r, p.oomDelta())
		if message == "" {
			return
		}
		p.extractor.Flush(now) // what it printed comes before how it ended
		p.condenser.Exempt(Entry{Time: r.Time, Stream: StreamExit, Message: message})
	}
}

func (p *Parser) oomDelta() oomDelta {
	if !p.oomKnown {
		return oomDelta{}
	}
	n, ok := p.oom.Kills()
	return oomDelta{kills: n - p.oomStart, known: ok}
}

// Expire publishes what has waited long enough.
func (p *Parser) Expire(now time.Time) {
	p.extractor.Expire(now)
	p.condenser.Expire(now)
}

// Deadline is when Expire has something to do next, whatever comes in between; ok is false when nothing waits.
func (p *Parser) Deadline() (at time.Time, ok bool) {
	at, ok = p.extractor.Deadline()
	if t, more := p.condenser.Deadline(); more && (!ok || t.Before(at)) {
		at, ok = t, true
	}
	return at, ok
}

// Flush publishes all that waits.
func (p *Parser) Flush(now time.Time) {
	p.extractor.Flush(now)
	p.condenser.Flush(now)
}

// TakeOmitted returns how many entries the rate limit held back since the last call.
func (p *Parser) TakeOmitted() int { return p.condenser.TakeOmitted() }

// Dropped is how many lines the launcher could not capture.
func (p *Parser) Dropped() uint64 { return p.dropped }
