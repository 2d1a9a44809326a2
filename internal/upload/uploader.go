package upload

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/graphsignal/graphsignal-collector/internal/store"
	pb "github.com/graphsignal/graphsignal-collector/proto"
)

const (
	// ingestPath is where requests go, below the base URL.
	ingestPath = "/api/v1/ingest"

	// requestTimeout bounds one request as a whole.
	requestTimeout = 10 * time.Second
	// maxRequestBytes bounds one request before compression.
	maxRequestBytes = 4 << 20

	firstBackoff  = time.Second
	maxBackoff    = time.Minute
	maxRetryAfter = 10 * time.Minute
	// refusedPause is the pause after the server refused the key, or the address is wrong.
	refusedPause = time.Minute
	// tellAfter is how many failures in a row, in seven seconds or more, are worth a warning.
	tellAfter = 4
	// growAfter is how many requests in a row must pass before a lowered limit on items is doubled.
	growAfter = 60
)

// Settings of an Uploader.
type Settings struct {
	// Base is the server's base URL, with or without trailing slashes.
	Base string
	// Key goes into the header X-API-Key and nowhere else.
	Key       string
	UserAgent string
	// Client makes the requests. NewUploader refuses redirects to other hosts, and those that lose the body, for it.
	Client *http.Client
	// Global tags are under every signal's own.
	Global map[string]string
	// Since is when an earlier Uploader of the same instance ended, epoch nanoseconds: what started before then counts from
	// its first value on. 0 without one.
	Since int64
	// Warn reports a loss or a refusal, once per cause while it lasts.
	Warn func(string)
}

// Uploader sends what a Ledger owes. Observe and AddLog may be called while Send runs; Send by one goroutine.
type Uploader struct {
	settings Settings
	url      string

	mu     sync.Mutex
	ledger *Ledger
	logs   logQueue

	notBefore time.Time // of the next request
	asked     time.Time // the same, as far as the server's answers say so
	failures  int
	failure   error // of the last request, nil when it was taken
	limit     int   // most items of a request, 0 for any number
	passed    int   // requests since the limit was changed
	warned    string
	dropped   uint64
	// refusedFor is the status for which data was dropped, as last told; 0 when the server took what came then.
	refusedFor int
	lost       uint64 // entries and series given up, as last reported
}

// NewUploader returns an Uploader that has observed nothing.
func NewUploader(settings Settings) *Uploader {
	client := *settings.Client
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		// After a redirect of another kind than 307 and 308 the client would only ask, and what it was to send would be lost.
		if len(via) >= 3 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme || req.Method != http.MethodPost {
			return http.ErrUseLastResponse
		}
		return nil
	}
	settings.Client = &client
	ledger := NewLedger(settings.Global)
	ledger.since = settings.Since
	return &Uploader{
		settings: settings,
		url:      strings.TrimRight(settings.Base, "/") + ingestPath,
		ledger:   ledger,
	}
}

// Observe takes the store's current values into account.
func (u *Uploader) Observe(s *store.Store) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.View(u.ledger.Observe)
	if lost := u.ledger.Forgotten() + u.logs.dropped; lost > u.lost {
		u.settings.Warn(fmt.Sprintf("upload: %d log entries and %d series were given up before the server took them", u.logs.dropped, u.ledger.Forgotten()))
		u.lost = lost
	}
}

// AddLog queues a log entry.
func (u *Uploader) AddLog(e LogEntry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.logs.add(e, u.ledger.global)
}

// Dropped counts the messages that the server refused for what they are.
func (u *Uploader) Dropped() uint64 { return u.dropped }

// Send sends everything that is owed, in as many requests as the server's limits ask for, unless it is to wait after
// a failure. The error says why something is owed still.
func (u *Uploader) Send(ctx context.Context) error { return u.sendFrom(ctx, u.notBefore) }

// SendLast is Send at the end of a run: there is no later time to wait for, so that only a pause which the server asked
// for holds it back. That is an error here: what is owed is lost.
func (u *Uploader) SendLast(ctx context.Context) error {
	if time.Now().Before(u.asked) {
		return u.failure
	}
	return u.sendFrom(ctx, u.asked)
}

func (u *Uploader) sendFrom(ctx context.Context, earliest time.Time) error {
	if time.Now().Before(earliest) {
		return nil
	}
	u.mu.Lock()
	items := append(u.ledger.Owed(), u.logs.items()...)
	u.mu.Unlock()
	for len(items) > 0 {
		n := u.chunk(items)
		sent, err := u.request(ctx, items[:n])
		if err != nil {
			u.settle(items, (*Ledger).Release)
			return err
		}
		if sent {
			u.settle(items[:n], (*Ledger).Acknowledge)
			items = items[n:]
		}
	}
	return nil
}

func (u *Uploader) settle(items []Item, how func(*Ledger, Item)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, item := range items {
		how(u.ledger, item)
	}
}

// chunk is how many of the items the next request takes: at least one.
func (u *Uploader) chunk(items []Item) int {
	n, size := 0, 0
	for n < len(items) && (u.limit == 0 || n < u.limit) {
		size += items[n].size()
		if n > 0 && size > maxRequestBytes {
			break
		}
		n++
	}
	return n
}

func (i Item) size() int {
	switch {
	case i.Metric != nil:
		return proto.Size(i.Metric)
	case i.Resource != nil:
		return proto.Size(i.Resource)
	}
	return proto.Size(i.Logs)
}

// request sends one request. It reports true when the server has the items or never will, false when they must be
// sent in smaller requests, and an error when they must be sent later.
func (u *Uploader) request(ctx context.Context, items []Item) (bool, error) {
	status, retryAfter, err := u.post(ctx, items)
	switch {
	case err != nil:
		return false, u.backOff(err, 0)
	case status >= 200 && status < 300:
		u.succeeded(items)
		return true, nil
	case status == http.StatusRequestEntityTooLarge && len(items) > 1:
		// Less than half: the same items may compress worse next time.
		u.limit, u.passed = max(len(items)*2/5, 1), 0
		return false, nil
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest:
		if u.dropped += uint64(len(items)); u.refusedFor != status {
			u.refusedFor = status
			u.warn(fmt.Sprintf("upload: the server refused %d messages with status %d, which are dropped", len(items), status))
		}
		u.accepted(items)
		return true, nil
	case status == http.StatusTooManyRequests || status >= 500:
		return false, u.backOff(fmt.Errorf("%s answered with status %d", ingestPath, status), retryAfter)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		u.failure = fmt.Errorf("the API key was refused with status %d", status)
	default:
		u.failure = fmt.Errorf("%s answered with status %d", ingestPath, status)
	}
	u.warn(fmt.Sprintf("upload: %v; trying once a minute", u.failure))
	u.asked = time.Now().Add(refusedPause)
	u.notBefore = u.asked
	return false, u.failure
}

// succeeded ends back-off and warnings, and in time raises a lowered limit.
func (u *Uploader) succeeded(items []Item) {
	u.failures, u.failure, u.notBefore, u.asked, u.warned, u.refusedFor = 0, nil, time.Time{}, time.Time{}, "", 0
	if u.passed++; u.limit > 0 && u.passed >= growAfter {
		u.limit, u.passed = 2*u.limit, 0
	}
	u.accepted(items)
}

func (u *Uploader) accepted(items []Item) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, item := range items {
		if item.entries != nil {
			u.logs.acknowledge(item.entries)
		}
	}
}

func (u *Uploader) warn(text string) {
	if text != u.warned {
		u.warned = text
		u.settings.Warn(text)
	}
}

// backOff waits longer after each failure in a row, a quarter more or less, and at least as long as was asked for. A short
// outage is not worth a word. It returns the failure.
func (u *Uploader) backOff(failure error, asked time.Duration) error {
	wait := min(firstBackoff<<min(u.failures, 10), maxBackoff)
	wait = time.Duration(float64(wait) * (0.75 + rand.Float64()/2))
	u.failures++
	u.failure = failure
	if u.failures == tellAfter {
		u.warn(fmt.Sprintf("upload: %v; nothing is lost so far, trying again", failure))
	}
	u.asked = time.Now().Add(asked)
	u.notBefore = time.Now().Add(max(wait, asked))
	return failure
}

// post sends the items and returns the answer's status.
func (u *Uploader) post(ctx context.Context, items []Item) (status int, retryAfter time.Duration, err error) {
	body, err := encode(items, time.Now())
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("X-API-Key", u.settings.Key)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", u.settings.UserAgent)
	resp, err := u.settings.Client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	// The status is the answer: a body that breaks off after it must not send the same growth once more. It is read only
	// so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return resp.StatusCode, retryAfterOf(resp.Header.Get("Retry-After"), time.Now()), nil
}

// retryAfterOf reads the header, in seconds or as a date.
func retryAfterOf(value string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) { // then the nearest
		wait = time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// encode makes the gzip-compressed body of a request.
func encode(items []Item, now time.Time) ([]byte, error) {
	request := &pb.UploadRequest{UploadTs: now.UnixNano()}
	for _, item := range items {
		switch {
		case item.Metric != nil:
			request.Metrics = append(request.Metrics, item.Metric)
		case item.Resource != nil:
			request.Resources = append(request.Resources, item.Resource)
		case item.Logs != nil:
			request.LogBatches = append(request.LogBatches, item.Logs)
		}
	}
	raw, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	writer, err := gzip.NewWriterLevel(&body, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(raw); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}
