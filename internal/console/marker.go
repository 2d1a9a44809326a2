package console

import (
	"strings"
)

// openMarker recognises what libraries, runtimes and the kernel print without a level.
func openMarker(text string, found signs) (opening, bool) {
	if text == "" {
		return opening{}, false
	}
	if o, ok := openAnchored(text); ok {
		return o, true
	}
	switch {
	case isCUDAReport(text) || found.runtime && isCUDAError(text):
		return opening{kind: kindCUDA, message: text}, true
	case found.shell && isShellReport(text):
		return opening{kind: kindLine, message: text}, true
	case isAssertion(text):
		return opening{kind: kindNative, message: text}, true
	case isStartFailure(text):
		return opening{kind: kindLine, message: text}, true
	}
	if found.process {
		if pid, message, ok := ncclWarning(text); ok {
			return opening{kind: kindLine, message: message, pid: pid}, true
		}
	}
	return opening{}, false
}

// crashWords are lines that a shell or libc prints when a process died, whole or with "(core dumped)".
var crashWords = map[string]bool{
	"Aborted": true, "Bus error": true, "Floating point exception": true, "Illegal instruction": true,
	"Killed": true, "Segmentation fault": true, "Bad system call": true, "Trace/breakpoint trap": true,
}

// crashPrefixes begin lines of crash reports, by their first byte.
var crashPrefixes = [256][]struct {
	prefix string
	kind   kind
}{
	't': {{"terminate called ", kindNative}, {"thread '", kindRust}},
	'l': {{"libc++abi: terminating", kindNative}},
	'F': {{"Fatal Python error: ", kindFault}},
	'!': {{"!!!!!!! Segfault encountered", kindNative}},
	'd': {{"double free or corruption", kindNative}},
	'f': {{"free(): ", kindNative}, {"fatal error: ", kindMessage}},
	'm': {
		{"malloc(): ", kindNative}, {"malloc_consolidate(): ", kindNative}, {"munmap_chunk(): ", kindNative},
		{"mpirun noticed that process rank ", kindLine},
	},
	'r': {{"realloc(): ", kindNative}},
	'c': {{"corrupted size vs. prev_size", kindNative}, {"corrupted double-linked list", kindNative}},
	'M': {{"MPI_ABORT was invoked on rank ", kindLine}},
	'N': {{"NVRM: Xid (", kindLine}},
	'O': {{"Out of memory: Killed process ", kindLine}},
	'*': {
		{"*** stack smashing detected ***", kindNative}, {"*** buffer overflow detected ***", kindNative},
		{"*** Error in `", kindNative}, {"*** SIG", kindNative},
	},
	'n': {{"nvcc fatal ", kindLine}, {"nvcc error ", kindLine}, {"nvlink error ", kindLine}, {"nvlink fatal ", kindLine}},
	'p': {{"ptxas fatal ", kindLine}, {"ptxas error ", kindLine}},
	'o': {{"oom-kill:", kindLine}},
}

// openAnchored recognises crash reports by how they begin.
func openAnchored(text string) (opening, bool) {
	for _, p := range crashPrefixes[text[0]] {
		if !strings.HasPrefix(text, p.prefix) {
			continue
		}
		switch p.kind {
		case kindRust:
			if !strings.Contains(text, "panicked at") {
				continue
			}
		case kindNative:
			if p.prefix == "*** SIG" && !strings.Contains(text, "received by PID") {
				continue
			}
		}
		return opening{kind: p.kind, message: text}, true
	}
	if c := text[0]; c >= 'A' && c <= 'T' && len(text) < 64 {
		word := strings.TrimSuffix(strings.TrimRight(text, " \t"), " (core dumped)")
		if crashWords[word] {
			return opening{kind: kindLine, message: text}, true
		}
	}
	if text[0] == '[' {
		return openProcessReport(text)
	}
	if isLlamaFailure(text) {
		return opening{kind: kindLine, message: text}, true
	}
	return opening{}, false
}

// openProcessReport recognises the crash reports of Open MPI and UCX, "[host:pid...] text".
func openProcessReport(text string) (opening, bool) {
	end := strings.IndexByte(text[:min(len(text), maxBracket)], ']')
	if end < 0 {
		return opening{}, false
	}
	rest := strings.TrimLeft(text[end+1:], " ")
	_, pid, _ := strings.Cut(text[1:end], ":")
	pid = pid[:countDigits(pid)]
	switch {
	case strings.HasPrefix(rest, "*** Process received signal ***"):
		return opening{kind: kindMPI, message: rest, first: text[:end+1], pid: pid}, true
	case strings.HasPrefix(rest, "Caught signal "):
		return opening{kind: kindNative, message: rest, pid: pid}, true
	case strings.Contains(rest, " UCX  ERROR "), strings.HasPrefix(rest, "PRTE ERROR: "), strings.HasPrefix(rest, "PMIX ERROR: "):
		return opening{kind: kindLine, message: rest}, true
	case strings.HasPrefix(rest, "NVRM: Xid ("), strings.HasPrefix(rest, "Out of memory: Killed process "):
		return opening{kind: kindLine, message: text}, true
	}
	return opening{}, false
}

// ncclWarning recognises "host:pid:thread [device] NCCL WARN text", which is how NCCL reports errors.
func ncclWarning(text string) (pid, message string, ok bool) {
	i := strings.Index(text, "NCCL WARN ")
	if i < 0 || i > 0 && text[i-1] != ' ' {
		return "", "", false
	}
	host, _, _ := strings.Cut(text[:i], " ")
	if fields := strings.Split(host, ":"); len(fields) == 3 && countDigits(fields[1]) == len(fields[1]) {
		pid = fields[1]
	}
	return pid, text[i:], true
}

// isAssertion recognises the assertion failures of C libraries, CUDA kernels and ggml.
func isAssertion(text string) bool {
	if strings.HasPrefix(text, "Assertion failed: ") {
		return true
	}
	if !strings.HasSuffix(strings.TrimSuffix(text, "."), " failed") {
		return false
	}
	if strings.Contains(text, "_ASSERT(") {
		return true
	}
	i := strings.Index(text, "Assertion ")
	if i < 0 || i > 0 && text[i-1] != ' ' {
		return false
	}
	return strings.HasPrefix(text[i+len("Assertion "):], "`")
}

// isShellReport recognises how a shell tells of a process that a signal ended: "sh: line 3:  77 Killed   command".
func isShellReport(text string) bool {
	_, rest, ok := strings.Cut(text, ": line ")
	if !ok {
		return false
	}
	rest = strings.TrimLeft(strings.TrimPrefix(rest[countDigits(rest):], ":"), " ")
	n := countDigits(rest)
	if n == 0 {
		return false
	}
	word, _, _ := strings.Cut(strings.TrimLeft(rest[n:], " "), "  ")
	return crashWords[strings.TrimSuffix(word, " (core dumped)")]
}
