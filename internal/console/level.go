package console

import (
	"strings"
)

// level is how grave a record says it is. Critical and fatal are errors.
type level uint8

const (
	levelNone level = iota
	levelDebug
	levelInfo
	levelWarning
	levelError
)

// maxLevelWord is the length of the longest level word.
const maxLevelWord = len("CRITICAL")

// levelOfWord maps a level word in capitals.
func levelOfWord(word string) level {
	switch word {
	case "TRACE", "DEBUG", "VERBOSE":
		return levelDebug
	case "INFO", "NOTICE", "SUCCESS":
		return levelInfo
	case "WARN", "WARNING":
		return levelWarning
	case "ERR", "ERROR", "CRIT", "CRITICAL", "FATAL":
		return levelError
	}
	return levelNone
}

// levelOfAnyCase maps a level word as structured logs spell it.
func levelOfAnyCase(word string) level {
	if len(word) > maxLevelWord {
		return levelNone
	}
	switch upper := strings.ToUpper(word); upper {
	case "PANIC", "DPANIC", "ALERT", "EMERG", "SEVERE":
		return levelError
	default:
		return levelOfWord(upper)
	}
}

// levelOfLetter maps the one-letter levels of glog, TensorRT and llama.cpp.
func levelOfLetter(c byte) level {
	switch c {
	case 'V', 'D':
		return levelDebug
	case 'I':
		return levelInfo
	case 'W':
		return levelWarning
	case 'E', 'F':
		return levelError
	}
	return levelNone
}

// leadingLevel returns the level word in capitals that s starts with, as a whole word, and its length.
func leadingLevel(s string) (level, int) {
	n := 0
	for n < len(s) && s[n] >= 'A' && s[n] <= 'Z' {
		n++
		if n > maxLevelWord {
			return levelNone, 0
		}
	}
	if n < 3 || n < len(s) && isWord(s[n]) {
		return levelNone, 0
	}
	l := levelOfWord(s[:n])
	if l == levelNone {
		return levelNone, 0
	}
	return l, n
}
