package signalsexporter

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

// ask sends a request with the given Host header to a loopback port of the server's.
func (r *running) ask(method, path, protocol, host string) (*http.Response, string) {
	r.t.Helper()
	_, port, err := net.SplitHostPort(r.address)
	require.NoError(r.t, err)
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	require.NoError(r.t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "%s %s %s\r\n%sOrigin: http://evil.example\r\nConnection: close\r\n\r\n", method, path, protocol, host)
	require.NoError(r.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(body)
}

// TestForeignHostIsRefused: a page whose name resolves to this machine reads nothing, on any path and by any method.
func TestForeignHostIsRefused(t *testing.T) {
	r := start(t, nil)
	for _, host := range []string{"evil.example", "evil.example:18259", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost",
		"10.0.0.1", "0.0.0.0:18259", "[::2]:80", "localhost:x", "localhost:80:evil", "[", ":", "."} {
		for _, path := range []string{"/signals", "/health", "/"} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST"} {
				resp, body := r.ask(method, path, "HTTP/1.1", "Host: "+host+"\r\n")
				assert.Equal(t, http.StatusForbidden, resp.StatusCode, "%s %s %s", method, path, host)
				assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
				if method == "GET" {
					assert.JSONEq(t, `{"error": "this host name is not allowed: use localhost or 127.0.0.1, or add the name to allowed_hosts"}`, body)
				}
			}
		}
	}
	resp, _ := r.ask("GET", "http://evil.example/signals", "HTTP/1.1", "Host: localhost\r\n")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode, "the host of an absolute target is what counts")
}

// TestOwnHostIsAnswered: what curl, ssh -L, a published port of a container and kubectl port-forward send.
func TestOwnHostIsAnswered(t *testing.T) {
	r := start(t, nil)
	for _, host := range []string{"localhost", "localhost:18259", "localhost:1", "LocalHost.", "a.b.localhost:80", "127.0.0.1", "127.0.0.1:9", "127.8.7.6",
		"[::1]", "[::1]:18259", "[::ffff:127.0.0.1]:5", "localhost:", r.address} {
		for _, path := range []string{"/signals", "/health"} {
			resp, _ := r.ask("GET", path, "HTTP/1.1", "Host: "+host+"\r\n")
			assert.Equal(t, http.StatusOK, resp.StatusCode, "%s %s", path, host)
			for name := range resp.Header {
				assert.False(t, strings.HasPrefix(name, "Access-Control-"), "%s lets other pages read", name)
			}
		}
	}
	resp, _ := r.ask("GET", "/signals", "HTTP/1.1", "Host:\r\n")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "an empty Host header")
	resp, _ = r.ask("GET", "/signals", "HTTP/1.0", "")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "no Host header")
	resp, _ = r.ask("OPTIONS", "/signals", "HTTP/1.1", "Host: localhost\r\n")
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

// TestAllowedHosts: which names are answered under which settings.
func TestAllowedHosts(t *testing.T) {
	for _, c := range []struct {
		endpoint   string
		configured []string
		host       string
		status     int
	}{
		{"localhost:0", nil, "localhost", 200},
		{"localhost:0", nil, "node7.example", 403},
		{"127.0.0.1:0", []string{"Node7.example", "fd00::7"}, "node7.example.:81", 200},
		{"127.0.0.1:0", []string{"node7.example", "fd00::7"}, "[FD00:0::7]:81", 200},
		{"127.0.0.1:0", []string{"node7.example"}, "localhost", 200},
		{"127.0.0.1:0", []string{"node7.example"}, "node8.example", 403},
		{"127.0.0.1:0", []string{"*"}, "node8.example", 200},
		{"0.0.0.0:0", nil, "node8.example", 200},
		{"0.0.0.0:0", []string{"node7.example"}, "node7.example", 200},
		{"0.0.0.0:0", []string{"node7.example"}, "127.0.0.1", 200},
		{"0.0.0.0:0", []string{"node7.example"}, "node8.example", 403},
		{"0.0.0.0:0", []string{"node7.example", "*"}, "node8.example", 200},
		{":0", nil, "node8.example", 200},
		{":0", []string{"node7.example"}, "node8.example", 403},
	} {
		r := start(t, func(cfg *Config) {
			cfg.NetAddr.Endpoint = c.endpoint
			cfg.AllowedHosts = c.configured
		})
		resp, _ := r.ask("GET", "/signals", "HTTP/1.1", "Host: "+c.host+"\r\n")
		assert.Equal(t, c.status, resp.StatusCode, "%+v", c)
		r.end()
	}
}

// TestHostOfTheMachine: the configured name, and the address that was dialled, are names of this endpoint.
func TestHostOfTheMachine(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 1, 1), Port: 9}
	h := newHostNames("Build-Host:9", nil, loopback)
	r, err := http.NewRequest("GET", "http://build-host:9/signals", nil)
	require.NoError(t, err)
	assert.True(t, h.allow(r))
	h = newHostNames("127.0.1.1:9", nil, loopback)
	assert.False(t, h.allow(r))
	assert.True(t, newHostNames("", nil, &net.UnixAddr{Name: "signals.sock", Net: "unix"}).allow(r), "no page reaches a socket file")

	address := machineAddress(t)
	served := start(t, func(cfg *Config) {
		cfg.NetAddr.Endpoint, cfg.AllowedHosts = net.JoinHostPort("0.0.0.0", "0"), []string{"node7.example"}
	})
	_, port, err := net.SplitHostPort(served.address)
	require.NoError(t, err)
	resp, err := served.client.Get("http://" + net.JoinHostPort(address, port) + "/health")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = served.ask("GET", "/health", "HTTP/1.1", "Host: "+address+"\r\n")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode, "the address of another interface than the one dialled")
}

// machineAddress is an IPv4 address of this machine that is not the loopback's.
func machineAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has no address but the loopback's")
	return ""
}

func TestAllowedHostsThatAreNone(t *testing.T) {
	for _, name := range []string{"", "http://node7", "node7:80", "[::1]:80", "*.example", "a b", "a/b"} {
		cfg := createDefaultConfig().(*Config)
		cfg.AllowedHosts = []string{"fine.example", name}
		assert.ErrorContains(t, confmap.Validate(cfg), "allowed_hosts: ", name)
	}
	cfg := createDefaultConfig().(*Config)
	cfg.AllowedHosts = []string{"*", "node7", "::1", "[::1]", "10.0.0.1", "fd00::1"}
	assert.NoError(t, confmap.Validate(cfg))
}
