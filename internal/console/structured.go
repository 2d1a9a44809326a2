package console

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Keys that JSON loggers use, most specific first.
var (
	levelKeys     = []string{"level", "severity", "levelname", "log.level", "severity_text", "lvl", "loglevel", "@level"}
	messageKeys   = []string{"message", "msg", "event", "@message", "text", "body"}
	exceptionKeys = []string{"exc_info", "exception", "traceback", "stacktrace", "stack_trace", "exc_text", "error.stack_trace", "stack"}
	pidKeys       = []string{"pid", "process", "process_id", "process.pid"}
)

// parseJSON recognises a JSON object that has a level. It decodes only lines that can be errors; any other object
// is a record without a level.
func parseJSON(line string) (record, bool) {
	line = strings.TrimRight(line, " \t")
	if len(line) < 2 || line[1] != '"' && line[1] != ' ' && line[1] != '}' || line[len(line)-1] != '}' {
		return record{}, false
	}
	r := record{start: true, level: levelInfo}
	if !mayBeErrorObject(line) {
		return r, true
	}
	var object map[string]any
	if json.Unmarshal([]byte(line), &object) != nil {
		return record{}, false
	}
	if inner, ok := object["record"].(map[string]any); ok { // loguru's serialised form
		object = inner
		if level, ok := object["level"].(map[string]any); ok {
			object["level"] = level["name"]
		}
	}
	level := objectLevel(object)
	if level == levelNone {
		return r, true
	}
	r.level = level
	r.text = firstString(object, messageKeys)
	r.exception = firstString(object, exceptionKeys)
	switch cause := object["error"].(type) {
	case string:
		r.text = joinCause(r.text, cause)
	case map[string]any: // pino and ECS
		r.text = joinCause(r.text, firstString(cause, messageKeys))
		if r.exception == "" {
			r.exception = firstString(cause, exceptionKeys)
		}
	}
	if cause, ok := object["err"].(string); ok {
		r.text = joinCause(r.text, cause)
	}
	for _, key := range pidKeys {
		if pid, ok := object[key].(float64); ok && pid > 0 && pid == float64(int64(pid)) {
			r.pid = strconv.FormatInt(int64(pid), 10)
			break
		}
	}
	return r, true
}

func joinCause(text, cause string) string {
	switch {
	case cause == "" || strings.Contains(text, cause):
		return text
	case text == "":
		return cause
	}
	return text + ": " + cause
}

// mayBeErrorObject is a cheap test for a level of error or more in a JSON line.
func mayBeErrorObject(line string) bool {
	for rest := line; ; {
		i := strings.IndexByte(rest, ':')
		if i < 0 {
			return false
		}
		rest = strings.TrimLeft(rest[i+1:], " ")
		if rest == "" {
			return false
		}
		switch rest[0] {
		case '"':
			rest = rest[1:]
			if n := wordLen(rest); n < len(rest) && rest[n] == '"' && levelOfAnyCase(rest[:n]) == levelError {
				return true
			}
		case '4', '5', '6':
			if countDigits(rest) == 2 && rest[1] == '0' {
				return true
			}
		}
	}
}

// wordLen is the length of the word that s starts with if it can be a level of error or more, else 0.
func wordLen(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] | 0x20 {
	case 'e', 'c', 'f', 'p', 'd', 'a', 's':
	default:
		return 0
	}
	n := 1
	for n < len(s) && n <= maxLevelWord && isWord(s[n]) {
		n++
	}
	return n
}

func objectLevel(object map[string]any) level {
	for _, key := range levelKeys {
		switch v := object[key].(type) {
		case string:
			if l := levelOfAnyCase(v); l != levelNone {
				return l
			}
		case float64: // pino and bunyan: 50 is error, 60 fatal
			if v >= 50 {
				return levelError
			}
			return levelInfo
		}
	}
	if v, ok := object["levelno"].(float64); ok { // Python: 40 is error
		if v >= 40 {
			return levelError
		}
		return levelInfo
	}
	return levelNone
}

func firstString(object map[string]any, keys []string) string {
	for _, key := range keys {
		if s, ok := object[key].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// parseLogfmt recognises "time=... level=ERROR msg=... err=..." (Go's slog and logrus without a terminal).
func parseLogfmt(line string) (record, bool) {
	first := strings.IndexByte(line[:min(len(line), 16)], '=')
	if first < 0 {
		return record{}, false
	}
	switch line[:first] {
	case "time", "ts", "t", "level", "lvl", "severity", "timestamp":
	default:
		return record{}, false
	}
	r := record{start: true, text: line, level: logfmtLevel(line)}
	if r.level == levelNone {
		return record{}, false
	}
	if r.level < levelError {
		return r, true
	}
	fields := logfmtFields(line)
	text := fields["msg"]
	if text == "" {
		text = fields["message"]
	}
	for _, key := range [...]string{"error", "err"} {
		text = joinCause(text, fields[key])
	}
	if text != "" {
		r.text = text
	}
	return r, true
}

// logfmtLevel returns the level that a line names before any free text.
func logfmtLevel(line string) level {
	for _, key := range [...]string{"level=", "lvl=", "severity="} {
		i := strings.Index(line, key)
		if i < 0 || i > 0 && line[i-1] != ' ' {
			continue
		}
		value := strings.TrimPrefix(line[i+len(key):], `"`)
		n := 0
		for n < len(value) && isWord(value[n]) {
			n++
		}
		return levelOfAnyCase(value[:n])
	}
	return levelNone
}

// maxLogfmtFields bounds how many pairs of a line are looked at.
const maxLogfmtFields = 64

// logfmtFields splits key=value pairs; values may be quoted as in Go.
func logfmtFields(line string) map[string]string {
	fields := make(map[string]string)
	for range maxLogfmtFields {
		line = strings.TrimLeft(line, " ")
		eq := strings.IndexByte(line, '=')
		if eq < 0 {
			break
		}
		key := line[:eq]
		if blank := strings.LastIndexByte(key, ' '); blank >= 0 {
			key = key[blank+1:]
		}
		line = line[eq+1:]
		if quoted, err := strconv.QuotedPrefix(line); err == nil {
			value, err := strconv.Unquote(quoted)
			if err != nil {
				value = quoted
			}
			fields[key] = value
			line = line[len(quoted):]
			continue
		}
		end := strings.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		fields[key] = line[:end]
		line = line[end:]
	}
	return fields
}
