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

func (llamaCPP) page(own arguments) page {
	list, _ := own.value("--host")
	// Of several addresses the first is as good as any: the page is the same.
	addresses := slices.DeleteFunc(strings.Split(list, ","), func(a string) bool { return strings.HasSuffix(a, ".sock") })
	if len(addresses) == 0 {
		return page{host: loopback, path: metricsPath, notes: []string{"llama-server listens on a socket file, so it has no metrics page on a port"}}
	}
	p := page{host: reachable(addresses[0], loopback), port: own.port(0), path: metricsPath}
	if p.port == 0 {
		p.port, p.others = 8080, []int{9931} // until 2026, and since
	}
	if prefix, ok := own.value("--api-prefix"); ok {
		if prefix = strings.Trim(prefix, "/"); prefix != "" {
			p.path = "/" + prefix + metricsPath
		}
	}
	for _, option := range []string{"--api-key", "--api-key-file", "--api-keys-file"} {
		if own.has(option) {
			p.warnings = append(p.warnings, "llama-server guards its metrics page with a key ("+option+"), so engine metrics may be missing")
			break
		}
	}
	if own.has("--ssl-key-file") {
		p.warnings = append(p.warnings, "llama-server serves TLS (--ssl-key-file), so engine metrics may be missing: its page is read by plain http")
	}
	return p
}
