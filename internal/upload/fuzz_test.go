package upload

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/store"
)

// scripted answers every request with the same bytes, as if they came from the server, and whoever only asks with a page.
type scripted []byte

func (s scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\n\r\n")), r)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(s)), r)
}

// FuzzAnswer: whatever the server answers, what it did not take is owed as before, what it took is owed no more, and the next
// attempt is neither at once nor in the far future.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 429 x\r\nRetry-After: 120\r\n\r\n",
		"HTTP/1.1 503 x\r\nRetry-After: Wed, 21 Oct 2115 07:28:00 GMT\r\n\r\n", "HTTP/1.0 500\r\nRetry-After: 99999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "HTTP/1.1 401 x\r\n\r\n", "HTTP/1.1 413 x\r\n\r\n", "HTTP/1.1 400 x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"HTTP/1.1 307 x\r\nLocation: /api/v1/ingest\r\n\r\n", "HTTP/1.1 302 x\r\nLocation: http://elsewhere/\r\n\r\n", "HTTP/1.1 100 x\r\n\r\n", "x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		var warnings []string
		u := NewUploader(Settings{
			Base: "http://ingest.test", Key: "secret", UserAgent: "test",
			Client: &http.Client{Transport: scripted(answer)},
			Warn:   func(text string) { warnings = append(warnings, text) },
		})
		s := store.New()
		at := time.Now().UnixNano()
		s.Update(func(batch *store.Batch) {
			batch.Counter("a_total", nil, series.Int(7), at, at)
			batch.Gauge("b", nil, series.Int(9), at, at)
		})
		u.Observe(s)
		u.AddLog(LogEntry{Level: "error", Message: "m", Time: 1})
		owed := func() []Item {
			items := append(u.ledger.Owed(), u.logs.items()...)
			for _, item := range items {
				u.ledger.Release(item)
			}
			return items
		}
		before := owed()
		sent := time.Now()
		err := u.Send(t.Context())
		after := owed()
		if first, e := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil); e == nil {
			taken := first.StatusCode/100 == 2
			final := taken || first.StatusCode == http.StatusBadRequest || first.StatusCode == http.StatusRequestEntityTooLarge
			if taken && err != nil || !final && err == nil {
				t.Fatalf("status %d, and %v", first.StatusCode, err)
			}
		}
		if err == nil {
			if len(after) != 0 || u.notBefore.After(sent) {
				t.Fatalf("%d items are owed after a success, the next request waits until %v", len(after), u.notBefore)
			}
			return
		}
		if u.dropped != 0 {
			t.Fatalf("%d dropped after %v", u.dropped, err)
		}
		if len(after) != len(before) {
			t.Fatalf("%d items were owed, %d are after %v", len(before), len(after), err)
		}
		for i := range before {
			if !sameItem(before[i], after[i]) {
				t.Fatalf("owed %v, then %v", before[i], after[i])
			}
		}
		if wait := u.notBefore.Sub(sent); wait < firstBackoff/2 || wait > maxRetryAfter+maxBackoff {
			t.Fatalf("the next request waits for %v", wait)
		}
		for _, w := range warnings {
			if len(w) > 200 || strings.ContainsFunc(w, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("warning %q", w)
			}
		}
	})
}

func sameItem(a, b Item) bool {
	return proto.Equal(a.Metric, b.Metric) && proto.Equal(a.Resource, b.Resource) && proto.Equal(a.Logs, b.Logs)
}

// FuzzRetryAfter: a number of seconds is waited for, up to the bound, and any other text asks for nothing impossible.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"0", "7", "-1", "601", "99999999999999999999", "1e3", "Wed, 21 Oct 2015 07:28:00 GMT", "Wednesday, 21-Oct-15 07:28:00 GMT", ""} {
		f.Add(seed, int64(1445412000))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix%math.MaxInt32, 0)
		got := retryAfterOf(value, now)
		if got < 0 || got > maxRetryAfter {
			t.Fatalf("%q: %v", value, got)
		}
		if n, ok := new(big.Int).SetString(value, 10); ok && len(value) < 40 && strings.Trim(value, "0123456789") == "" {
			want := maxRetryAfter
			if n.IsInt64() && n.Int64() < int64(maxRetryAfter/time.Second) {
				want = time.Duration(n.Int64()) * time.Second
			}
			if got != want {
				t.Fatalf("%q: %v, want %v", value, got, want)
			}
		}
	})
}
