package signalsexporter

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// anyHost in allowed_hosts turns the check of the Host header off.
const anyHost = "*"

// hostRefusal is the body of the reply to other hosts.
const hostRefusal = `{"error": "this host name is not allowed: use localhost or 127.0.0.1, or add the name to allowed_hosts"}`

// hostNames decides which Host headers are answered. A web page can have its own name resolve to 127.0.0.1 and then read,
// in a visitor's browser, what only this machine should; such a request still names the page's host.
type hostNames struct {
	any     bool
	allowed map[string]bool // in the form of canonicalHost
}

// newHostNames takes the configured endpoint and allowed_hosts, and the address that was bound. The names of a machine are
// not known to it, so that an address of the network is checked only where names are configured.
func newHostNames(endpoint string, configured []string, bound net.Addr) *hostNames {
	h := &hostNames{allowed: make(map[string]bool)}
	tcp, ok := bound.(*net.TCPAddr)
	h.any = !ok || !tcp.IP.IsLoopback() && len(configured) == 0
	for _, name := range configured {
		if name == anyHost {
			h.any = true
		}
		h.allowed[canonicalHost(name)] = true
	}
	if host, _, err := net.SplitHostPort(endpoint); err == nil && host != "" {
		h.allowed[canonicalHost(host)] = true
	}
	return h
}

// allow judges a request. HTTP/1.0 has no Host header, and no browser speaks it.
func (h *hostNames) allow(r *http.Request) bool {
	if h.any || r.Host == "" {
		return true
	}
	host, ok := withoutPort(r.Host)
	if !ok {
		return false
	}
	host = canonicalHost(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || h.allowed[host] {
		return true
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if address.IsLoopback() {
		return true
	}
	// The address that the client dialled, as a kubelet's probes name it.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap() == address
}

// withoutPort cuts the port off a Host header.
func withoutPort(header string) (host string, ok bool) {
	colon := strings.LastIndexByte(header, ':')
	if colon < 0 || strings.HasSuffix(header, "]") {
		return header, true
	}
	return header[:colon], strings.Trim(header[colon+1:], "0123456789") == ""
}

// canonicalHost is one form for all spellings of a host: small letters, no brackets, no final dot.
func canonicalHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return host
}

// checkAllowedHosts returns an error for an entry that could never equal a host.
func checkAllowedHosts(names []string) error {
	for _, name := range names {
		if name == "" {
			return errors.New("allowed_hosts: a name must not be empty")
		}
		if name == anyHost {
			continue
		}
		_, err := netip.ParseAddr(canonicalHost(name))
		if err != nil && strings.ContainsAny(name, ":/*[] ") {
			return fmt.Errorf("allowed_hosts: %q is not a host name or address without scheme and port, nor %q", name, anyHost)
		}
	}
	return nil
}
