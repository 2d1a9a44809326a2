package console

import (
	"strings"
)

// kind says what an open entry is, and so what belongs to it.
type kind uint8

const (
	// kindMessage is a message that a traceback may follow.
	kindMessage kind = iota
	// kindTraceback is a Python traceback that has begun.
	kindTraceback
	// kindGroup is the boxed traceback of an exception group.
	kindGroup
	// kindLine is a line that stands for itself.
	kindLine
	// kindNative is a crash report of C or C++ with details and stack frames.
	kindNative
	// kindFault is Python's fault handler.
	kindFault
	// kindCUDA is a CUDA error, which llama.cpp prints as a block.
	kindCUDA
	// kindRust is a Rust panic.
	kindRust
	// kindMPI is a crash report of Open MPI.
	kindMPI
)

// opening is an entry that a line begins.
type opening struct {
	kind    kind
	message string
	// first is the first line of the traceback, if the opening line belongs there.
	first string
	pid   string
}

const (
	tracebackHeader = "Traceback (most recent call last):"
	groupHeader     = "Exception Group Traceback (most recent call last):"
)

// open decides whether a record or a raw line begins an entry.
func open(r *record) (opening, bool) {
	switch {
	case r.level == levelError:
		return openError(r), true
	case r.level != levelNone || isBlank(r.text):
		return opening{}, false
	}
	o, ok := openUnlevelled(r)
	if r.pid != "" {
		o.pid = r.pid
	}
	return o, ok
}

func openError(r *record) opening {
	o := opening{kind: kindMessage, message: r.text, first: r.exception, pid: r.pid}
	switch {
	case r.exception != "":
		o.kind = kindLine
	case strings.Contains(r.text, tracebackHeader):
		o.kind = kindTraceback
		if strings.HasPrefix(r.text, tracebackHeader) {
			o.message = tracebackHeader
		}
	default:
		if special, ok := openMarker(r.text, signs{}); ok {
			switch special.kind {
			case kindNative, kindFault, kindRust, kindCUDA:
				o.kind = special.kind
			}
		}
	}
	return o
}

// signs are what the colons of a text point to; each wants a closer look.
type signs struct {
	// errorWord: a colon behind what may be "error" or the like.
	errorWord bool
	// runtime: a colon before what may be the name of a GPU runtime.
	runtime bool
	// shell: ": line ".
	shell bool
	// process: "host:pid:thread ".
	process bool
	// glued is where a vLLM record begins, -1 if there is none.
	glued int
}

// maxScan bounds how far into a text signs are looked for, bytes.
const maxScan = 1024

// scanColons looks at each colon of a text once, so that the many lines without signs cost little.
func scanColons(s string) signs {
	found := signs{glued: -1}
	limit := min(len(s), maxScan)
	for c := 0; c < limit; c++ {
		i := strings.IndexByte(s[c:limit], ':')
		if i < 0 {
			break
		}
		c += i
		if c > 0 {
			switch s[c-1] {
			case 'r', 'R', 'l', 'L', 'c', 'C':
				found.errorWord = true
			}
		}
		if c+2 >= limit {
			break
		}
		switch next := s[c+1]; {
		case next == ' ':
			switch s[c+2] {
			case 'C', 'c', 'H', 'R', 'N':
				found.runtime = true
			case 'l':
				found.shell = found.shell || strings.HasPrefix(s[c+2:], "line ")
			}
		case isDigit(next):
			if found.glued < 0 {
				found.glued = vllmBefore(s, c)
			}
			found.process = found.process || isProcess(s[c+1:])
		}
	}
	return found
}

// isProcess recognises "pid:thread ".
func isProcess(s string) bool {
	n := countDigits(s)
	if n+1 >= len(s) || s[n] != ':' {
		return false
	}
	m := countDigits(s[n+1:])
	end := n + 1 + m
	return m > 0 && end < len(s) && s[end] == ' '
}

// openUnlevelled looks for an error in text without a level: a raw line, or a record of a logger that prints none.
func openUnlevelled(r *record) (opening, bool) {
	text := r.text
	if strings.HasSuffix(text, "call last):") {
		switch {
		case strings.HasPrefix(text, tracebackHeader):
			o := opening{kind: kindTraceback, message: tracebackHeader}
			if !r.start {
				o.first = tracebackHeader
			}
			return o, true
		case strings.HasSuffix(text, "+ "+groupHeader) && isBlank(strings.TrimSuffix(text, "+ "+groupHeader)):
			return opening{kind: kindGroup, message: groupHeader, first: text}, true
		case strings.HasSuffix(text, tracebackHeader) && !isIndented(text):
			return opening{kind: kindTraceback, message: text}, true
		}
	}
	if r.start && isEngineFailure(text) {
		return opening{kind: kindMessage, message: text}, true
	}
	if r.signs.errorWord && isErrorLine(text) {
		return opening{kind: kindMessage, message: text}, true
	}
	if isStandaloneException(text) {
		return opening{kind: kindLine, message: text}, true
	}
	return openMarker(text, r.signs)
}

// isEngineFailure recognises the sentences by which engines that print no level report a failure.
func isEngineFailure(text string) bool {
	switch text[0] {
	case 'R':
		if strings.HasPrefix(text, "Received sigquit from a child") {
			return true
		}
	case 'H':
		if strings.HasPrefix(text, "Health check failed") {
			return true
		}
	case 'D':
		if strings.HasPrefix(text, "Dumping requests before crash") {
			return true
		}
	case 'S':
		if strings.HasPrefix(text, "SIGQUIT received") ||
			strings.HasPrefix(text, "Subprocess ") && strings.Contains(text, "crashed with exit code") {
			return true
		}
	case 'W':
		if strings.HasPrefix(text, "Watchdog timeout") {
			return true
		}
	}
	return strings.Contains(text, "hit an exception") || strings.HasPrefix(text, "Scheduler watchdog timeout")
}

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

// llamaFunctions begin the names of the functions that llama.cpp's plain log lines start with.
var llamaFunctions = [...]string{"llama_", "ggml_", "gguf_", "common_", "srv", "slot", "main", "load_", "clip_", "mtmd_", "cuda"}

// llamaFailures are what llama.cpp says behind the function when it fails; its plain format has no levels.
var llamaFailures = [...]string{
	"failed to load model", "failed to load the model", "error loading model", "unable to load model",
	"failed to initialize the context", "failed to create context", "failed to create llama_context",
	"failed to allocate", "failed to decode", "exiting due to ",
}

// isLlamaFailure recognises "function: failed to load model" lines of llama.cpp without level letters.
func isLlamaFailure(text string) bool {
	switch text[0] {
	case 'l', 'g', 'c', 's', 'm':
	default:
		return false
	}
	function, rest, ok := strings.Cut(text[:min(len(text), maxFileLine)], ": ")
	if !ok || rest == "" {
		return false
	}
	switch rest[0] {
	case 'f', 'e', 'u':
		ok = hasAnyPrefix(rest, llamaFailures[:])
	default:
		ok = text[0] == 'g' && strings.Contains(rest, "cudaMalloc failed") || strings.HasSuffix(function, "send_error")
	}
	return ok && hasAnyPrefix(text, llamaFunctions[:])
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
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

// cudaFailures are what follows the name of a runtime or library in its error reports.
var cudaFailures = []string{"error", "failure", "driver error", "runtime error", "out of memory", "API error"}

// cudaRuntimes are the names that such a report starts with.
var cudaRuntimes = []string{"CUDA ", "Cuda ", "cuda ", "HIP ", "ROCm ", "NCCL ", "cuBLAS ", "CUBLAS ", "cuDNN ", "CUDNN "}

// isCUDAError recognises "CUDA error: text", at the start of the line or behind "place: ".
func isCUDAError(text string) bool {
	if isIndented(text) {
		return false
	}
	if isCUDAReport(text) {
		return true
	}
	for from := 0; from < min(len(text), maxFileLine); {
		i := strings.Index(text[from:], ": ")
		if i < 0 {
			return false
		}
		from += i + 2
		if isCUDAReport(text[from:]) {
			return !strings.HasPrefix(text, "note:") && !strings.HasPrefix(text, "warning:")
		}
	}
	return false
}

func isCUDAReport(s string) bool {
	if len(s) < 9 {
		return false
	}
	switch s[0] {
	case 'C', 'c', 'H', 'R', 'N':
	default:
		return false
	}
	for _, name := range cudaRuntimes {
		rest, ok := strings.CutPrefix(s, name)
		if !ok {
			continue
		}
		for _, failure := range cudaFailures {
			if len(rest) < len(failure) || !strings.EqualFold(rest[:len(failure)], failure) {
				continue
			}
			return isCUDADetail(rest[len(failure):])
		}
	}
	return false
}

// isCUDADetail reports whether s can follow "CUDA error" in a report: nothing, a reason, a number, a place.
func isCUDADetail(s string) bool {
	if s == "" {
		return true
	}
	switch s[0] {
	case ':':
		t := strings.ToLower(strings.TrimSpace(s[1:]))
		return t == "" || !isMetric(t) && t != "no error" && t != "success"
	case '.', '\'', '(':
		return true
	case ' ':
		t := strings.TrimLeft(s, " ")
		if n := countDigits(t); n > 0 {
			return strings.Trim(t[:n], "0") != ""
		}
		if strings.HasPrefix(t, "at ") || strings.HasPrefix(t, "in ") {
			return true
		}
		return t != "" && (t[0] == '\'' || t[0] == '(' || endsInLine(strings.TrimRight(t[:fileLen(t)], ":")))
	}
	return false
}

// fileLen is the length of the word that s starts with.
func fileLen(s string) int {
	if i := strings.IndexByte(s, ' '); i >= 0 {
		return i
	}
	return len(s)
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
