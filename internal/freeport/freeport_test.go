package freeport

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
)

// TestNew: two processes, and a server that chose by itself, share the ports without a collision.
func TestNew(t *testing.T) {
	const each = 100
	next := func() int {
		t.Helper()
		port, err := from(0)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	if os.Getenv("FREEPORT_TEST_CHILD") != "" {
		for range each {
			fmt.Println(next())
		}
		_, _ = fmt.Scanln() // they are its own until it ends
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNew$")
	child.Env = append(os.Environ(), "FREEPORT_TEST_CHILD=1")
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[int]bool)
	note := func(port int) {
		t.Helper()
		if seen[port] || port < lowest || port >= lowest+count {
			t.Fatalf("port %d, after %d others", port, len(seen))
		}
		seen[port] = true
	}
	for range each {
		var port int
		if _, err := fmt.Fscan(output, &port); err != nil {
			t.Fatal(err)
		}
		note(port)
	}
	// A server without a mark.
	port := next()
	server, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	mu.Lock()
	_ = taken[len(taken)-1].Close()
	mu.Unlock()
	note(port)
	for range each {
		note(next())
	}
	_ = input.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
