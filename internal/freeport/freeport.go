// Package freeport hands out TCP ports to tests and benchmarks that start servers by their port number.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports below those that Linux gives to connections and to listeners on port 0 (net.ipv4.ip_local_port_range, 32768 and
// up by default), so that one which is free now stays so.
const lowest, count = 21000, 9000

var (
	mu    sync.Mutex
	taken []net.Listener
)

// New returns a port that nothing listens on. No other caller gets it while this process lives, in whatever process of
// the same network namespace: each is marked by an abstract Unix socket.
func New() (int, error) { return from(rand.IntN(count)) }

// from is New that looks at the start-th port first.
func from(start int) (int, error) {
	for i := range count {
		port := lowest + (start+i)%count
		mark, err := net.Listen("unix", fmt.Sprintf("@graphsignal-freeport-%d", port))
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			_ = mark.Close() // somebody else's
			continue
		}
		_ = listener.Close() // only to see that it can be had
		mu.Lock()
		taken = append(taken, mark)
		mu.Unlock()
		return port, nil
	}
	return 0, errors.New("no TCP port is free")
}

// Get is New for tests.
func Get(t interface {
	Helper()
	Fatal(args ...any)
}) int {
	t.Helper()
	port, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
