package signalsexporter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second

	maxHeaderBytes = 16 << 10
	maxConnections = 256
	// closeTime is how long replies in progress may take when the endpoint ends.
	closeTime = 100 * time.Millisecond
)

// endpoint serves the document over HTTP.
type endpoint struct {
	cfg      *Config
	settings component.TelemetrySettings
	document *document

	server   *http.Server
	hosts    *hostNames         // set before the first request
	workload workload.Extension // nil without it
	stop     context.CancelFunc
	stopped  context.Context
	running  sync.WaitGroup
	open     atomic.Int64 // connections
}

func newEndpoint(cfg *Config, settings component.TelemetrySettings, d *document) *endpoint {
	return &endpoint{cfg: cfg, settings: settings, document: d}
}

// start makes the first attempt to bind, and goes on in the background. Only wrong settings are an error.
func (e *endpoint) start(ctx context.Context, host component.Host) error {
	if e.cfg.TLS.HasValue() {
		if _, err := e.cfg.TLS.Get().LoadTLSConfig(ctx); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	server, err := e.cfg.ToServer(ctx, host.GetExtensions(), e.settings, http.HandlerFunc(e.serve))
	if err != nil {
		return err
	}
	server.MaxHeaderBytes = maxHeaderBytes
	// A client that hangs up, or speaks no HTTP, is no error of ours.
	if server.ErrorLog, err = zap.NewStdLogAt(e.settings.Logger, zapcore.DebugLevel); err != nil {
		return err
	}
	server.ConnState = e.count
	e.server = server
	e.workload = workload.Find(host)
	e.stopped, e.stop = context.WithCancel(context.Background())
	e.running.Go(func() { e.document.renderAhead(e.stopped.Done()) })

	listener, err := e.cfg.ToListener(ctx)
	if err == nil {
		e.bound(listener)
		return nil
	}
	address, reason := e.cfg.NetAddr.Endpoint, bindReason(err)
	e.settings.Logger.Warn("The signals endpoint cannot listen on "+address+"; it goes on trying", zap.Error(reason))
	componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(fmt.Errorf("cannot listen on %s: %w", address, reason)))
	if e.workload != nil {
		e.workload.EndpointBindFailed(address, reason)
	}
	e.running.Go(func() { e.retry(host) })
	return nil
}

// retry binds as soon as that works.
func (e *endpoint) retry(host component.Host) {
	wait := firstRetry
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-e.stopped.Done():
			return
		case <-timer.C:
		}
		listener, err := e.cfg.ToListener(e.stopped)
		if err == nil {
			if e.stopped.Err() != nil {
				_ = listener.Close()
				return
			}
			e.bound(listener)
			componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
			return
		}
		e.settings.Logger.Debug("The signals endpoint still cannot listen", zap.Error(err))
		wait = min(2*wait, lastRetry)
		timer.Reset(wait)
	}
}

// bindReason is the operating system's word on a failed bind, without the address that net repeats.
func bindReason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

func (e *endpoint) bound(listener net.Listener) {
	address := listener.Addr().String()
	e.hosts = newHostNames(e.cfg.NetAddr.Endpoint, e.cfg.AllowedHosts, listener.Addr())
	e.settings.Logger.Info("Serving signals", zap.String("address", address))
	e.running.Go(func() {
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.settings.Logger.Error("The signals endpoint ended", zap.Error(err))
		}
	})
	if e.workload != nil {
		e.workload.EndpointBound(address)
	}
}

// count closes connections beyond the limit as soon as they come.
func (e *endpoint) count(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if e.open.Add(1) > maxConnections {
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		e.open.Add(-1)
	}
}

// shutdown ends the server, gives replies in progress a moment, and waits for every goroutine.
func (e *endpoint) shutdown(ctx context.Context) error {
	if e.server == nil {
		return nil
	}
	e.stop()
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	err := e.server.Shutdown(ctx)
	if err != nil {
		err = e.server.Close()
	}
	e.running.Wait()
	return err
}

// serve answers every request.
func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if failure := recover(); failure != nil {
			if failure == http.ErrAbortHandler {
				panic(failure)
			}
			e.settings.Logger.Error("A request for signals failed", zap.Error(fmt.Errorf("%v", failure)))
			writeJSON(w, r, http.StatusInternalServerError, `{"error": "internal error"}`)
		}
	}()
	if !e.hosts.allow(r) {
		writeJSON(w, r, http.StatusForbidden, hostRefusal)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, r, http.StatusMethodNotAllowed, `{"error": "method not allowed"}`)
		return
	}
	switch strings.TrimSuffix(r.URL.EscapedPath(), "/") {
	case "/signals":
		e.serveSignals(w, r)
	case "/health":
		writeJSON(w, r, http.StatusOK, `{"status": "ok"}`)
	default:
		writeJSON(w, r, http.StatusNotFound, `{"error": "not found"}`)
	}
}

func (e *endpoint) serveSignals(w http.ResponseWriter, r *http.Request) {
	head := e.document.head(nil)
	s := e.document.reply()
	before, body, after := head, s.rest, []byte(nil)
	header := w.Header()
	header.Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header) {
		before, after = e.document.gzipReply(s, head)
		body = s.compressed()
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(before)+len(body)+len(after)))
	if r.Method == http.MethodHead {
		return
	}
	for _, part := range [][]byte{before, body, after} {
		if _, err := w.Write(part); err != nil {
			e.settings.Logger.Debug("A client hung up during a reply", zap.Error(err))
			return
		}
	}
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, body string) {
	header := w.Header()
	header.Del("Content-Encoding")
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body)) // fails only when the client is gone
	}
}

// acceptsGzip reads Accept-Encoding: gzip (or x-gzip) named with a weight above 0.
func acceptsGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(coding, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if name != "gzip" && name != "x-gzip" {
				continue
			}
			key, weight, ok := strings.Cut(strings.ToLower(params), "=")
			if !ok || strings.TrimSpace(key) != "q" {
				return true
			}
			q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			return err == nil && q > 0
		}
	}
	return false
}
