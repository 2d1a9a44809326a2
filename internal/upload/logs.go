package upload

import (
	"slices"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	pb "github.com/graphsignal/graphsignal-collector/proto"
)

// Bounds of the entries that wait for the server.
const (
	maxLogEntries = 1000
	maxLogBytes   = 2 << 20
)

// LogEntry is one entry to upload. Level is debug, info, warning, error or critical; another word is sent as info.
type LogEntry struct {
	Level, Message, Exception string
	Tags                      []series.Tag
	// Time is epoch nanoseconds.
	Time int64
}

// logQueue keeps entries until they are acknowledged; the oldest go first when it is full.
type logQueue struct {
	entries []queuedEntry
	bytes   int
	next    uint64
	dropped uint64
}

type queuedEntry struct {
	sequence uint64
	size     int
	tags     []series.Tag
	message  *pb.LogEntry
}

func (q *logQueue) add(e LogEntry, global []series.Tag) {
	queued := queuedEntry{
		sequence: q.next,
		tags:     series.NormalizeTags(append(slices.Clone(global), e.Tags...)),
		message:  &pb.LogEntry{Level: levelOf(e.Level), Message: text(e.Message), Exception: text(e.Exception), LogTs: e.Time},
		size:     len(e.Message) + len(e.Exception) + 64,
	}
	q.next++
	q.entries = append(q.entries, queued)
	q.bytes += queued.size
	for len(q.entries) > maxLogEntries || q.bytes > maxLogBytes && len(q.entries) > 1 {
		q.bytes -= q.entries[0].size
		q.entries = slices.Delete(q.entries, 0, 1)
		q.dropped++
	}
}

// items groups the entries by their whole tag set, in order of first appearance.
func (q *logQueue) items() []Item {
	var items []Item
	index := make(map[string]int)
	for _, e := range q.entries {
		var key []byte
		for _, t := range e.tags {
			key = appendField(appendField(key, t.Key), t.Value)
		}
		i, ok := index[string(key)]
		if !ok {
			i = len(items)
			index[string(key)] = i
			batch := &pb.LogBatch{}
			for _, t := range e.tags {
				batch.Tags = append(batch.Tags, &pb.Tag{Key: text(t.Key), Value: text(t.Value)})
			}
			items = append(items, Item{Logs: batch})
		}
		items[i].Logs.LogEntries = append(items[i].Logs.LogEntries, e.message)
		items[i].entries = append(items[i].entries, e.sequence)
	}
	return items
}

// acknowledge removes entries by sequence number; some may be gone already.
func (q *logQueue) acknowledge(sequences []uint64) {
	q.entries = slices.DeleteFunc(q.entries, func(e queuedEntry) bool {
		_, sent := slices.BinarySearch(sequences, e.sequence)
		if sent {
			q.bytes -= e.size
		}
		return sent
	})
}

func levelOf(word string) pb.LogEntry_LogLevel {
	switch word {
	case "debug":
		return pb.LogEntry_DEBUG_LEVEL
	case "warning":
		return pb.LogEntry_WARNING_LEVEL
	case "error":
		return pb.LogEntry_ERROR_LEVEL
	case "critical":
		return pb.LogEntry_CRITICAL_LEVEL
	}
	return pb.LogEntry_INFO_LEVEL
}
