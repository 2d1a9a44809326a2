package engines

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzConfigFile: an engine's configuration file may hold anything; what it says last and clearly counts.
func FuzzConfigFile(f *testing.F) {
	for _, seed := range []string{
		"host: 0.0.0.0\nport: 8001\n", "port: '8002' # x\nhost: \"a b\"", "uds: /tmp/x\nport : 7", "\xef\xbb\xbfport: 1", "a:\n  port: 2\n- port: 3\nport:4",
		"port: +1_0\nhost: ~\n", "host: [::1]\nport: 99999999999999999999", "\x00\r\nport: 5\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c := parseConfig(bytes.NewReader(content))
		if c.port < 0 || c.port > 65535 || strings.Contains(c.host, "\n") || len(c.notes) > 0 {
			t.Fatalf("%q: %+v", content, c)
		}
		if host := reachable(c.host, loopback); host == "" {
			t.Fatalf("%q: no host", content)
		}
		if len(content) > maxConfig/2 {
			return
		}
		c = parseConfig(strings.NewReader(string(content) + "\nhost: h.example # x\nport: \"4321\"\n"))
		if c.port != 4321 || c.host != "h.example" {
			t.Fatalf("%q: %+v", content, c)
		}
	})
}
