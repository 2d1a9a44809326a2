package console

import (
	"strings"
)

// dateLen is the length of the date and time that s starts with, else 0: "YYYY-MM-DD HH:MM:SS" with '/' or '-',
// 'T' or '-' before the clock, "MM/DD/YYYY", "MM/DD/YY", an optional fraction and an optional zone.
func dateLen(s string) int {
	if len(s) < len("01/02/06 15:04:05") {
		return 0
	}
	day := len("2006-01-02")
	switch countDigits(s) {
	case 4:
		if sep := s[4]; sep != '-' && sep != '/' || s[7] != sep || countDigits(s[5:]) != 2 {
			return 0
		}
		if countDigits(s[8:]) != 2 {
			return 0
		}
	case 2:
		if s[2] != '/' || s[5] != '/' || countDigits(s[3:]) != 2 {
			return 0
		}
		switch countDigits(s[6:]) {
		case 4:
		case 2: // rich
			day = len("01/02/06")
		default:
			return 0
		}
	default:
		return 0
	}
	if c := s[day]; c != ' ' && c != 'T' && c != '-' {
		return 0
	}
	n := clockLen(s[day+1:])
	if n == 0 {
		return 0
	}
	n += day + 1
	return n + zoneLen(s[n:])
}

// zoneLen is the length of a time zone ("Z", "+0100", "-05:00") at the start of s.
func zoneLen(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] {
	case 'Z':
		if len(s) == 1 || !isWord(s[1]) {
			return 1
		}
	case '+', '-':
		if d := countDigits(s[1:]); d == 4 {
			return 5
		} else if d == 2 && len(s) >= 6 && s[3] == ':' && countDigits(s[4:]) == 2 {
			return 6
		}
	}
	return 0
}

// Bounds of the search for a level behind a date.
const (
	maxDatedFields = 5
	maxDatedField  = 64 // bytes
)

// parseDated recognises what follows a date that begins the line: a level at once, or behind fields that can only
// be a logger, a thread or a place in the source. Without a level the record has none.
func parseDated(s string) record {
	rest := s
	for i := range maxDatedFields {
		before := rest
		rest = strings.TrimLeft(rest, " \t|>-,:")
		if rest == "" {
			break
		}
		skipped := before[:len(before)-len(rest)]
		if len(rest) > 3 && rest[0] == '[' && strings.HasPrefix(rest[2:], ":onnxruntime") {
			// "[E:onnxruntime:id, file.cc:12 function] text"
			if end := strings.IndexByte(rest[:min(len(rest), maxFileLine)], ']'); end > 0 {
				return record{start: true, level: levelOfLetter(rest[1]), text: strings.TrimPrefix(rest[end+1:], " ")}
			}
		}
		if c := rest[0]; c == '[' || c == '<' || c == '(' {
			end := strings.IndexAny(rest[:min(len(rest), maxDatedField)], "]>)")
			if end < 2 {
				break
			}
			inside := rest[1:end]
			if isTensorRT(inside) {
				r, _ := parseTensorRT(rest[end+1:])
				return orDated(r, s)
			}
			if l := levelOfAnyCase(strings.TrimSpace(inside)); l != levelNone {
				return record{start: true, level: l, text: afterLevel(rest[end+1:])}
			}
			if len(inside) == 1 && levelOfLetter(inside[0]) != levelNone {
				return record{start: true, level: levelOfLetter(inside[0]), text: afterLevel(rest[end+1:])}
			}
			rest = rest[end+1:]
			continue
		}
		if i == 0 && len(rest) > 2 && rest[1] == ' ' && skipped == ": " { // TensorFlow: "date: E file.cc:12] text"
			if text, ok := afterFileLine(rest[2:]); ok {
				return record{start: true, level: levelOfLetter(rest[0]), text: text}
			}
		}
		token := rest[:fieldLen(rest)]
		behind := rest[len(token):]
		if levelOfWord(token) != levelNone && isDelimited(behind, true) {
			if text, ok := vllmText(behind); ok { // vLLM's record, to which a log driver added its own time
				return record{start: true, level: levelOfWord(token), text: text}
			}
			return record{start: true, level: levelOfWord(token), text: afterLevel(behind)}
		}
		if l := levelOfAnyCase(token); l != levelNone && isDelimited(behind, false) {
			return record{start: true, level: l, text: afterLevel(behind)}
		}
		if !isLoggerField(token, behind) {
			break
		}
		rest = behind
	}
	return orDated(record{}, s)
}

// orDated is r, or the record without a level whose text follows the date.
func orDated(r record, s string) record {
	if r.start {
		return r
	}
	text := strings.TrimLeft(s, " \t")
	if text != "" && text[0] == '{' { // a structured record to which a log driver added its own time
		if r, ok := parseJSON(text); ok {
			return r
		}
	}
	if r, ok := parseLogfmt(text); ok {
		return r
	}
	return record{start: true, text: text}
}

// fieldLen is the length of the field that s starts with.
func fieldLen(s string) int {
	for i := range min(len(s), maxDatedField) {
		switch s[i] {
		case ' ', '\t', '|', ':', ']', '[', ',':
			return i
		}
	}
	return min(len(s), maxDatedField)
}

// isDelimited reports whether a level word may end before s. A word in capitals needs little; one in small letters
// could be prose.
func isDelimited(s string, capitals bool) bool {
	if s == "" {
		return true
	}
	switch s[0] {
	case '\t', ':', '|', ']':
		return true
	case ' ':
		t := strings.TrimLeft(s, " ")
		return capitals || strings.HasPrefix(t, "|") || strings.HasPrefix(t, "- ")
	case '[':
		return capitals
	}
	return false
}

// isLoggerField reports whether a field before the level can be one of a logger's own: a module, a pid, a thread,
// a place in the source.
func isLoggerField(token, behind string) bool {
	if token == "" {
		return false
	}
	if countDigits(token) == len(token) || strings.ContainsAny(token, "._") || strings.HasPrefix(behind, ":") {
		return true
	}
	t := strings.TrimLeft(behind, " ")
	return len(t) < len(behind) && (strings.HasPrefix(t, "- ") || strings.HasPrefix(t, "|")) || strings.HasPrefix(behind, "|")
}

// afterLevel is the text behind a level word, less separators and the place in the source.
func afterLevel(s string) string {
	t := strings.TrimLeft(s, " \t|>:]")
	t = strings.TrimPrefix(t, "- ")
	if i := strings.Index(t[:min(len(t), maxFileLine)], " - "); i > 0 && strings.Contains(s[:len(s)-len(t)], "|") {
		// loguru: "| ERROR    | module:function:12 - text"
		if place := t[:i]; strings.Count(place, ":") >= 2 && endsInLine(place) {
			return t[i+len(" - "):]
		}
	}
	if i := strings.IndexByte(t[:min(len(t), maxFileLine)], '\t'); i > 0 && endsInLine(t[:i]) {
		return t[i+1:] // zap: "error<tab>file.go:12<tab>text"
	}
	if i := strings.Index(t[:min(len(t), maxFileLine)], " -- "); i > 0 && endsInLine(t[:i]) {
		return t[i+len(" -- "):] // Ray: "ERROR worker.py:427 -- text"
	}
	return t
}

// afterCaller drops a leading "file.cc:12: " from a text.
func afterCaller(s string) string {
	i := strings.Index(s[:min(len(s), maxFileLine)], ": ")
	if i > 0 && endsInLine(s[:i]) && !strings.Contains(s[:i], " ") {
		return s[i+2:]
	}
	return s
}
