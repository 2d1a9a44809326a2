package signal

import (
	"math"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Attribute and metadata keys of the conventions.
const (
	FrameKey        = "frame"
	ProfileMetadata = "graphsignal.profile"
	BinsMetadata    = "graphsignal.bins"
	BinsLower       = "lower"
	StackTraceKey   = "exception.stacktrace"

	exceptionTypeKey    = "exception.type"
	exceptionMessageKey = "exception.message"
)

// Resource kinds (entity types).
const (
	HostKind    = "host"
	ProcessKind = "process"
	DeviceKind  = "device"
)

// Attributes of the process entity. RootPIDKey identifies the entity but tags no series.
const (
	PIDKey         = "process.pid"
	RootPIDKey     = "process.root_pid"
	CommandLineKey = "process.command_line"
)

// SamplesName is the name of the Sum that holds a profile's recordings.
func SamplesName(profile string) string {
	if base, ok := strings.CutSuffix(profile, "_nanoseconds"); ok {
		return base + "_samples"
	}
	return profile + "_samples"
}

// unitBySuffix maps the unit in a metric's name to UCUM. MHz and kB/s are left out on purpose: the
// Prometheus exporter would repeat them in the name in its own spelling.
var unitBySuffix = []struct{ suffix, unit string }{
	{"_nanoseconds", "ns"},
	{"_seconds", "s"},
	{"_bytes", "By"},
	{"_kibibytes", "KiBy"},
	{"_percent", "%"},
	{"_celsius", "Cel"},
	{"_watts", "W"},
}

func unitOf(name string) string {
	for _, u := range unitBySuffix {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}

// lowerOfBound finds the native lower edge behind a float64 bound of lower-1 where float64 can no longer
// tell the two apart.
var lowerOfBound = func() map[float64]uint64 {
	m := make(map[float64]uint64)
	for i := range series.GridSlots {
		if lower := series.GridLower(i); lower > 1<<53 {
			m[float64(lower-1)] = lower
		}
	}
	return m
}()

// boundBelow is the inclusive upper bound of what lies below a lower edge.
func boundBelow(lower uint64) float64 { return float64(lower - 1) }

// lowerAbove is the inverse of boundBelow: exact below 2^53 and on the native grid.
func lowerAbove(bound float64) uint64 {
	if bound < 1<<53 {
		return uint64(bound) + 1
	}
	if lower, ok := lowerOfBound[bound]; ok {
		return lower
	}
	if bound >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(bound)
}
