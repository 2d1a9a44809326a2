package signalsexporter

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/graphsignal/graphsignal-collector/exporter/signalsexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

func TestRoutes(t *testing.T) {
	r := start(t, nil)
	const notFound, notAllowed = `{"error": "not found"}`, `{"error": "method not allowed"}`
	for _, c := range []struct {
		method, path string
		status       int
		body         string // "" means a document
	}{
		{"GET", "/signals", 200, ""},
		{"GET", "/signals/", 200, ""},
		{"GET", "/signals?x=1", 200, ""},
		{"GET", "/signals/?", 200, ""},
		{"GET", "/health", 200, `{"status": "ok"}`},
		{"GET", "/health/?a", 200, `{"status": "ok"}`},
		{"GET", "/", 404, notFound},
		{"GET", "/signals//", 404, notFound},
		{"GET", "/Signals", 404, notFound},
		{"GET", "/%73ignals", 404, notFound},
		{"GET", "/signals/x", 404, notFound},
		{"POST", "/signals", 405, notAllowed},
		{"PUT", "/health", 405, notAllowed},
		{"DELETE", "/", 405, notAllowed},
		{"OPTIONS", "/signals", 405, notAllowed},
	} {
		resp, body := r.do(c.method, c.path)
		name := c.method + " " + c.path
		assert.Equal(t, c.status, resp.StatusCode, name)
		assert.Equal(t, "application/json", resp.Header.Get("Content-Type"), name)
		assert.Equal(t, strconv.Itoa(len(body)), resp.Header.Get("Content-Length"), name)
		if c.status == 405 {
			assert.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
		}
		if c.body == "" {
			assert.True(t, json.Valid([]byte(body)), name)
			assert.True(t, strings.HasPrefix(body, `{"profiler": {`), name)
		} else {
			assert.Equal(t, c.body, body, name)
		}
		if c.method != "GET" {
			continue
		}
		head, none := r.do("HEAD", c.path)
		assert.Equal(t, c.status, head.StatusCode, name)
		assert.Empty(t, none)
		assert.Equal(t, resp.Header.Get("Content-Length"), head.Header.Get("Content-Length"), name)
	}
}

func TestKeepAlive(t *testing.T) {
	r := start(t, nil)
	conn, err := net.Dial("tcp", r.address)
	require.NoError(t, err)
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for range 3 {
		_, err = fmt.Fprintf(conn, "GET /signals HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.False(t, resp.Close)
	}
}

func TestGzip(t *testing.T) {
	r := start(t, nil)
	r.metrics(func(b *signal.Builder) {
		res := b.Resource(nil, nil)
		for i := range 500 {
			res.Gauge("g", tag("i", fmt.Sprint(i)), series.Float(float64(i)/7), 0, startTime)
		}
	})
	_, plain := r.do("GET", "/signals")
	for range 2 { // made, and made before
		resp, body := r.do("GET", "/signals", "Accept-Encoding", "br, gzip;q=0.5")
		assert.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
		assert.Equal(t, "Accept-Encoding", resp.Header.Get("Vary"))
		assert.Equal(t, strconv.Itoa(len(body)), resp.Header.Get("Content-Length"))
		assert.Less(t, len(body), len(plain)/3)
		zip, err := gzip.NewReader(strings.NewReader(body))
		require.NoError(t, err)
		zip.Multistream(false) // some clients read the first member only
		text, err := io.ReadAll(zip)
		require.NoError(t, err)
		assert.Equal(t, plain, string(text))
	}
	for header, want := range map[string]bool{
		"": false, "identity": false, "gzip": true, "x-gzip": true, "GZIP": true, "gzip;q=0": false, "gzip; q=0.0": false,
		"gzip;q=1": true, "deflate, br": false, "gzip;q=x": false, "*": false, "gzip;foo=1": true,
	} {
		assert.Equal(t, want, acceptsGzip(http.Header{"Accept-Encoding": {header}}), header)
	}
}

func TestBindConflict(t *testing.T) {
	taken, err := net.Listen("tcp", freeAddress(t))
	require.NoError(t, err)
	address := taken.Addr().String()
	h := newHost()
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = address
	hub := &selflog.Hub{}
	set := exportertest.NewNopSettings(metadata.Type)
	set.Logger = loggerOf(hub)
	e := newExporter(set, cfg, hub, time.Now)
	require.NoError(t, e.Start(context.Background(), h), "the pipelines go on without an endpoint")
	require.Equal(t, []string{"bind_failed " + address + ": address already in use"}, h.log())

	require.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError}, h.statuses())

	// A few attempts fail before the address is free.
	time.AfterFunc(250*time.Millisecond, func() { _ = taken.Close() })
	select {
	case got := <-h.bound:
		assert.Equal(t, address, got)
	case <-time.After(20 * time.Second):
		t.Fatal("not bound")
	}
	assert.Len(t, h.log(), 2, "later failures are no events")
	require.Eventually(t, func() bool { return len(h.statuses()) > 1 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}, h.statuses())
	resp, err := http.Get("http://" + address + "/signals")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 1, strings.Count(string(body), `"level"`))
	assert.Contains(t, string(body), `"message": "Graphsignal 0.1.0: The signals endpoint cannot listen on `+address+`; it goes on trying: address already in use", "exception": "address already in use"`)
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, e.Shutdown(context.Background()))
}

func TestShutdownWhileTheAddressIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = taken.Addr().String()
	e, err := NewFactory().CreateMetrics(context.Background(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, e.Shutdown(context.Background()))
}

func TestOtherBindFailures(t *testing.T) {
	for _, address := range []string{"192.0.2.1:18259", "127.0.0.1:99999"} {
		h := newHost()
		cfg := createDefaultConfig().(*Config)
		cfg.NetAddr.Endpoint = address
		e := newExporter(exportertest.NewNopSettings(metadata.Type), cfg, &selflog.Hub{}, time.Now)
		require.NoError(t, e.Start(context.Background(), h))
		require.Len(t, h.log(), 1)
		assert.Contains(t, h.log()[0], "bind_failed "+address+": ")
		require.NoError(t, e.Shutdown(context.Background()))
	}
}

func TestWrongSettingsFailTheStart(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"tls": func(c *Config) {
			c.TLS = configoptional.Some(configtls.ServerConfig{Config: configtls.Config{CertFile: "none.pem", KeyFile: "none.pem"}})
		},
		"auth": func(c *Config) {
			c.Auth = configoptional.Some(confighttp.AuthConfig{Config: configauth.Config{AuthenticatorID: component.MustNewID("absent")}})
		},
	} {
		cfg := createDefaultConfig().(*Config)
		cfg.NetAddr.Endpoint = "127.0.0.1:0"
		change(cfg)
		e, err := NewFactory().CreateMetrics(context.Background(), exportertest.NewNopSettings(metadata.Type), cfg)
		require.NoError(t, err)
		assert.Error(t, e.Start(context.Background(), componenttest.NewNopHost()), name)
		assert.NoError(t, e.Shutdown(context.Background()))
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := writeCertificate(t, cert, key)
	r := start(t, func(c *Config) {
		c.TLS = configoptional.Some(configtls.ServerConfig{Config: configtls.Config{CertFile: cert, KeyFile: key}})
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + r.address + "/health")
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

func writeCertificate(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

func TestHostileClients(t *testing.T) {
	r := start(t, nil)
	for _, request := range []string{
		"\x16\x03\x01\x02\x00\x01", "GET\r\n\r\n", "GET /signals HTTP/1.1\r\n\r\n",
		"GET /signals HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("y", 100<<10) + "\r\n\r\n",
		"GET " + strings.Repeat("/a", 50<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /signals HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
	} {
		conn, err := net.Dial("tcp", r.address)
		require.NoError(t, err)
		_, _ = io.WriteString(conn, request) // the server may answer and close before it has read all
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	// One that asks and hangs up without reading.
	conn, err := net.Dial("tcp", r.address)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /signals HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	_ = conn.Close()
	assert.Empty(t, r.get().errors, "none of this is an error of ours")
}

func TestConnectionLimit(t *testing.T) {
	r := start(t, nil)
	var conns []net.Conn
	for range maxConnections + 1 {
		conn, err := net.Dial("tcp", r.address)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	last := conns[maxConnections]
	require.NoError(t, last.SetDeadline(time.Now().Add(10*time.Second)))
	_, err := last.Read(make([]byte, 1))
	assert.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "%v", err)
	for _, conn := range conns {
		_ = conn.Close()
	}
	require.Eventually(t, func() bool { return r.endpoint.open.Load() == 0 }, 10*time.Second, time.Millisecond)
	r.get()
}

func TestSlowReaderIsCutOff(t *testing.T) {
	r := start(t, func(c *Config) { c.WriteTimeout = 200 * time.Millisecond })
	r.metrics(func(b *signal.Builder) {
		var frames []series.Frame
		for i := range 250 {
			frames = append(frames, series.Frame{Name: fmt.Sprint(i) + strings.Repeat("n", 60000)})
		}
		b.Resource(nil, nil).Profile("p", nil, frames, 0, startTime)
	})
	conn, err := net.Dial("tcp", r.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = io.WriteString(conn, "GET /signals HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	_, _ = conn.Read(make([]byte, 1)) // the reply has begun, or is cut off already
	require.Eventually(t, func() bool { return r.endpoint.open.Load() == 0 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, `{"status": "ok"}`, func() string { _, body := r.do("GET", "/health"); return body }())
}

// TestFailureInsideARequest checks the answer to what should not happen.
func TestFailureInsideARequest(t *testing.T) {
	r := start(t, nil)
	kept := r.document.errors
	r.document.errors = nil
	resp, body := r.do("GET", "/signals")
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
	assert.Equal(t, `{"error": "internal error"}`, body)
	r.document.errors = kept
	assert.Contains(t, r.get().errors, "A request for signals failed")
}

// TestReadersAndWriters has requests and folds at the same time; every reply is a whole document of one moment.
func TestReadersAndWriters(t *testing.T) {
	r := start(t, nil)
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := int64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				b := signal.NewBuilder("test")
				res := b.Resource([]signal.Entity{{Kind: signal.ProcessKind, ID: tag("process.pid", fmt.Sprint(w))}}, nil)
				for g := range 50 {
					res.Gauge(fmt.Sprint("g", g), nil, series.Int(i), 0, startTime)
				}
				assert.NoError(t, r.ConsumeMetrics(context.Background(), b.Metrics()))
				r.logs(signal.ErrorEntry{Level: "error", Message: fmt.Sprint(i)})
			}
		})
	}
	for reader := range 4 {
		readers.Go(func() {
			encoding := []string{"identity", "gzip"}[reader%2]
			for range 50 {
				_, body := r.do("GET", "/signals", "Accept-Encoding", encoding)
				data := []byte(body)
				if encoding == "gzip" {
					zip, err := gzip.NewReader(bytes.NewReader(data))
					if !assert.NoError(t, err) {
						return
					}
					if data, err = io.ReadAll(zip); !assert.NoError(t, err) {
						return
					}
				}
				var doc struct {
					Metrics []struct {
						Tags  map[string]string
						Stats struct{ Value int64 }
					}
				}
				if !assert.NoError(t, json.Unmarshal(data, &doc)) {
					return
				}
				seen := map[string]int64{}
				for _, m := range doc.Metrics {
					pid := m.Tags["process.pid"]
					if v, ok := seen[pid]; ok && v != m.Stats.Value {
						t.Errorf("a document of two moments: %d and %d", v, m.Stats.Value)
						return
					}
					seen[pid] = m.Stats.Value
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	writers.Wait()
}

// TestRenderedAheadOfRequests checks that after a request new values are rendered without another one, and
// that a request during an update gets the document before it.
func TestRenderedAheadOfRequests(t *testing.T) {
	r := start(t, nil)
	set := func(v int64) {
		r.metrics(func(b *signal.Builder) { b.Resource(nil, nil).Gauge("g", nil, series.Int(v), 0, startTime) })
	}
	set(1)
	assert.Nil(t, r.document.current.Load(), "nobody has asked")
	r.read()
	first := r.document.current.Load()
	require.NotNil(t, first)
	set(2)
	require.Eventually(t, func() bool { return r.document.current.Load() != first }, 10*time.Second, time.Millisecond)
	assert.Contains(t, string(r.document.current.Load().rest), `"value": 2`)

	r.document.store.Update(func(*storeBatch) {
		r.document.asked.Store(0)
		assert.Contains(t, r.read().metrics, `"value": 2`, "no wait for the update")
	})
}
