package console

import (
	"strings"
)

// isEngineFailure recognises the sentences by which engines that print no level report a failure.
func isEngineFailure(text string) bool {
	switch text[0] {
	case 'R':
		if strings.HasPrefix(text, "Received sigquit from a child") ||
			strings.HasPrefix(text, "Rank ") && strings.Contains(text, " scheduler is dead") {
			return true
		}
	case 'I':
		if strings.HasPrefix(text, "Initialization failed. ") {
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

// llamaFunctions begin the names of the functions that llama.cpp's plain log lines start with.
var llamaFunctions = [...]string{"llama_", "ggml_", "gguf_", "common_", "srv", "slot", "main", "load_", "clip_", "mtmd_", "cuda"}

// llamaFailures are what llama.cpp says behind the function when it fails; its plain format has no levels.
var llamaFailures = [...]string{
	"failed to load model", "failed to load the model", "error loading model", "unable to load model",
	"failed to initialize the context", "failed to create context", "failed to create llama_context",
	"failed to allocate", "failed to decode", "exiting due to ", "failed to initialize CUDA", "failed to open GGUF file", noSocket,
}

// noSocket is what llama-server says when its port is taken; newer ones say it without the function's name.
const noSocket = "couldn't bind HTTP server socket"

// isLlamaFailure recognises "function: failed to load model" lines of llama.cpp without level letters.
func isLlamaFailure(text string) bool {
	switch text[0] {
	case 'l', 'g', 'c', 's', 'm':
	default:
		return false
	}
	if strings.HasPrefix(text, noSocket) {
		return true
	}
	function, rest, ok := strings.Cut(text[:min(len(text), maxFileLine)], ": ")
	if !ok || rest == "" {
		return false
	}
	switch rest[0] {
	case 'c', 'f', 'e', 'u':
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
