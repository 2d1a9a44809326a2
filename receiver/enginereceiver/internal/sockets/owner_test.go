package sockets

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loopback(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }

// The process table of this machine, and a socket of this test.
func TestFindInTheProcessTable(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	own, parent := os.Getpid(), os.Getppid()
	f := NewFinder("/proc")
	ctx := context.Background()

	for range 2 { // found, then remembered
		pid, address, err := f.Find(ctx, []int{parent, own}, loopback("127.0.0.1"), port)
		require.NoError(t, err)
		assert.Equal(t, own, pid)
		assert.Equal(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), address)
	}
	pid, address, err := f.Find(ctx, []int{own}, []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}, port)
	require.NoError(t, err)
	assert.Equal(t, own, pid)
	assert.Equal(t, "127.0.0.1", address.Addr().String(), "the address that is served")

	_, _, err = f.Find(ctx, []int{parent}, loopback("127.0.0.1"), port)
	assert.ErrorIs(t, err, ErrForeign)
	_, _, err = f.Find(ctx, []int{own}, loopback("::1"), port)
	assert.ErrorIs(t, err, ErrNobody)
	_, _, err = f.Find(ctx, nil, loopback("127.0.0.1"), port)
	assert.ErrorIs(t, err, ErrNobody)

	_, _, err = f.Find(ctx, []int{own}, loopback("127.0.0.1"), port)
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, _, err = f.Find(ctx, []int{own}, loopback("127.0.0.1"), port)
	assert.ErrorIs(t, err, ErrNobody, "what is remembered is checked")
}

// table is a process table made of files.
type table struct {
	t    *testing.T
	root string
}

func newTable(t *testing.T) table { return table{t, t.TempDir()} }

func (p table) process(pid int, namespace, tcp string, inodes ...int) {
	dir := filepath.Join(p.root, strconv.Itoa(pid))
	require.NoError(p.t, os.RemoveAll(dir))
	for _, sub := range []string{"fd", "net", "ns"} {
		require.NoError(p.t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, "net", "tcp"), []byte(heading+tcp), 0o644))
	require.NoError(p.t, os.Symlink("net:["+namespace+"]", filepath.Join(dir, "ns", "net")))
	require.NoError(p.t, os.Symlink("/dev/null", filepath.Join(dir, "fd", "0")))
	for i, inode := range inodes {
		require.NoError(p.t, os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "fd", strconv.Itoa(3+i))))
	}
}

func (p table) self(pid int) {
	require.NoError(p.t, os.Symlink(strconv.Itoa(pid), filepath.Join(p.root, "self")))
}

func (p table) find(f *Finder, address string, pids ...int) (int, error) {
	pid, _, err := f.Find(context.Background(), pids, loopback(address), 8000)
	return pid, err
}

func TestFind(t *testing.T) {
	p := newTable(t)
	p.process(1, "1", "")
	p.self(1)
	ours := row("0100007F:1F40", "0A", 11)
	p.process(20, "1", ours, 5)
	p.process(21, "1", ours, 7, 11)
	f := NewFinder(p.root)
	pid, err := p.find(f, "127.0.0.1", 20, 21)
	require.NoError(t, err)
	assert.Equal(t, 21, pid)
	_, err = p.find(f, "127.0.0.1", 20)
	assert.ErrorIs(t, err, ErrForeign, "an answer holds only for the processes asked about")
	_, err = p.find(f, "127.0.0.1", 99, 98)
	assert.ErrorIs(t, err, ErrNobody, "processes that are gone")

	// A process of ours behind the wildcard, another one before it.
	both := row("00000000:1F40", "0A", 11) + row("0100007F:1F40", "0A", 12)
	p.process(20, "1", both)
	p.process(21, "1", both, 11)
	_, err = p.find(f, "127.0.0.1", 20, 21)
	assert.ErrorIs(t, err, ErrForeign)

	// A shared port of which only one half is ours.
	shared := row("0100007F:1F40", "0A", 11) + row("0100007F:1F40", "0A", 12)
	p.process(20, "1", shared)
	p.process(21, "1", shared, 11)
	_, err = p.find(f, "127.0.0.1", 20, 21)
	assert.ErrorIs(t, err, ErrForeign)
	p.process(20, "1", shared, 12)
	_, err = p.find(f, "127.0.0.1", 20, 21)
	assert.NoError(t, err)
	// The other half goes to another process.
	p.process(20, "1", shared)
	_, err = p.find(f, "127.0.0.1", 20, 21)
	assert.ErrorIs(t, err, ErrForeign)
}

func TestFindInAnotherNamespace(t *testing.T) {
	p := newTable(t)
	p.process(1, "1", "")
	p.self(1)
	p.process(20, "1", "")
	p.process(21, "2", row("00000000:1F40", "0A", 11), 11)
	p.process(22, "2", row("00000000:1F40", "0A", 11), 11)
	f := NewFinder(p.root)
	for _, address := range []string{"127.0.0.1", "10.0.0.5"} {
		_, err := p.find(f, address, 20, 21, 22)
		assert.ErrorIs(t, err, ErrNamespace, address)
	}
	// A foreign process that has the loopback here is never reached instead.
	p.process(20, "1", row("0100007F:1F40", "0A", 50))
	_, err := p.find(f, "127.0.0.1", 20, 21)
	assert.ErrorIs(t, err, ErrNamespace)
	// An address that only that namespace has.
	p.process(21, "2", row("0500000A:1F40", "0A", 11), 11)
	pid, err := p.find(f, "10.0.0.5", 20, 21)
	require.NoError(t, err)
	assert.Equal(t, 21, pid)
}

func TestFindWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("everything may be read")
	}
	p := newTable(t)
	p.process(20, "1", row("0100007F:1F40", "0A", 11), 11)
	require.NoError(t, os.Chmod(filepath.Join(p.root, "20", "fd"), 0))
	_, err := p.find(NewFinder(p.root), "127.0.0.1", 20)
	assert.ErrorIs(t, err, ErrUnreadable)
}

func TestWorse(t *testing.T) {
	unreadable := fmt.Errorf("%w: too many", ErrUnreadable)
	assert.Equal(t, ErrForeign, worse(ErrNobody, ErrForeign))
	assert.Equal(t, unreadable, worse(unreadable, ErrForeign))
	assert.Equal(t, unreadable, worse(ErrForeign, unreadable))
	assert.Equal(t, ErrNamespace, worse(ErrNamespace, unreadable))
	assert.Equal(t, ErrNobody, worse(ErrNobody, ErrNobody))
}
