package enginereceiver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/prom"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/sockets"
)

const (
	// firstRetry and lastRetry bound the time between two tries at a page that fails; it doubles between them.
	firstRetry = 4 * time.Second
	lastRetry  = time.Minute
)

// scraper scrapes one page. Its methods are called by one goroutine at a time.
type scraper struct {
	page   *EndpointConfig
	logger *zap.Logger
	next   consumer.Metrics
	now    func() time.Time
	slack  time.Duration // how much early a tick may be

	refused *collect.Refused
	fetcher *fetcher
	parser  *prom.Parser
	builder builder

	// The workload, where the extension is there.
	processes workload.Reader
	verify    bool
	finder    *sockets.Finder
	host      string
	ports     []uint16 // the one in use is the first

	due      time.Time     // no try before
	delay    time.Duration // before the next try, 0 after a good one
	verified bool          // the last try gave a page
	absent   bool          // that there is none was told, and there was none since
	found    bool          // the owner was looked for since
	owner    workload.Process

	warned    map[string]bool // what is said once
	malformed string          // the line last complained about
}

func newScraper(ctx context.Context, r *engineReceiver, page *EndpointConfig) (*scraper, error) {
	f, err := newFetcher(ctx, page, r.cfg.Timeout)
	if err != nil {
		return nil, err
	}
	port := f.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[f.url.Scheme]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	ports := []uint16{uint16(number)}
	for _, other := range page.OtherPorts {
		ports = append(ports, uint16(other))
	}
	builder := newBuilder(page.Tags)
	taken := make([]string, len(builder.tags))
	for i, tag := range builder.tags {
		taken[i] = tag.Key
	}
	logger := r.set.Logger.With(zap.String("endpoint", f.url.Redacted()))
	return &scraper{
		page:    page,
		logger:  logger,
		next:    r.next,
		now:     r.now,
		slack:   r.cfg.Interval / 10,
		refused: collect.NewRefused(logger, "Engine metrics were refused"),
		fetcher: f,
		parser:  prom.NewParser(r.cfg.MaxSeries, taken...),
		builder: builder,
		finder:  sockets.NewFinder(r.cfg.ProcFSPath),
		host:    f.url.Hostname(),
		ports:   ports,
		due:     r.now().Add(r.cfg.InitialDelay),
		warned:  make(map[string]bool),
	}, nil
}

// follow makes the scraper look at the workload's processes, and with verify read no page that is not theirs.
func (s *scraper) follow(processes workload.Reader, verify bool) {
	s.processes, s.verify = processes, verify
}

func (s *scraper) close() {
	s.fetcher.close()
	if s.processes != nil {
		s.processes.Close()
	}
}

// collect is one tick.
func (s *scraper) collect(ctx context.Context) {
	processes := s.living()
	now := s.now()
	if now.Add(s.slack).Before(s.due) {
		return
	}
	var address netip.AddrPort
	if s.verify {
		var err error
		if address, err = s.locate(ctx, processes); err != nil {
			s.unowned(now, err)
			return
		}
	}
	body, contentType, err := s.fetcher.fetch(ctx, address)
	if err == nil {
		var page prom.Page
		if page, err = s.parser.Parse(body, contentType, now.UnixNano()); err == nil {
			s.succeed(ctx, processes)
			s.complain(page)
			s.emit(ctx, page, now)
			return
		}
	}
	if ctx.Err() == nil {
		s.fail(now, err)
	}
}

// living lists the workload's processes and lets go of those that have ended: nothing of theirs is read here.
func (s *scraper) living() []workload.Process {
	if s.processes == nil {
		return nil
	}
	all := s.processes.Processes()
	living := all[:0:0]
	for _, p := range all {
		if p.Ended {
			s.processes.Done(p)
			continue
		}
		living = append(living, p)
	}
	return living
}

// locate returns the address at which one of the processes serves the endpoint, and notes that process.
func (s *scraper) locate(ctx context.Context, processes []workload.Process) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, s.fetcher.timeout)
	defer cancel()
	addresses, err := resolve(ctx, s.host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	pids := make([]int, len(processes))
	for i, p := range processes {
		pids[i] = p.PID
	}
	ports := s.ports
	if !s.verify {
		ports = ports[:1]
	}
	var reason error
	for i, port := range ports {
		pid, address, err := s.finder.Find(ctx, pids, addresses, port)
		if err != nil {
			// While a port is free the engine may still come to listen there.
			if reason == nil || errors.Is(err, sockets.ErrNobody) {
				reason = err
			}
			continue
		}
		for _, p := range processes {
			if p.PID == pid {
				s.owner = p
			}
		}
		if i > 0 {
			ports[0], ports[i] = port, ports[0]
			s.fetcher.use(port)
			s.logger.Debug("The engine listens on another of its ports", zap.Uint16("port", port))
		}
		return address, nil
	}
	return netip.AddrPort{}, reason
}

// resolve returns the addresses that a host stands for.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address.Unmap()}, nil
	}
	if host == "localhost" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	return addresses, err
}

// unowned takes note that the endpoint is not known to be the workload's. As long as nobody listens the next tick looks
// again, which costs little and disturbs nobody.
func (s *scraper) unowned(now time.Time, err error) {
	s.verified, s.owner = false, workload.Process{}
	if errors.Is(err, sockets.ErrNobody) {
		s.due, s.delay = now, 0
		s.logger.Debug("No process listens on the engine's metrics port yet")
		return
	}
	again := s.delay > 0 // a process that is younger than the list of processes looks foreign once
	s.retry(now, time.Second)
	s.logger.Debug("The engine's metrics page is not read", zap.Error(err))
	if !again {
		return
	}
	switch hint := "; --metrics-port (verify_owner: false) has it read all the same"; {
	case errors.Is(err, sockets.ErrForeign), errors.Is(err, sockets.ErrUnreadable):
		s.warn(fmt.Sprintf("The engine's metrics page on port %d is not read: %v%s", s.ports[0], err, hint))
	case errors.Is(err, sockets.ErrNamespace):
		s.warn(fmt.Sprintf("The engine's metrics page on port %d is not read: %v", s.ports[0], err))
	}
}

// retry sets the time of the next try.
func (s *scraper) retry(now time.Time, first time.Duration) {
	s.delay = min(max(2*s.delay, first), lastRetry)
	s.due = now.Add(s.delay)
}

func (s *scraper) fail(now time.Time, err error) {
	switch {
	case s.verified:
		s.logger.Info("The engine's metrics page is gone", zap.Error(err))
	case !s.absent:
		s.logger.Info("The engine's metrics page cannot be read yet; it is tried again", zap.Error(err))
	}
	s.absent = true
	s.verified, s.found = false, false
	s.retry(now, firstRetry)
	s.logger.Debug("The engine's metrics page cannot be read", zap.Error(err), zap.Duration("next_try_in", s.delay))
	var status statusError
	if errors.As(err, &status) {
		if hint := settingFor(s.page.Engine, int(status)); hint != "" {
			s.warn(hint)
		}
	}
}

// settingFor says which setting an engine lacks that answers with that status where its page should be.
func settingFor(engine string, status int) string {
	switch {
	case engine == engines.TensorRTLLM && status == http.StatusNotFound:
		return "TensorRT-LLM serves no engine metrics: set return_perf_metrics: true in its options file " +
			"(--extra_llm_api_options or --config), and enable_iter_perf_stats: true for those of iterations"
	case engine == engines.SGLang && status == http.StatusNotFound:
		return "SGLang serves no engine metrics: start it with --enable-metrics"
	case engine == engines.LlamaCPP && (status == http.StatusNotImplemented || status == http.StatusNotFound):
		return "llama-server serves no engine metrics: start it with --metrics"
	case engine == engines.LlamaCPP && status == http.StatusUnauthorized:
		return "llama-server refuses its metrics page without an API key: set the receiver's headers"
	}
	return ""
}

// warn says something once.
func (s *scraper) warn(message string) {
	if !s.warned[message] {
		s.warned[message] = true
		s.logger.Warn(message)
	}
}

// succeed takes note of a good page.
func (s *scraper) succeed(ctx context.Context, processes []workload.Process) {
	s.due, s.delay = time.Time{}, 0
	if !s.verified {
		s.logger.Info("The engine's metrics page is read")
	}
	s.verified, s.absent = true, false
	if s.verify || s.found || len(processes) == 0 {
		return
	}
	// Whoever it belongs to, it is read; only the beginning of its counters is not known then.
	s.found = true
	if _, err := s.locate(ctx, processes); err != nil {
		s.owner = workload.Process{}
	}
}

// complain says that parts of a page were left out, once for each that comes first.
func (s *scraper) complain(page prom.Page) {
	if page.Malformed > 0 && page.FirstMalformed != s.malformed {
		s.malformed = page.FirstMalformed
		s.logger.Warn("Lines of the engine's metrics page cannot be read",
			zap.Error(fmt.Errorf("%d of them, first %q", page.Malformed, page.FirstMalformed)))
	}
	if page.Dropped > 0 {
		s.logger.Debug("Lines of the engine's metrics page were left out", zap.Int("lines", page.Dropped))
		s.warn("The engine's metrics page has more series (max_series), or more labels in one, than are kept of it")
	}
}

// emit hands the page's series on.
func (s *scraper) emit(ctx context.Context, page prom.Page, now time.Time) {
	if len(page.Series) == 0 {
		return
	}
	metrics := s.builder.build(page.Series, s.owner.StartTime, now.UnixNano())
	if err := s.next.ConsumeMetrics(ctx, metrics); err != nil && ctx.Err() == nil {
		s.refused.Add(err)
	}
}
