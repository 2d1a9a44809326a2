package engines

import "strings"

type llamaCPP struct{}

func (llamaCPP) name() string { return LlamaCPP }

func (llamaCPP) command(base string) bool { return base == "llama-server" }

func (llamaCPP) module(string) bool { return false }

func (llamaCPP) adjust(argv []string, own arguments) []string {
	return withFlag(argv, own, "--metrics")
}

func (llamaCPP) page(own arguments) page {
	host, _ := own.value("--host")
	p := page{host: reachable(host, loopback), port: own.port(8080), path: metricsPath}
	if prefix, ok := own.value("--api-prefix"); ok {
		if prefix = strings.Trim(prefix, "/"); prefix != "" {
			p.path = "/" + prefix + metricsPath
		}
	}
	if strings.HasSuffix(host, ".sock") {
		p.host, p.port = loopback, 0
		p.notes = append(p.notes, "llama-server listens on a socket file, so it has no metrics page on a port")
		return p
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
