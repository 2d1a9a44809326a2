package enginereceiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/version"
)

const (
	// maxPage is the most bytes of a page, unpacked.
	maxPage = 16 << 20
	// keepBuffer is how many bytes of a buffer are kept for the next page whatever that needs.
	keepBuffer = 1 << 20
	// maxRedirects is how many redirects within the server are followed.
	maxRedirects = 3
)

// Classic text comes first: Python's client library answers OpenMetrics to whoever names it at all, and types are lost
// in it that classic text has as gauges. The second is for a server that refuses the first.
const (
	acceptClassic     = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
	acceptOpenMetrics = "application/openmetrics-text;version=1.0.0"
)

var (
	errTooLarge = fmt.Errorf("the page is larger than %d MiB", maxPage>>20)
	errRedirect = errors.New("redirect to another server")
)

// statusError is a reply that is not 2xx.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// fetcher gets one page over and over. It is not for concurrent use.
type fetcher struct {
	url     *url.URL
	client  *http.Client
	header  http.Header
	timeout time.Duration

	// moved is where the page was found behind redirects, nil when not behind any.
	moved *url.URL
	body  bytes.Buffer
}

// addressKey is the context's key for the address to connect to.
type addressKey struct{}

func newFetcher(ctx context.Context, page *EndpointConfig, timeout time.Duration) (*fetcher, error) {
	u, err := page.url()
	if err != nil {
		return nil, err
	}
	tls, err := page.TLS.LoadTLSConfig(ctx)
	if err != nil {
		return nil, err
	}
	f := &fetcher{url: u, timeout: timeout, header: http.Header{
		"Accept": {acceptClassic},
		// Packing costs the engine more than it saves between two processes of a host.
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"graphsignal-collector/" + version.Version},
	}}
	for name, value := range page.Headers.Iter {
		f.header.Set(name, string(value))
	}
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: -1}
	f.client = &http.Client{
		Transport: &http.Transport{
			Proxy: nil, // never: the page is this host's business
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if verified, ok := ctx.Value(addressKey{}).(netip.AddrPort); ok {
					address = verified.String()
				}
				return dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig:     tls,
			TLSHandshakeTimeout: timeout,
			// A connection that stays open would occupy a worker of servers that have one a connection.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects || req.URL.Host != f.url.Host || req.URL.Scheme != f.url.Scheme {
				return errRedirect
			}
			return nil
		},
	}
	return f, nil
}

// use makes the page's port another one.
func (f *fetcher) use(port uint16) {
	f.url.Host = net.JoinHostPort(f.url.Hostname(), strconv.Itoa(int(port)))
	f.moved = nil
}

func (f *fetcher) close() { f.client.CloseIdleConnections() }

// fetch returns the page and its Content-Type. It connects to the given address where that is valid, else to what
// the URL's host stands for. The body is valid until the next call.
func (f *fetcher) fetch(ctx context.Context, address netip.AddrPort) (body []byte, contentType string, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if address.IsValid() {
		ctx = context.WithValue(ctx, addressKey{}, address)
	}
	target := f.url
	if f.moved != nil {
		target = f.moved
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, "", err
	}
	req.Header = f.header.Clone()
	f.moved = nil
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, "", withoutURL(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode/100 != 2 {
		if resp.StatusCode == http.StatusNotAcceptable {
			f.header.Set("Accept", acceptOpenMetrics)
		}
		return nil, "", statusError(resp.StatusCode)
	}
	if err := f.read(resp); err != nil {
		return nil, "", err
	}
	if resp.Request.URL.String() != f.url.String() {
		f.moved = resp.Request.URL
	}
	return f.body.Bytes(), resp.Header.Get("Content-Type"), nil
}

func (f *fetcher) read(resp *http.Response) error {
	if f.body.Cap() > keepBuffer && f.body.Len() < f.body.Cap()/4 {
		f.body = bytes.Buffer{}
	}
	f.body.Reset()
	if resp.ContentLength > maxPage {
		return errTooLarge
	}
	content := io.Reader(resp.Body)
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		unpacked, err := gzip.NewReader(content)
		if err != nil {
			return err
		}
		content = unpacked
	default:
		return fmt.Errorf("content encoding %q", encoding)
	}
	n, err := f.body.ReadFrom(io.LimitReader(content, maxPage+1))
	switch {
	case n > maxPage:
		return errTooLarge
	case err != nil:
		return err
	}
	return nil
}

// withoutURL takes the address off an error of net/http: it is said beside it, and its query may hold a secret.
func withoutURL(err error) error {
	var failure *url.Error
	if errors.As(err, &failure) {
		return failure.Err
	}
	return err
}
