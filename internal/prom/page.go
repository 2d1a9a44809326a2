package prom

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"
)

// maxLine is the most bytes of a line; longer ones are malformed.
const maxLine = 64 << 10

const openMetricsType = "application/openmetrics-text"

// isOpenMetrics reports whether a Content-Type announces OpenMetrics text, and the charset it names in lower case.
func contentType(header string) (openMetrics bool, charset string) {
	media, params, err := mime.ParseMediaType(header)
	if err != nil {
		return false, ""
	}
	return media == openMetricsType, strings.ToLower(params["charset"])
}

// text returns the body as valid UTF-8 text. A body that is one JSON string is unquoted: some builds of llama.cpp served
// their page so. The body may be changed in place.
func text(body []byte, charset string) []byte {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) > 0 && start[0] == '"' {
		var inner string
		if json.Unmarshal(start, &inner) == nil {
			return []byte(inner)
		}
	}
	if utf8.Valid(body) {
		return body
	}
	if charset == "iso-8859-1" || charset == "latin1" {
		wide := make([]byte, 0, len(body)+len(body)/8)
		for _, c := range body {
			wide = utf8.AppendRune(wide, rune(c))
		}
		return wide
	}
	return bytes.ToValidUTF8(body, []byte("\uFFFD"))
}

// looksLikeMetrics reports whether the first line that says something is one of a metrics page: a HELP or TYPE
// comment or, behind other comments, a sample.
func looksLikeMetrics(body []byte) bool {
	for line := range bytes.Lines(body) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
		case line[0] == '#':
			if _, ok := metadataKeyword(line); ok {
				return true
			}
		default:
			return startsSample(line)
		}
	}
	return false
}

// startsSample reports whether a line begins with a name, plain or quoted in braces, and goes on behind a blank.
func startsSample(line []byte) bool {
	if c := line[0]; c == '_' || c == ':' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
		return bytes.IndexAny(line, " \t") > 0
	}
	if !bytes.HasPrefix(line, []byte(`{"`)) {
		return false
	}
	n, closed := skipString(line[1:])
	rest := bytes.TrimLeft(line[1+n:], " \t")
	return closed && len(rest) > 0 && (rest[0] == ',' || rest[0] == '}')
}

var metadataKeywords = [...]string{"HELP", "TYPE", "UNIT"}

// metadataKeyword returns the word HELP, TYPE or UNIT of such a comment.
func metadataKeyword(line []byte) (string, bool) {
	rest := bytes.TrimLeft(line[1:], " \t")
	if len(rest) == len(line)-1 || len(rest) < 5 || rest[4] != ' ' && rest[4] != '\t' {
		return "", false
	}
	for _, word := range metadataKeywords {
		if string(rest[:4]) == word {
			return word, true
		}
	}
	return "", false
}

// lines is a page prepared for the tokenizer: one entry a line, nothing in it that would make the tokenizer run over
// the end of a line or stop early.
type lines struct {
	text  []byte // every line ends with a line feed
	count int
	// malformed is how many lines were left out because they can be no entry, first the first of them.
	malformed int
	first     string
	// dropped is how many lines were left out beyond the limit.
	dropped int
}

// prepare rewrites body in place: blanks around lines, blank lines and plain comments go. At most limit lines are kept.
func prepare(body []byte, openMetrics bool, limit int) lines {
	var l lines
	out := body[:0]
	for line := range bytes.Lines(body) {
		line = bytes.Trim(line, " \t\r\n")
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			if openMetrics && string(line) == "# EOF" {
				break
			}
			if word, ok := metadataKeyword(line); !ok || word == "UNIT" {
				continue
			}
		}
		if l.count == limit {
			l.dropped++
			continue
		}
		if !tokenizable(line) {
			l.reject(line)
			continue
		}
		out = append(append(out, line...), '\n')
		l.count++
	}
	l.text = out
	return l
}

func (l *lines) reject(line []byte) {
	if l.malformed++; l.malformed == 1 {
		l.first = excerpt(line)
	}
}

// tokenizable reports whether a line is of bearable length, without NUL, and with every quote closed in it where a
// quote opens a string.
func tokenizable(line []byte) bool {
	if len(line) > maxLine || bytes.IndexByte(line, 0) >= 0 {
		return false
	}
	if line[0] == '#' {
		// Only a quoted name is a string here; the text of a description is free.
		rest := bytes.TrimLeft(bytes.TrimLeft(line[1:], " \t")[4:], " \t")
		if len(rest) == 0 || rest[0] != '"' {
			return true
		}
		_, closed := skipString(rest)
		return closed
	}
	for rest := line; ; {
		quote := bytes.IndexByte(rest, '"')
		if quote < 0 {
			return true
		}
		n, closed := skipString(rest[quote:])
		if !closed {
			return false
		}
		rest = rest[quote+n:]
	}
}

// skipString returns the length of the quoted string at the start of text.
func skipString(text []byte) (length int, closed bool) {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		}
	}
	return len(text), false
}

// excerpt is a line short enough for a message.
func excerpt(line []byte) string {
	const most = 120
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	if len(line) > most {
		return strings.ToValidUTF8(string(line[:most]), "") + "..."
	}
	return string(line)
}
