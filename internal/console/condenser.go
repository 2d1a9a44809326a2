package console

import (
	"fmt"
	"strings"
	"time"
)

// Limits of what is published.
const (
	// repeatWindow is how long after an entry its repeats are only counted.
	repeatWindow = 10 * time.Second
	// maxRepeated bounds the entries whose repeats are counted at a time.
	maxRepeated = 256
	// maxPerSecond bounds the entries published in a second; the status record is exempt.
	maxPerSecond = 50
)

// repeatKey tells one error from another.
type repeatKey struct {
	stream, pid, message, exception string
}

// repeated is an entry that was published, with what came again since.
type repeated struct {
	entry Entry
	until time.Time
	again int
}

// Condenser folds repeats of an error within 10 s into one entry with a count, and limits the rate.
// It is not safe for concurrent use.
type Condenser struct {
	emit    func(Entry)
	seen    map[repeatKey]*repeated
	order   []repeatKey // by until, soonest first
	second  time.Time
	count   int
	omitted int
}

// NewCondenser returns a Condenser that hands what is left to emit.
func NewCondenser(emit func(Entry)) *Condenser {
	return &Condenser{emit: emit, seen: make(map[repeatKey]*repeated)}
}

// Add takes an entry: the first of its kind is published at once, repeats are counted.
func (c *Condenser) Add(now time.Time, e Entry) {
	c.Expire(now)
	key := repeatKey{e.Stream, e.PID, normalised(e.Message), e.Exception}
	if r, ok := c.seen[key]; ok {
		r.again++
		r.entry.Time = e.Time
		return
	}
	if !c.publish(now, e) {
		return
	}
	if len(c.order) >= maxRepeated {
		c.close(now)
	}
	c.seen[key] = &repeated{entry: e, until: now.Add(repeatWindow)}
	c.order = append(c.order, key)
}

// Exempt publishes an entry that neither repeats nor counts against the limit.
func (c *Condenser) Exempt(e Entry) { c.emit(e) }

// publish emits e unless the second's limit is reached.
func (c *Condenser) publish(now time.Time, e Entry) bool {
	if now.Sub(c.second) >= time.Second {
		c.second, c.count = now, 0
	}
	if c.count >= maxPerSecond {
		c.omitted++
		return false
	}
	c.count++
	c.emit(e)
	return true
}

// close ends the window that ends first and publishes its count.
func (c *Condenser) close(now time.Time) {
	key := c.order[0]
	c.order[0] = repeatKey{}
	c.order = c.order[1:]
	r := c.seen[key]
	delete(c.seen, key)
	if r.again == 0 {
		return
	}
	e := r.entry
	times := "times"
	if r.again == 1 {
		times = "time"
	}
	note := fmt.Sprintf(" (repeated %d %s within 10 s)", r.again, times)
	e.Message = cutRunes(e.Message, MaxMessage-len(note)) + note
	e.Exception = ""
	c.publish(now, e)
}

// Expire publishes the counts whose window is over.
func (c *Condenser) Expire(now time.Time) {
	for len(c.order) > 0 && !now.Before(c.seen[c.order[0]].until) {
		c.close(now)
	}
}

// Deadline is when Expire has a count to publish next.
func (c *Condenser) Deadline() (time.Time, bool) {
	for _, key := range c.order {
		if r := c.seen[key]; r.again > 0 {
			return r.until, true
		}
	}
	return time.Time{}, false
}

// Flush publishes all counts.
func (c *Condenser) Flush(now time.Time) {
	for len(c.order) > 0 {
		c.close(now)
	}
}

// TakeOmitted returns how many entries the limit held back since the last call.
func (c *Condenser) TakeOmitted() int {
	n := c.omitted
	c.omitted = 0
	return n
}

// normalised is the message without what differs from thread to thread of one failed device assertion.
func normalised(message string) string {
	i := strings.Index(message, ": block: [")
	if i < 0 {
		return message
	}
	j := strings.Index(message[i:], "Assertion")
	if j < 0 {
		return message
	}
	return message[:i] + message[i+j:]
}
