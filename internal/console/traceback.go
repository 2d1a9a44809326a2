package console

import (
	"strings"
)

// Sentences by which Python ties two tracebacks together. PyTorch's spawn has "-- Process 1 terminated with ...".
const (
	duringHandling = "During handling of the above exception, another exception occurred:"
	directCause    = "The above exception was the direct cause of the following exception:"
)

func isConnector(content string) bool {
	content = strings.TrimRight(content, " \t")
	return content == duringHandling || content == directCause ||
		strings.HasPrefix(content, "-- Process ") && strings.HasSuffix(content, " terminated with the following error:")
}

// exceptionEndings are what the names of exception classes end with.
var exceptionEndings = []string{"Error", "Exception", "Warning", "Interrupt", "Exit", "Fault", "Timeout"}

// nameLen is the length of the dotted identifier that s starts with.
func nameLen(s string) int {
	n := 0
	for n < len(s) && (isWord(s[n]) || s[n] == '.') {
		n++
	}
	return n
}

// hasExceptionEnding reports whether a dotted name is that of an exception class by its ending.
func hasExceptionEnding(name string) bool {
	for _, ending := range exceptionEndings {
		if len(name) > len(ending) && strings.HasSuffix(name, ending) {
			return true
		}
	}
	return false
}

// isExceptionLine recognises the last line of a traceback by the exception's name.
func isExceptionLine(content string) bool {
	return hasExceptionEnding(content[:nameLen(content)])
}

// isOddExceptionLine recognises a last line whose exception has a name of another kind ("queue.Empty",
// "StopIteration: 5"). It holds only for the line right behind a frame.
func isOddExceptionLine(content string) bool {
	n := nameLen(content)
	if n == 0 || isDigit(content[0]) || content[n-1] == '.' {
		return false
	}
	if rest := content[n:]; rest != "" && rest[0] != ':' && rest[0] != '(' {
		return false
	}
	return strings.Contains(content[:n], ".") || content[0] >= 'A' && content[0] <= 'Z' || content[0] == '_'
}

// isStandaloneException recognises an exception's line that no traceback precedes: "RuntimeError: CUDA error: ...".
// It must name a class, not a warning, and say something that is not a measured value.
func isStandaloneException(text string) bool {
	c := text[0]
	if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_') {
		return false
	}
	colon := strings.IndexByte(text, ':')
	if colon < 5 || colon > maxFileLine {
		return false
	}
	name := text[:colon]
	if i := strings.IndexByte(name, '('); i > 0 && name[len(name)-1] == ')' { // "RayTaskError(ValueError): ..."
		name = name[:i]
	}
	switch name[len(name)-1] { // the last letters of the endings
	case 'r', 'n', 't':
	default:
		return false
	}
	if !hasExceptionEnding(name) || nameLen(name) != len(name) {
		return false
	}
	class := name[strings.LastIndexByte(name, '.')+1:]
	if class == "" || class[0] >= 'a' && class[0] <= 'z' || len(class) < 5 {
		return false
	}
	rest := text[colon+1:]
	return rest != "" && rest[0] == ' ' && !isMetric(rest)
}

// lastError announces, in NCCL's text of an error, the line that says what happened.
const lastError = "Last error:"

// isErrorDetail recognises the further lines of NCCL's text of an error.
func isErrorDetail(content string) bool {
	if content == lastError {
		return true
	}
	name, _, ok := strings.Cut(content, "Error: ")
	return ok && strings.HasPrefix(name, "nccl") && nameLen(name) == len(name)
}

// hints are lines that follow an exception's text and say nothing new.
var hints = []string{
	"CUDA kernel errors might be asynchronously reported",
	"For debugging consider passing ",
	"Compile with `TORCH_USE_CUDA_DSA`",
	"Search for `cuda",
	"Device-side assertion tracking was not enabled",
	"Exception raised from ",
	"frame #",
	"HIP kernel errors might be asynchronously reported",
	"note: run with `RUST_BACKTRACE",
	"note: Some details are omitted",
	"Extension modules: ",
	`"""`,
	"'''",
}

func isHint(content string) bool {
	for _, h := range hints {
		if strings.HasPrefix(content, h) {
			return true
		}
	}
	return false
}

// isNativeFrame recognises a frame of a C or C++ stack trace: "#1 0x7f.. in f", "frame #0: ...", "2  0x7f.. f",
// "@ 0x7f.. f".
func isNativeFrame(content string) bool {
	s := strings.TrimLeft(content, " \t")
	s = strings.TrimPrefix(s, "frame ")
	s = strings.TrimPrefix(s, "@ ")
	if rest, ok := strings.CutPrefix(s, "#"); ok {
		s = rest
	}
	if len(s) == len(content) {
		// An unmarked frame must begin with its number.
		if n := countDigits(s); n == 0 || n > 3 {
			return false
		}
	}
	s = strings.TrimLeft(s[countDigits(s):], ": \t")
	return strings.HasPrefix(s, "0x")
}

// isGroupHeader recognises the first line of a boxed traceback, whatever box it is in.
func isGroupHeader(content string) bool {
	return strings.HasSuffix(content, groupHeader) && strings.Trim(strings.TrimSuffix(content, groupHeader), " \t+|-") == ""
}
