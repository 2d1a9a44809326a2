package sockets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Why an address is not known to be served by the processes asked about.
var (
	// ErrNobody means that nobody listens there.
	ErrNobody = errors.New("nobody listens there")
	// ErrForeign means that another process listens there.
	ErrForeign = errors.New("it belongs to another process")
	// ErrUnreadable means that the descriptors of some of the processes may not be read, and none of the others listens.
	ErrUnreadable = errors.New("the descriptors of its processes cannot be read")
	// ErrNamespace means that one of them listens there, but in another network namespace, where a connection from
	// here does not arrive.
	ErrNamespace = errors.New("it is in another network namespace")
)

// maxDescriptors is the most descriptors looked at in one search.
const maxDescriptors = 1 << 18

// Finder looks for the process that serves an address. It remembers the last answer and only checks whether that
// still holds as long as it does. It is not for concurrent use.
type Finder struct {
	procfs string

	last answer
}

// answer is a search's good result.
type answer struct {
	pid         int
	address     netip.AddrPort
	inodes      []uint64
	descriptors []string // the links that lead to the inodes
}

// NewFinder returns a Finder on a process table.
func NewFinder(procfs string) *Finder { return &Finder{procfs: procfs} }

// Find returns the first of the addresses that one of the processes serves, and that process. It tells the cases
// above apart where none does.
func (f *Finder) Find(ctx context.Context, pids []int, addresses []netip.Addr, port uint16) (pid int, address netip.AddrPort, err error) {
	if f.last.pid != 0 && slices.Contains(pids, f.last.pid) && f.last.address.Port() == port &&
		slices.Contains(addresses, f.last.address.Addr()) && f.holds() {
		return f.last.pid, f.last.address, nil
	}
	f.last = answer{}
	here := f.namespace("self")
	var result error = ErrNobody
	seen := make(map[string]bool)
	for _, pid := range pids {
		namespace := f.namespace(strconv.Itoa(pid))
		if seen[namespace] {
			continue
		}
		listeners, err := f.listeners(pid, port)
		if err != nil {
			continue // gone, or without a network of its own to read
		}
		seen[namespace] = true
		elsewhere := here != "" && namespace != "" && namespace != here
		for _, address := range addresses {
			serving := Serving(listeners, address)
			if len(serving) == 0 {
				continue
			}
			found, err := f.owners(ctx, pids, serving)
			switch {
			case err != nil:
				if ctx.Err() != nil {
					return 0, netip.AddrPort{}, ctx.Err()
				}
				result = worse(result, err)
			case elsewhere && (address.IsLoopback() || serving[0].Address.Addr().IsUnspecified()):
				// From here that address leads to somebody else, or may do so.
				result = worse(result, ErrNamespace)
			default:
				found.address = netip.AddrPortFrom(address, port)
				f.last = found
				return found.pid, found.address, nil
			}
		}
	}
	return 0, netip.AddrPort{}, result
}

// worse keeps the reason that says most.
func worse(a, b error) error {
	for _, most := range []error{ErrNamespace, ErrUnreadable, ErrForeign} {
		switch {
		case errors.Is(a, most):
			return a
		case errors.Is(b, most):
			return b
		}
	}
	return a
}

// holds reports whether the last answer is still right.
func (f *Finder) holds() bool {
	for i, path := range f.last.descriptors {
		if inode, ok := socketInode(path); !ok || inode != f.last.inodes[i] {
			return false
		}
	}
	listeners, err := f.listeners(f.last.pid, f.last.address.Port())
	if err != nil {
		return false
	}
	serving := Serving(listeners, f.last.address.Addr())
	if len(serving) != len(f.last.inodes) {
		return false
	}
	for _, l := range serving {
		if !slices.Contains(f.last.inodes, l.Inode) {
			return false
		}
	}
	return true
}

// owners finds every one of the sockets among the processes' descriptors.
func (f *Finder) owners(ctx context.Context, pids []int, wanted []Listener) (answer, error) {
	var found answer
	unreadable, looked := false, 0
	for _, pid := range pids {
		dir := filepath.Join(f.procfs, strconv.Itoa(pid), "fd")
		names, err := os.Open(dir)
		if err != nil {
			unreadable = unreadable || errors.Is(err, fs.ErrPermission)
			continue
		}
		for {
			batch, err := names.Readdirnames(256)
			for _, name := range batch {
				path := filepath.Join(dir, name)
				inode, ok := socketInode(path)
				if !ok || slices.Contains(found.inodes, inode) ||
					!slices.ContainsFunc(wanted, func(l Listener) bool { return l.Inode == inode }) {
					continue
				}
				if found.pid == 0 {
					found.pid = pid
				}
				found.inodes = append(found.inodes, inode)
				found.descriptors = append(found.descriptors, path)
			}
			looked += len(batch)
			if err != nil || len(found.inodes) == len(wanted) || looked >= maxDescriptors || ctx.Err() != nil {
				unreadable = unreadable || errors.Is(err, fs.ErrPermission)
				break
			}
		}
		names.Close() //nolint:errcheck // only read
		switch {
		case len(found.inodes) == len(wanted):
			return found, nil
		case ctx.Err() != nil:
			return answer{}, ctx.Err()
		case looked >= maxDescriptors:
			return answer{}, fmt.Errorf("%w: more than %d of them", ErrUnreadable, maxDescriptors)
		}
	}
	if unreadable {
		return answer{}, ErrUnreadable
	}
	return answer{}, ErrForeign
}

// listeners reads the tables of a process's network namespace.
func (f *Finder) listeners(pid int, port uint16) ([]Listener, error) {
	var all []Listener
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.Open(filepath.Join(f.procfs, strconv.Itoa(pid), "net", name))
		if err != nil {
			if name == "tcp6" && errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without IPv6
			}
			return nil, err
		}
		all, err = AppendListeners(all, table, port)
		table.Close() //nolint:errcheck // only read
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// namespace identifies a process's network namespace; it is empty when it cannot be read.
func (f *Finder) namespace(process string) string {
	link, err := os.Readlink(filepath.Join(f.procfs, process, "ns", "net"))
	if err != nil {
		return ""
	}
	return link
}

// socketInode returns the inode of a descriptor that is a socket.
func socketInode(path string) (uint64, bool) {
	link, err := os.Readlink(path)
	if err != nil {
		return 0, false
	}
	text, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, err == nil
}
