package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// maxBody bounds a reply, after decompression: 64 processes with 250 frames of 1 KiB names are 16 MiB.
	maxBody = 32 << 20
	// Timeout bounds one read of the endpoint, from connecting to the last byte.
	Timeout = 5 * time.Second
)

// Client reads one profiler's endpoint.
type Client struct {
	url   string
	http  *http.Client
	limit int64 // bytes of a reply
}

// NewClient makes a client for http://host:port/signals. The host may be a name or an address; IPv6 with or without
// brackets. No request is made yet.
func NewClient(host string, port int) (*Client, error) {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.ContainsAny(host, "/@?# \t\n") {
		return nil, fmt.Errorf("%q is not a host name or address", host)
	}
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("port %d is not between 1 and 65535", port)
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/signals"}
	return &Client{
		url:   u.String(),
		limit: maxBody,
		http: &http.Client{
			Timeout: Timeout,
			Transport: &http.Transport{ // no proxy: the endpoint is a local or named machine
				MaxResponseHeaderBytes: 64 << 10,
				MaxIdleConns:           1,
				IdleConnTimeout:        time.Minute,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Address is what the client reads, for messages.
func (c *Client) Address() string { return c.url }

// Close ends kept connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Read makes one request, at most Timeout long. Errors are short sentences for people.
func (c *Client) Read(ctx context.Context) (*Document, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.plain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers HTTP %d, not a /signals document", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.limit+1))
	if err != nil {
		return nil, c.plain(err)
	}
	if int64(len(body)) > c.limit {
		return nil, fmt.Errorf("the reply is larger than %d MiB", c.limit>>20)
	}
	return Decode(body)
}

// plain words a connection error without the layers that net/http wraps around it.
func (c *Client) plain(err error) error {
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case os.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no complete reply within %s", c.http.Timeout)
	case errors.As(err, &dns):
		return errors.New("the host name cannot be resolved")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the connection was closed in mid-reply")
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	text := err.Error()
	if len(text) > 200 {
		text = text[:200]
	}
	return errors.New(text)
}
