package engines

import (
	"net/netip"
	"strconv"
	"strings"
)

const (
	loopback    = "127.0.0.1"
	metricsPath = "/metrics"
)

// arguments are the words of a program's command line, itself first.
type arguments []string

// has reports whether an option is there, as a word of its own or with a value glued by "=".
func (a arguments) has(option string) bool {
	for _, word := range a {
		if name, _, _ := strings.Cut(word, "="); name == option {
			return true
		}
	}
	return false
}

// value returns the value of the first `option VALUE` or `option=VALUE`; an option that ends the line has none.
func (a arguments) value(option string) (string, bool) {
	for i, word := range a {
		if word == option {
			if i+1 == len(a) {
				return "", false
			}
			return a[i+1], true
		}
		if v, ok := strings.CutPrefix(word, option+"="); ok {
			return v, true
		}
	}
	return "", false
}

// port returns the TCP port that --port names, or the default where there is none that reads as one.
func (a arguments) port(byDefault int) int {
	if v, ok := a.value("--port"); ok {
		if port, ok := parsePort(v); ok {
			return port
		}
	}
	return byDefault
}

// parsePort reads a port as the engines (Python's int) do: blanks around it, a plus sign and single underscores
// between digits are fine.
func parsePort(text string) (int, bool) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "+")
	if strings.HasPrefix(text, "_") || strings.HasSuffix(text, "_") || strings.Contains(text, "__") {
		return 0, false
	}
	port, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 16)
	return int(port), err == nil && port > 0
}

// reachable returns the host to connect to for a server told to listen at host: loopback for a wildcard address,
// and the default where nothing was said.
func reachable(host, byDefault string) string {
	host = strings.TrimSpace(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	if host == "" {
		return byDefault
	}
	if address, err := netip.ParseAddr(host); err == nil && address.IsUnspecified() {
		if address.Is4() {
			return loopback
		}
		return "::1"
	}
	return host
}
