package engines

import (
	"slices"
	"strings"
)

type llamaCPP struct{}

func (llamaCPP) name() string { return LlamaCPP }

// The program of all its tools is a server by its first word only.
func (llamaCPP) command(base string, words []string) bool {
	return base == "llama-server" || base == "llama" && len(words) > 0 && (words[0] == "serve" || words[0] == "server")
}

func (llamaCPP) module(string) bool { return false }

func (llamaCPP) adjust(argv []string, own arguments) []string {
	return withFlag(argv, own, "--metrics")
}

// Each option has a variable, which counts where the option is not given.
func (llamaCPP) page(own arguments, env variables) page {
	value := func(option, variable string) (string, bool) {
		if v, ok := own.value(option); ok {
			return v, true
		}
		return env(variable)
	}
	list, _ := value("--host", "LLAMA_ARG_HOST")
	// Of several addresses the first is as good as any: the page is the same.
	addresses := slices.DeleteFunc(strings.Split(list, ","), func(a string) bool { return strings.HasSuffix(a, ".sock") })
	if len(addresses) == 0 {
		return page{host: loopback, path: metricsPath, notes: []string{"llama-server listens on a socket file, so it has no metrics page on a port"}}
	}
	p := page{host: reachable(addresses[0], loopback), path: metricsPath}
	if v, ok := value("--port", "LLAMA_ARG_PORT"); ok {
		p.port, _ = parsePort(v)
	}
	if p.port == 0 {
		p.port, p.others = 8080, []int{9931} // until 2026, and since
	}
	if prefix, ok := value("--api-prefix", "LLAMA_ARG_API_PREFIX"); ok {
		if prefix = strings.Trim(prefix, "/"); prefix != "" {
			p.path = "/" + prefix + metricsPath
		}
	}
	if name := given(own, env, "--api-key", "--api-key-file", "--api-keys-file", "LLAMA_API_KEY"); name != "" {
		p.warnings = append(p.warnings, "llama-server guards its metrics page with a key ("+name+"), so engine metrics may be missing")
	}
	if name := given(own, env, "--ssl-key-file", "LLAMA_ARG_SSL_KEY_FILE"); name != "" {
		p.warnings = append(p.warnings, "llama-server serves TLS ("+name+"), so engine metrics may be missing: its page is read by plain http")
	}
	return p
}

// given returns the first of the options and variables that is there.
func given(own arguments, env variables, names ...string) string {
	for _, name := range names {
		if v, set := env(name); own.has(name) || set && v != "" {
			return name
		}
	}
	return ""
}
