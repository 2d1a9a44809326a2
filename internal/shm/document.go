package shm

import (
	"fmt"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Limits of one document. What is beyond them is left out and counted. Writers stay far below: 4,096 instruments,
// 250 frames a profile, 252 bins a histogram, 256 log entries.
const (
	MaxEntries    = 16384
	MaxTags       = 128
	MaxLogEntries = 256

	maxFrames = 65536  // of all profiles together
	maxBins   = 262144 // of all histograms together
	maxTags   = 262144 // of all entries together
	maxDepth  = 64     // nested objects and arrays
)

// Document is what one file held. It and all it refers to are valid until the Parser's next use; strings stay.
type Document struct {
	// Start is when the writer started, Write when it wrote this, epoch nanoseconds; 0 when absent or no
	// positive number.
	Start, Write int64
	// Context holds the tags that all entries share, under their importer names.
	Context []series.Tag
	Entries []Entry
	// Log holds at most the last MaxLogEntries entries, in the writer's order.
	Log []LogEntry
	// Skipped counts the entries that were left out, by cause.
	Skipped [NumSkips]int
}

// Entry is one measured series. Tags may repeat a key; the last one counts.
type Entry struct {
	Name string
	Type series.Type
	Tags []series.Tag
	// Value is the value of a gauge or the total of a counter, always finite.
	Value series.Number
	// Distribution is the value of a histogram: integer lower edges in strictly ascending order, totals, or both.
	Distribution series.Distribution
	// Frames is the value of a profile, at most series.MaxFrames frames with distinct names.
	Frames []series.Frame
}

// LogEntry is one line of the writer's log ring.
type LogEntry struct {
	// Time is epoch nanoseconds, 0 when absent.
	Time int64
	// Level is the writer's word: "debug", "warning", "error"; empty in documents of 1.0.
	Level   string
	Message string
}

// Skip is why an entry was left out of a document.
type Skip uint8

// Causes for which entries are skipped.
const (
	// SkipUnrecorded is an instrument without any recording yet: nothing is wrong with it.
	SkipUnrecorded Skip = iota
	// SkipType is a type this version does not know.
	SkipType
	SkipShape
	SkipName
	SkipAbsent
	SkipKind
	SkipNotFinite
	SkipUnequal
	SkipLimit
	// NumSkips is the number of causes.
	NumSkips
)

// String says what is wrong with an entry.
func (s Skip) String() string {
	switch s {
	case SkipUnrecorded:
		return "nothing recorded yet"
	case SkipType:
		return "unknown type"
	case SkipShape:
		return "not an object"
	case SkipName:
		return "no name or no type"
	case SkipAbsent:
		return "no value"
	case SkipKind:
		return "a value of the wrong kind"
	case SkipNotFinite:
		return "a number that is not finite"
	case SkipUnequal:
		return "bins and counts of unequal length"
	case SkipLimit:
		return "beyond a limit of the document"
	}
	return "unknown"
}

// Cause is why a whole file or directory was skipped.
type Cause uint8

// Causes for which files are skipped.
const (
	// CauseSyntax: not JSON, or not all of it.
	CauseSyntax Cause = iota
	// CauseVersion: a document of another schema version, or JSON that is no document.
	CauseVersion
	CauseMetrics
	CauseSize
	CauseOwner
	CauseFileType
	CauseStale
	CauseRead
	CauseCount
)

// String names the cause; of one cause, equal texts.
func (c Cause) String() string {
	switch c {
	case CauseSyntax:
		return "no complete JSON document"
	case CauseVersion:
		return "not a document of schema version 1"
	case CauseMetrics:
		return "metrics is not an array"
	case CauseSize:
		return "larger than max_file_size"
	case CauseOwner:
		return "owned by another user"
	case CauseFileType:
		return "not a regular file or directory"
	case CauseStale:
		return "written by an earlier process of this pid"
	case CauseRead:
		return "cannot be read"
	case CauseCount:
		return "too many files in one directory"
	}
	return "unknown"
}

// FileError says why a file or directory was skipped.
type FileError struct {
	Cause  Cause
	Detail string
}

// Error returns the cause and its detail.
func (e *FileError) Error() string {
	if e.Detail == "" {
		return e.Cause.String()
	}
	return fmt.Sprintf("%s: %s", e.Cause, e.Detail)
}

// contextTags maps the keys of a document's context to tags, in the order tags are listed.
var contextTags = []struct{ key, tag string }{
	{"rank", "process.rank"},
	{"local_rank", "process.local_rank"},
	{"world_size", "process.world_size"},
	{"local_world_size", "process.local_world_size"},
	{"master_addr", "distributed.master_addr"},
	{"master_port", "distributed.master_port"},
	{"slurm_job_id", "slurm.job_id"},
	{"slurm_step_id", "slurm.step_id"},
	{"slurm_node_id", "slurm.node_id"},
	{"slurm_node_count", "slurm.node_count"},
}
