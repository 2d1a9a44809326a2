package shm

import "hash/maphash"

// logFilter tells which entries of a writer's log ring are new. The ring is never drained, so every document
// repeats it. Entries are told apart by time and text, not by time alone: two of one nanosecond are two, and a
// clock that was set back hides none.
type logFilter struct {
	start int64 // of the writer whose entries are known
	known map[logKey]struct{}
	fresh map[logKey]struct{} // of the document whose entries are not yet taken over
	begun int64
}

type logKey struct {
	time int64
	text uint64
}

var logSeed = maphash.MakeSeed()

// unseen returns the entries of doc with a time and a text that were not in the last document taken over. A new
// start time is a new writer, whose entries are all new.
func (l *logFilter) unseen(doc *Document) []LogEntry {
	if l.fresh == nil {
		l.known, l.fresh = make(map[logKey]struct{}), make(map[logKey]struct{})
	}
	clear(l.fresh)
	l.begun = doc.Start
	unseen := doc.Log[:0]
	for _, e := range doc.Log {
		if e.Time == 0 || e.Message == "" {
			continue
		}
		key := logKey{e.Time, maphash.String(logSeed, e.Level) ^ maphash.String(logSeed, e.Message)}
		_, old := l.known[key]
		_, again := l.fresh[key]
		l.fresh[key] = struct{}{}
		if !again && (!old || l.start != doc.Start) {
			unseen = append(unseen, e)
		}
	}
	return unseen
}

// accept takes over the document last given to unseen.
func (l *logFilter) accept() {
	l.known, l.fresh = l.fresh, l.known
	l.start = l.begun
}
