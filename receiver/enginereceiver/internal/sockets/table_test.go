package sockets

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func row(local, state string, inode int) string {
	return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0000000000000000 100 0 0 10 0\n",
		local, state, inode)
}

func TestAppendListeners(t *testing.T) {
	table := heading +
		row("0100007F:1F40", "0A", 11) +
		row("00000000:1F40", "0A", 12) +
		row("0100007F:1F41", "0A", 13) + // another port
		row("0100007F:1F40", "01", 14) + // established
		row("0100007F:1F40", "0A", 0) + // without inode
		row("0100007F", "0A", 15) + row("0100007X:1F40", "0A", 16) + row("0100007F:1F400", "0A", 17) + "\n short\n" +
		row("00000000000000000000000001000000:1F40", "0A", 18) +
		row("0000000000000000FFFF00000100007F:1F40", "0A", 19)
	got, err := AppendListeners(nil, strings.NewReader(table), 8000)
	require.NoError(t, err)
	assert.Equal(t, []Listener{
		{netip.MustParseAddrPort("127.0.0.1:8000"), 11},
		{netip.MustParseAddrPort("0.0.0.0:8000"), 12},
		{netip.MustParseAddrPort("[::1]:8000"), 18},
		{netip.MustParseAddrPort("[::ffff:127.0.0.1]:8000"), 19},
	}, got)

	busy := heading + strings.Repeat(row("0100007F:1F40", "01", 5), 2*maxOthers) + row("0100007F:1F40", "0A", 6)
	got, err = AppendListeners(nil, strings.NewReader(busy), 8000)
	require.NoError(t, err)
	assert.Empty(t, got, "listening sockets come first")

	_, err = AppendListeners(nil, strings.NewReader(strings.Repeat("x", 5000)), 8000)
	assert.Error(t, err)
}

func TestServing(t *testing.T) {
	listeners := func(addresses ...string) []Listener {
		var all []Listener
		for i, a := range addresses {
			all = append(all, Listener{netip.AddrPortFrom(netip.MustParseAddr(a), 80), uint64(i + 1)})
		}
		return all
	}
	for _, c := range []struct {
		to        string
		listening []string
		want      []uint64
	}{
		{"127.0.0.1", nil, nil},
		{"127.0.0.1", []string{"127.0.0.1"}, []uint64{1}},
		{"127.0.0.1", []string{"127.0.0.2", "::1", "10.0.0.1"}, nil},
		{"127.0.0.1", []string{"0.0.0.0", "127.0.0.1"}, []uint64{2}},
		{"127.0.0.1", []string{"::", "0.0.0.0"}, []uint64{2}},
		{"127.0.0.1", []string{"::"}, []uint64{1}},
		{"127.0.0.1", []string{"0.0.0.0", "::ffff:127.0.0.1"}, []uint64{2}},
		{"127.0.0.1", []string{"127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1"}, []uint64{1, 3}},
		{"::ffff:127.0.0.1", []string{"127.0.0.1"}, []uint64{1}},
		{"::1", []string{"0.0.0.0", "127.0.0.1"}, nil},
		{"::1", []string{"::", "::1"}, []uint64{2}},
		{"::1", []string{"::"}, []uint64{1}},
		{"fe80::1%eth0", []string{"fe80::1"}, []uint64{1}},
		{"10.0.0.1", []string{"0.0.0.0", "0.0.0.0"}, []uint64{1, 2}},
	} {
		var got []uint64
		for _, l := range Serving(listeners(c.listening...), netip.MustParseAddr(c.to)) {
			got = append(got, l.Inode)
		}
		assert.Equal(t, c.want, got, "%s among %v", c.to, c.listening)
	}
}

func FuzzAppendListeners(f *testing.F) {
	f.Add(heading + row("0100007F:1F40", "0A", 11) + row("00000000000000000000000001000000:1F40", "0A", 18))
	f.Add("a b :1F40 0A\n  0: 0100007F:1F40 x 0A 1 2 3 4 5 99999999999999999999\n")
	f.Fuzz(func(t *testing.T, table string) {
		got, _ := AppendListeners(nil, strings.NewReader(table), 8000)
		for _, l := range got {
			if l.Address.Port() != 8000 || l.Inode == 0 || !l.Address.IsValid() {
				t.Fatalf("%+v", l)
			}
		}
		// A socket is found whatever rows stand around it, unless they are no rows of a table.
		if strings.Count(table, "\n") > maxOthers-8 || slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool { return len(line) > 4000 }) {
			return
		}
		around, err := AppendListeners(got, strings.NewReader(table+"\n"+row("0100007F:1F40", "0A", 77)+table), 8000)
		if err != nil || !slices.Contains(around[len(got):], Listener{netip.MustParseAddrPort("127.0.0.1:8000"), 77}) {
			t.Fatalf("%+v, %v", around, err)
		}
	})
}
