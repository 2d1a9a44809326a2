package console

import (
	"strings"
)

// maxProgram bounds the program part of a command's error line, characters.
const maxProgram = 80

// isErrorLine recognises the error line of a command or a compiler: "error: text" in any case, "program: error: text",
// "file:line: error: text", and the like.
func isErrorLine(text string) bool {
	for colon := 0; colon < min(len(text), 4*maxProgram); colon++ {
		i := strings.IndexByte(text[colon:], ':')
		if i < 0 {
			return false
		}
		colon += i
		n := errorWord(text[:colon])
		if n == 0 {
			continue
		}
		before, after := text[:colon-n], text[colon+1:]
		if before == "" {
			return !isZeroCount(after)
		}
		if program, ok := strings.CutSuffix(before, ": "); ok && isProgram(program) {
			return !isMetric(after)
		}
	}
	return false
}

// errorWord is the length of the word (error, fatal, panic, ...) that s ends with, 0 if there is none.
func errorWord(s string) int {
	if s == "" {
		return 0
	}
	switch s[len(s)-1] {
	case 'r', 'R', 'l', 'L', 'c', 'C':
	default:
		return 0
	}
	for _, word := range [...]string{"fatal error", "error", "fatal", "panic"} {
		if len(s) >= len(word) && strings.EqualFold(s[len(s)-len(word):], word) {
			return len(word)
		}
	}
	if strings.EqualFold(s, "err") {
		return len(s)
	}
	return 0
}

// isProgram reports whether s can be the program part of an error line: no colon, except in "file:line".
func isProgram(s string) bool {
	if s == "" || len(s) > maxProgram && len([]rune(s)) > maxProgram {
		return false
	}
	i := strings.IndexByte(s, ':')
	if i < 0 {
		return true
	}
	for place := range strings.SplitSeq(s[i+1:], ":") {
		if place == "" || countDigits(place) != len(place) {
			return false
		}
	}
	return i > 0 && strings.IndexByte(s[:i], ' ') < 0
}

// isZeroCount reports whether text says that there was nothing: "0", "0 problems".
func isZeroCount(text string) bool {
	text = strings.TrimLeft(text, " \t")
	n := numberLen(text)
	if n == 0 {
		return false
	}
	if strings.Trim(text[:n], "0.%") == "" {
		return true
	}
	return n == len(text) && strings.ContainsAny(text, ".%")
}

// isMetric reports whether text is a measured value: "0.013", "0.2, loss: 1.4", "rate: 0%", "none".
func isMetric(text string) bool {
	text = strings.TrimSpace(text)
	if n := numberLen(text); n > 0 {
		return n == len(text) || strings.IndexByte(",|;/)", text[n]) >= 0 || isZeroCount(text)
	}
	switch strings.ToLower(text[:min(len(text), 5)]) {
	case "none", "nan", "null", "false":
		return len(text) <= 5
	}
	i := strings.LastIndexAny(text[:min(len(text), 40)], ":=")
	if i <= 0 {
		return false
	}
	value := strings.TrimLeft(text[i+1:], " ")
	n := numberLen(value)
	return n > 0 && n == len(value)
}

// numberLen is the length of the decimal number, with an optional exponent or percent sign, that s starts with.
func numberLen(s string) int {
	n := 0
	if n < len(s) && (s[n] == '-' || s[n] == '+') {
		n++
	}
	d := countDigits(s[n:])
	n += d
	if n < len(s) && s[n] == '.' {
		f := countDigits(s[n+1:])
		n += 1 + f
		d += f
	}
	if d == 0 {
		return 0
	}
	if n+1 < len(s) && (s[n] == 'e' || s[n] == 'E') {
		e := n + 1
		if s[e] == '-' || s[e] == '+' {
			e++
		}
		if x := countDigits(s[e:]); x > 0 {
			n = e + x
		}
	}
	if n < len(s) && s[n] == '%' {
		n++
	}
	if n < len(s) && (isWord(s[n]) || s[n] == '.' && n+1 < len(s) && isDigit(s[n+1])) {
		return 0
	}
	return n
}
