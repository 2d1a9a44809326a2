package engines

import (
	"slices"
	"strings"
)

type vllm struct{}

func (vllm) name() string { return VLLM }

func (vllm) command(base string, _ []string) bool { return base == "vllm" }

func (vllm) module(name string) bool {
	return name == "vllm" || name == "vllm.scripts" || strings.HasPrefix(name, "vllm.entrypoints.")
}

// disableLogStats is the one flag of vLLM that switches its metrics off.
const disableLogStats = "--disable-log-stats"

func (vllm) adjust(argv []string, _ arguments) []string {
	if !slices.Contains(argv, disableLogStats) {
		return argv
	}
	return slices.DeleteFunc(slices.Clone(argv), func(word string) bool { return word == disableLogStats })
}

func (vllm) page(own arguments, _ variables) page {
	p := pythonServerPage(own, 8000, "--uds")
	// The spelling with underscores is the same flag to vLLM, but only the other one is ours to remove.
	if own.has("--disable_log_stats") || readConfig(own).noStats {
		p.warnings = append(p.warnings, "vLLM is told not to keep statistics (disable_log_stats), so engine metrics will be missing")
	}
	return p
}

// pythonServerPage is what vLLM and SGLang have in common: --host, --port and the same keys in the file that
// --config names; what the command line says wins. socket is the option that replaces the port by a socket file.
func pythonServerPage(own arguments, defaultPort int, socket string) page {
	config := readConfig(own)
	p := page{path: metricsPath, port: own.port(config.port), notes: config.notes}
	host, ok := own.value("--host")
	if !ok {
		host = config.host
	}
	p.host = reachable(host, loopback)
	if socket != "" && (own.has(socket) || config.socket) && p.port == 0 {
		p.notes = append(p.notes, "the engine listens on a socket file, so it has no metrics page on a port")
		return p
	}
	if p.port == 0 {
		p.port = defaultPort
	}
	if own.has("--ssl-keyfile") || own.has("--ssl-certfile") {
		p.warnings = append(p.warnings, "the engine serves TLS, so its metrics may be missing: its page is read by plain http")
	}
	return p
}
