package console

import (
	"strings"
)

// pythonFailures are what an interpreter of Python says when it cannot start a program.
var pythonFailures = []string{
	"No module named ", "Error while finding module specification for ", "can't open file ", "can't find '__main__' module in ",
}

// isStartFailure recognises how Python and shells say that there is no such program, and the dynamic loader that a
// library of it is missing: "/usr/bin/python3: No module named vllm", "run.sh: line 3: vllm: command not found",
// "sh: 1: vllm: not found", "./a: error while loading shared libraries: libcuda.so.1: cannot open shared object file".
func isStartFailure(text string) bool {
	if isLoaderFailure(text) {
		return true
	}
	before, found := strings.CutSuffix(text, ": not found")
	if found { // dash and busybox; others say so of files and pages
		if i := strings.LastIndex(before, ": "); i > 0 {
			before = before[:i]
			n := strings.LastIndexByte(before, ' ')
			return n > 0 && before[n-1] == ':' && n+1 < len(before) && countDigits(before[n+1:]) == len(before)-n-1
		}
		return false
	}
	if before, found = strings.CutSuffix(text, ": command not found"); found {
		return strings.Contains(before, ": ") && !isIndented(text)
	}
	if c := text[0]; c != '/' && c != 'p' && c != '.' {
		return false
	}
	program, rest, ok := strings.Cut(text[:min(len(text), maxFileLine)], ": ")
	if !ok {
		return false
	}
	version, ok := strings.CutPrefix(program[strings.LastIndexByte(program, '/')+1:], "python")
	return ok && strings.Trim(version, "0123456789.") == "" && hasAnyPrefix(rest, pythonFailures)
}

// isLoaderFailure recognises what the dynamic loader says before it ends a program.
func isLoaderFailure(text string) bool {
	colon := strings.IndexByte(text[:min(len(text), maxFileLine)], ':')
	if colon < 0 || colon+2 >= len(text) {
		return false
	}
	switch text[colon+2] {
	case 'e', 's', 'v':
	default:
		return false
	}
	program, rest, ok := strings.Cut(text, ": ")
	if !ok || strings.ContainsAny(program, " \t\"'`(") { // prose or source text
		return false
	}
	return strings.HasPrefix(rest, "error while loading shared libraries: ") || strings.HasPrefix(rest, "symbol lookup error: ") ||
		strings.HasPrefix(rest, "version `") && strings.Contains(rest, "' not found (required by ")
}
