// Package sockets finds out from the process table who listens on a TCP port.
package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"strconv"
)

// Listener is a listening TCP socket.
type Listener struct {
	// Address is where it listens; an IPv4 address in a table of IPv6 sockets is IPv4-mapped.
	Address netip.AddrPort
	// Inode identifies the socket.
	Inode uint64
}

const (
	// maxTable is the most bytes read of a table.
	maxTable = 16 << 20
	// maxOthers is how many sockets in another state may follow one another before the rest of a table is taken to hold
	// no listening ones: the kernel lists those first.
	maxOthers = 1024

	listenState = "0A"
)

// AppendListeners reads a table in the format of /proc/net/tcp or /proc/net/tcp6 (the kernel's
// Documentation/networking/proc_net_tcp.rst; addresses are 32-bit words in the machine's byte order) and appends the
// sockets that listen on the port. Lines it does not understand are passed over.
func AppendListeners(dst []Listener, table io.Reader, port uint16) ([]Listener, error) {
	lines := bufio.NewScanner(io.LimitReader(table, maxTable))
	// Small reads, so that the kernel need not print what will not be looked at.
	lines.Buffer(make([]byte, 4096), 4096)
	for others := 0; lines.Scan() && others < maxOthers; {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 10 || string(fields[3]) != listenState {
			others++
			continue
		}
		others = 0
		address, ok := parseAddress(fields[1])
		if !ok || address.Port() != port {
			continue
		}
		inode, err := strconv.ParseUint(string(fields[9]), 10, 64)
		if err != nil || inode == 0 {
			continue
		}
		dst = append(dst, Listener{Address: address, Inode: inode})
	}
	return dst, lines.Err()
}

func parseAddress(text []byte) (netip.AddrPort, bool) {
	host, port, ok := bytes.Cut(text, []byte{':'})
	if !ok || len(host) != 8 && len(host) != 32 {
		return netip.AddrPort{}, false
	}
	var raw [16]byte
	n, err := hex.Decode(raw[:], host)
	if err != nil {
		return netip.AddrPort{}, false
	}
	number, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for word := raw[:n]; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	address, _ := netip.AddrFromSlice(raw[:n])
	return netip.AddrPortFrom(address, uint16(number)), true
}

// Serving returns those of the listeners that a connection to the address would reach: the kernel prefers an exact
// address to a wildcard and, for IPv4, a socket of that family to one of IPv6. More than one share a port
// (SO_REUSEPORT).
func Serving(listeners []Listener, address netip.Addr) []Listener {
	var serving []Listener
	best := 0
	for _, l := range listeners {
		switch rank := rankOf(l.Address.Addr(), address.Unmap()); {
		case rank == 0 || rank < best:
		case rank > best:
			best = rank
			serving = append(serving[:0], l)
		default:
			serving = append(serving, l)
		}
	}
	return serving
}

func rankOf(local, address netip.Addr) int {
	v4 := local.Is4()
	switch {
	case !address.Is4() && v4:
		return 0
	case local.Unmap() == address.WithZone(""):
		if v4 {
			return 4
		}
		return 3
	case local.Unmap().IsUnspecified():
		if v4 {
			return 2
		}
		if local.Is4In6() && !address.Is4() {
			return 0
		}
		return 1
	}
	return 0
}
