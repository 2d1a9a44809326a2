// Package upload turns snapshots of a store into growth that a server accumulates, and sends it once a second.
//
// It keeps state, not a queue: a Ledger knows for every series what was last observed and what the server is
// still owed. A request carries what is owed; an acknowledgement takes it off. So an outage costs no memory,
// loses nothing, and ends with one larger request. Delivery is at least once: when a response is lost, its
// growth is sent again.
package upload

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	pb "github.com/graphsignal/graphsignal-collector/proto"
)

// maxAccounts bounds the series that a Ledger remembers, those included that the store has already forgotten.
const maxAccounts = 2 * store.MaxSeries

// Ledger holds what was observed and what is owed. It is not safe for concurrent use.
type Ledger struct {
	global []series.Tag

	accounts  map[string]*account
	byID      map[uint64]*account
	resources map[string]*resourceAccount
	round     uint64
	forgotten uint64
	since     int64

	key []byte
}

// NewLedger returns an empty Ledger whose messages carry the global tags, under each signal's own.
func NewLedger(global map[string]string) *Ledger {
	l := &Ledger{
		accounts:  make(map[string]*account),
		byID:      make(map[uint64]*account),
		resources: make(map[string]*resourceAccount),
	}
	for key, value := range global {
		l.global = append(l.global, series.Tag{Key: key, Value: value})
	}
	return l
}

// Forgotten counts series whose unsent growth was given up because too many were remembered.
func (l *Ledger) Forgotten() uint64 { return l.forgotten }

// Observe takes the store's current values into account.
func (l *Ledger) Observe(v store.View) {
	l.round++
	for s := range v.Series() {
		a := l.account(s)
		a.round = l.round
		a.observe(s)
	}
	for r := range v.Resources() {
		l.observeResource(r)
	}
	for id, a := range l.byID {
		if a.round != l.round {
			delete(l.byID, id)
		}
	}
	for key, r := range l.resources {
		if r.round != l.round {
			delete(l.resources, key)
		}
	}
	l.bound()
}

// account finds the account of a series, also of one that the store had forgotten meanwhile.
func (l *Ledger) account(s *store.Series) *account {
	if a, ok := l.byID[s.ID]; ok {
		return a
	}
	key := l.identity(byte(s.Type), s.Name, s.Tags)
	a, ok := l.accounts[string(key)]
	if !ok {
		a = &account{key: string(key), name: text(s.Name), typ: s.Type, tags: l.tags(s.Tags), since: l.since}
		l.accounts[a.key] = a
	}
	l.byID[s.ID] = a
	return a
}

func (l *Ledger) identity(kind byte, name string, tags []series.Tag) []byte {
	l.key = appendField(append(l.key[:0], kind), name)
	for _, t := range tags {
		l.key = appendField(appendField(l.key, t.Key), t.Value)
	}
	return l.key
}

// appendField appends s so that what follows can never be mistaken for its end.
func appendField(key []byte, s string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(s))), s...)
}

// text makes a string fit for a protobuf field, which takes no invalid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// tags merges global and own tags into message form, sorted by key.
func (l *Ledger) tags(own []series.Tag) []*pb.Tag {
	merged := series.NormalizeTags(append(slices.Clone(l.global), own...))
	out := make([]*pb.Tag, len(merged))
	for i, t := range merged {
		out[i] = &pb.Tag{Key: text(t.Key), Value: text(t.Value)}
	}
	return out
}

// bound gives up the accounts that were observed longest ago: first those that owe nothing.
func (l *Ledger) bound() {
	excess := len(l.accounts) - maxAccounts
	if excess <= 0 {
		return
	}
	gone := make([]*account, 0, len(l.accounts))
	for _, a := range l.accounts {
		if a.round != l.round && !a.inFlight {
			gone = append(gone, a)
		}
	}
	slices.SortFunc(gone, func(a, b *account) int {
		if aOwes, bOwes := a.owes(), b.owes(); aOwes != bOwes {
			if aOwes {
				return 1
			}
			return -1
		}
		if a.round < b.round {
			return -1
		}
		return 1
	})
	for _, a := range gone[:min(excess, len(gone))] {
		if a.owes() {
			l.forgotten++
		}
		delete(l.accounts, a.key)
	}
}

// resourceAccount is a resource and the last sight of it that the server knows.
type resourceAccount struct {
	message      *pb.Resource
	acknowledged int64
	round        uint64
}

func (l *Ledger) observeResource(r *store.Resource) {
	key := l.identity('r', r.Kind, r.Tags)
	a, ok := l.resources[string(key)]
	if !ok {
		a = &resourceAccount{}
		l.resources[string(key)] = a
	}
	a.round = l.round
	if a.message != nil && a.message.LastSeenTs == r.LastSeen {
		return
	}
	m := &pb.Resource{Kind: text(r.Kind), Tags: l.tags(r.Tags), FirstSeenTs: r.FirstSeen, LastSeenTs: r.LastSeen}
	for _, t := range r.Attributes {
		m.Attributes = append(m.Attributes, &pb.Attribute{Name: text(t.Key), Value: text(t.Value)})
	}
	a.message = m
}

// Item is one message of a request, and what becomes of the Ledger when the request is over.
type Item struct {
	Metric   *pb.Metric
	Resource *pb.Resource
	Logs     *pb.LogBatch

	account  *account
	resource *resourceAccount
	entries  []uint64 // sequence numbers of the log entries
}

// Owed lists what the server does not know yet, series by name, then resources. Every Item must be given to
// Acknowledge or Release before Owed is called again.
func (l *Ledger) Owed() []Item {
	var items []Item
	for _, a := range l.accounts {
		if m := a.message(); m != nil {
			a.inFlight = true
			items = append(items, Item{Metric: m, account: a})
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		if a.account.key < b.account.key {
			return -1
		}
		return 1
	})
	for _, r := range l.resources {
		if r.message.LastSeenTs != r.acknowledged {
			items = append(items, Item{Resource: r.message, resource: r})
		}
	}
	return items
}

// Acknowledge records that the server has taken an Item, or that it never will.
func (l *Ledger) Acknowledge(item Item) {
	switch {
	case item.account != nil:
		item.account.inFlight = false
		item.account.acknowledge(item.Metric)
	case item.resource != nil:
		item.resource.acknowledged = item.Resource.LastSeenTs
	}
}

// Release records that an Item was not taken and is owed still.
func (l *Ledger) Release(item Item) {
	if item.account != nil {
		item.account.inFlight = false
	}
}
