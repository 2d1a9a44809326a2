package console

import (
	"strings"
)

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
