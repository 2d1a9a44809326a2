package scene

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
)

// Server serves a scene on loopback: each request gets the next second of it.
type Server struct {
	Port int

	mu     sync.Mutex
	tick   int
	last   int
	freed  chan struct{}
	make   func(tick int) []byte
	server *httptest.Server
}

// Serve starts a server. The first request gets the document of second first; requests for seconds after last wait until
// GoOn or Close, so that a picture stands still for a moment.
func Serve(scene func(tick int) []byte, first, last int) *Server {
	s := &Server{tick: first, last: last, make: scene, freed: make(chan struct{})}
	s.server = httptest.NewServer(http.HandlerFunc(s.handle))
	_, port, err := net.SplitHostPort(s.server.Listener.Addr().String())
	if err == nil {
		s.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		panic(err) // an address of our own making
	}
	return s
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/signals" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	tick, wait := s.tick, s.tick > s.last
	freed := s.freed
	if !wait {
		s.tick++
	}
	s.mu.Unlock()
	if wait {
		select {
		case <-freed:
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
		tick = s.tick
		s.tick++
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.make(tick))
}

// GoOn lets the scene run to second last.
func (s *Server) GoOn(last int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
	close(s.freed)
	s.freed = make(chan struct{})
}

// Close ends the server and its requests.
func (s *Server) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}
