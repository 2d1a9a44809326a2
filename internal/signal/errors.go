package signal

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
)

// Value is a tag value of an error: a string, or an integer.
type Value any

// ErrorEntry is one entry of the errors of /signals.
type ErrorEntry struct {
	// Level is debug, info, warning, error or critical.
	Level     string
	Message   string
	Exception string
	// Tags in their order; values are string or int64.
	Tags []ErrorTag
	// Time is when it happened, epoch nanoseconds.
	Time int64
}

// ErrorTag is one tag of an ErrorEntry.
type ErrorTag struct {
	Key   string
	Value Value
}

// AppendError adds e to records.
func AppendError(records plog.LogRecordSlice, e ErrorEntry) {
	r := records.AppendEmpty()
	r.SetTimestamp(pcommon.Timestamp(e.Time))
	r.SetObservedTimestamp(pcommon.Timestamp(e.Time))
	r.SetSeverityNumber(severityOf(e.Level))
	r.SetSeverityText(e.Level)
	r.Body().SetStr(e.Message)
	if e.Exception != "" {
		r.Attributes().PutStr(StackTraceKey, e.Exception)
	}
	for _, t := range e.Tags {
		switch v := t.Value.(type) {
		case int64:
			r.Attributes().PutInt(t.Key, v)
		case int:
			r.Attributes().PutInt(t.Key, int64(v))
		case string:
			r.Attributes().PutStr(t.Key, v)
		}
	}
}

// DecodeErrors hands every log record of ld to sink and returns how many it left out, having neither a message
// nor a stack trace. Resource attributes become tags that the record's own win over, except those that merely
// describe an entity. A level outside the five known words is taken from the severity number, and where there is none
// from other words for the five. A record without body has the message of its exception, else the name of its event.
func DecodeErrors(ld plog.Logs, sink func(ErrorEntry)) (empty int) {
	for _, rl := range ld.ResourceLogs().All() {
		var common []ErrorTag
		described := descriptiveKeys(rl.Resource())
		for key, v := range rl.Resource().Attributes().All() {
			if key != RootPIDKey && !slices.Contains(described, key) {
				common = append(common, ErrorTag{Key: key, Value: tagValue(v)})
			}
		}
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				message, ok := messageOf(r)
				if _, hasTrace := r.Attributes().Get(StackTraceKey); !ok && !hasTrace {
					empty++
					continue
				}
				sink(decodeError(common, message, r))
			}
		}
	}
	return empty
}

// messageOf returns the text of a record, false when it has none.
func messageOf(r plog.LogRecord) (message string, ok bool) {
	if r.Body().Type() != pcommon.ValueTypeEmpty {
		return r.Body().AsString(), true
	}
	kind, hasKind := r.Attributes().Get(exceptionTypeKey)
	text, hasText := r.Attributes().Get(exceptionMessageKey)
	switch {
	case hasKind && hasText:
		return kind.AsString() + ": " + text.AsString(), true
	case hasText:
		return text.AsString(), true
	case hasKind:
		return kind.AsString(), true
	}
	return r.EventName(), r.EventName() != ""
}

func decodeError(common []ErrorTag, message string, r plog.LogRecord) ErrorEntry {
	e := ErrorEntry{Level: levelOf(r), Message: message, Time: int64(r.Timestamp())}
	if e.Time == 0 {
		e.Time = int64(r.ObservedTimestamp())
	}
	for _, t := range common {
		if _, own := r.Attributes().Get(t.Key); !own {
			e.Tags = append(e.Tags, t)
		}
	}
	for key, v := range r.Attributes().All() {
		if key == StackTraceKey {
			e.Exception = v.AsString()
			continue
		}
		e.Tags = append(e.Tags, ErrorTag{Key: key, Value: tagValue(v)})
	}
	return e
}

// descriptiveKeys are the attributes that describe an entity of the Resource and are no tags.
func descriptiveKeys(res pcommon.Resource) []string {
	var keys []string
	for _, ref := range entity.ResourceEntityRefs(res).All() {
		keys = append(keys, ref.DescriptionKeys().AsRaw()...)
	}
	return keys
}

func tagValue(v pcommon.Value) Value {
	if v.Type() == pcommon.ValueTypeInt {
		return v.Int()
	}
	return v.AsString()
}

func severityOf(level string) plog.SeverityNumber {
	switch level {
	case "debug":
		return plog.SeverityNumberDebug
	case "warning":
		return plog.SeverityNumberWarn
	case "error":
		return plog.SeverityNumberError
	case "critical":
		return plog.SeverityNumberFatal
	}
	return plog.SeverityNumberInfo
}

func levelOf(r plog.LogRecord) string {
	text := strings.ToLower(r.SeverityText())
	switch text {
	case "debug", "info", "warning", "error", "critical":
		return text
	}
	if r.SeverityNumber() == plog.SeverityNumberUnspecified {
		switch text {
		case "warn":
			return "warning"
		case "err", "severe":
			return "error"
		case "fatal", "crit", "alert", "emerg", "emergency", "panic":
			return "critical"
		case "trace":
			return "debug"
		}
	}
	switch n := r.SeverityNumber(); {
	case n >= plog.SeverityNumberFatal:
		return "critical"
	case n >= plog.SeverityNumberError:
		return "error"
	case n >= plog.SeverityNumberWarn:
		return "warning"
	case n >= plog.SeverityNumberInfo || n == plog.SeverityNumberUnspecified:
		return "info"
	}
	return "debug"
}
