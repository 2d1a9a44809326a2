package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// authority is a certificate authority of a test's own, and dir what it issued.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca")
	return a
}

// issue makes NAME.pem and NAME.key for localhost, signed by the authority; the first is the authority itself.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
		a.key = key
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for file, text := range map[string][]byte{name + ".pem": certPEM, name + ".key": keyPEM} {
		if err := os.WriteFile(filepath.Join(a.dir, file), text, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// client trusts the authority and shows the given certificates.
func (a *authority) client(own ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: own}}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// get asks for a document; a header is a name and a value.
func get(client *http.Client, url string, header ...string) (status int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

// guarded runs settings of the signals exporter, and an extension that they need, twice: in a Collector of a plain YAML
// file, and in the launcher's sidecar.
func guarded(t *testing.T, settings, extension, extensionSettings string, check func(t *testing.T, port int)) {
	t.Helper()
	write := func(t *testing.T, text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	common := fmt.Sprintf("extensions: {%s}\n", extensionSettings) + fmt.Sprintf("service:\n  extensions: [%s]\n", extension)
	t.Run("collector", func(t *testing.T) {
		port := freeport.Get(t)
		file := write(t, fmt.Sprintf("receivers: {process: }\nexporters: {signals: {endpoint: \"localhost:%d\", %s}}\n", port, settings)+common+
			"  pipelines: {metrics: {receivers: [process], exporters: [signals]}}\n")
		(&pods{t: t}).command(nil, filepath.Join(bin, "graphsignal-collector"), "--config="+file)
		check(t, port)
	})
	t.Run("launcher", func(t *testing.T) {
		file := write(t, fmt.Sprintf("exporters: {signals: {%s}}\n", settings)+common)
		r := start(t, []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=" + file}, "sleep", "60")
		check(t, r.port)
		if text := r.stderr.String(); text != "" {
			t.Errorf("the launcher says %q", text)
		}
	})
}

// served waits until a client that may gets a document.
func served(t *testing.T, client *http.Client, url string, header ...string) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("last: %s", last)
		}
	}()
	eventually(t, url+" is served", func() bool {
		status, body, err := get(client, url, header...)
		last = fmt.Sprint(status, body, err)
		if err != nil || status != http.StatusOK {
			return false
		}
		d, err := parseDocument([]byte(body))
		return err == nil && d.find("host_memory_usage_bytes") != nil
	})
}

// TestSignalsOverTLS: whoever trusts the certificate reads; plain HTTP does not.
func TestSignalsOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	guarded(t, fmt.Sprintf("tls: {cert_file: %s/server.pem, key_file: %[1]s/server.key}", a.dir), "", "", func(t *testing.T, port int) {
		url := fmt.Sprintf("https://localhost:%d/signals", port)
		served(t, a.client(), url)
		if _, _, err := get(http.DefaultClient, url); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("a client that does not know the authority: %v", err)
		}
		status, body, err := get(http.DefaultClient, "http"+strings.TrimPrefix(url, "https"))
		if err == nil && (status != http.StatusBadRequest || strings.Contains(body, "metrics")) {
			t.Errorf("without TLS: %d %s", status, body)
		}
		if status, _, err := get(a.client(), url, "Host", "evil.example"); err != nil || status != http.StatusForbidden {
			t.Errorf("a foreign host: %d %v", status, err)
		}
	})
}

// TestSignalsOverMutualTLS: the reader needs a certificate of the authority's.
func TestSignalsOverMutualTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	a.issue("server")
	reader, stranger := a.issue("reader"), other.issue("reader")
	guarded(t, fmt.Sprintf("tls: {cert_file: %s/server.pem, key_file: %[1]s/server.key, client_ca_file: %[1]s/ca.pem}", a.dir), "", "",
		func(t *testing.T, port int) {
			url := fmt.Sprintf("https://localhost:%d/signals", port)
			served(t, a.client(reader), url)
			for who, client := range map[string]*http.Client{"none": a.client(), "another authority's": a.client(stranger)} {
				if status, body, err := get(client, url); err == nil {
					t.Errorf("with %s certificate: %d %s", who, status, body)
				}
			}
		})
}

// TestSignalsForABearerOfAToken: 401 for all others, on every path; the token is in no reply.
func TestSignalsForABearerOfAToken(t *testing.T) {
	const token = "zz-token-4711"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded(t, "auth: {authenticator: bearertokenauth}", "bearertokenauth", "bearertokenauth: {filename: "+file+"}", func(t *testing.T, port int) {
		url := fmt.Sprintf("http://localhost:%d", port)
		served(t, http.DefaultClient, url+"/signals", "Authorization", "Bearer "+token)
		for _, path := range []string{"/signals", "/health", "/"} {
			for _, header := range [][]string{nil, {"Authorization", "Bearer zz-token-4712"}, {"Authorization", token}, {"Authorization", "Bearer "}} {
				status, body, err := get(http.DefaultClient, url+path, header...)
				if err != nil || status != http.StatusUnauthorized || strings.Contains(body, token) || strings.Contains(body, "metrics") {
					t.Errorf("%s with %q: %d %s %v", path, header, status, body, err)
				}
			}
		}
		if status, body, err := get(http.DefaultClient, url+"/health", "Authorization", "Bearer "+token); err != nil || status != http.StatusOK {
			t.Errorf("/health: %d %s %v", status, body, err)
		}
		if status, _, err := get(http.DefaultClient, url+"/signals", "Authorization", "Bearer "+token, "Host", "evil.example"); err != nil || status != http.StatusForbidden {
			t.Errorf("a foreign host: %d %v", status, err)
		}
	})
}

// forward passes connections on without looking at them, as ssh -L, a published port and kubectl port-forward do.
func forward(t *testing.T, to string) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// TestWebPagesReadNothing: a page whose name resolves to this machine gets no signals; everybody who says localhost does,
// also through a forwarded port, and the live view.
func TestWebPagesReadNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names.yaml")
	if err := os.WriteFile(file, []byte("exporters: {signals: {allowed_hosts: [gpu-7.example]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=" + file}, "sleep", "60")
	r.signalsWhen("the run is up", func(d *document) bool { return len(d.Resources) > 0 })
	ports := map[string]int{"the endpoint": r.port, "a forwarded port": forward(t, fmt.Sprintf("127.0.0.1:%d", r.port))}
	for where, port := range ports {
		for _, path := range []string{"/signals", "/health"} {
			url := fmt.Sprintf("http://127.0.0.1:%d%s", port, path)
			for host, want := range map[string]int{
				"": 200, "localhost": 200, fmt.Sprintf("localhost:%d", port): 200, "[::1]:80": 200, "gpu-7.example": 200,
				"evil.example": 403, fmt.Sprintf("evil.example:%d", r.port): 403, "192.0.2.7": 403,
			} {
				status, body, err := get(http.DefaultClient, url, "Host", host, "Origin", "http://evil.example")
				if err != nil || status != want {
					t.Errorf("%s, %s for %q: %d %v", where, path, host, status, err)
				}
				if want == 403 && strings.Contains(body, "metrics") {
					t.Errorf("%s, %s for %q: %s", where, path, host, body)
				}
			}
		}
		for _, host := range []string{"127.0.0.1", "localhost"} {
			out, err := exec.Command(filepath.Join(bin, "graphsignal-top"), "--once", "--window", "0", "--host", host, "--port", strconv.Itoa(port)).CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("sleep")) {
				t.Errorf("graphsignal-top on %s, %s: %v\n%s", where, host, err, out)
			}
		}
	}
}
