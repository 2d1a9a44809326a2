package prom

import (
	"bytes"
	"slices"
	"strings"
)

// kind is the type that a page declares for a family.
type kind uint8

const (
	// unknownKind is also that of families without declaration.
	unknownKind kind = iota
	counterKind
	gaugeKind
	histogramKind
	summaryKind
	// unsupportedKind stands for the types that have no counterpart here: info, stateset and gaugehistogram.
	unsupportedKind
)

func kindOf(word string) kind {
	switch word {
	case "counter":
		return counterKind
	case "gauge":
		return gaugeKind
	case "histogram":
		return histogramKind
	case "summary":
		return summaryKind
	case "info", "stateset", "gaugehistogram":
		return unsupportedKind
	}
	return unknownKind
}

// maxHelp is the most bytes kept of a description.
const maxHelp = 1024

// family is what a page declares about a name.
type family struct {
	name string
	kind kind
	help string
	// place is where among the declarations of the page it stands.
	place int

	// The lines that said so.
	typeLine, helpLine string
}

// describe takes a description of at most maxHelp bytes; words is its whole line.
func (f *family) describe(help, words []byte) {
	help = bytes.ToValidUTF8(help, nil)
	remember(&f.help, help)
	remember(&f.helpLine, words)
}

// remember copies a text unless it is there already.
func remember(to *string, text []byte) {
	if *to != string(text) {
		*to = string(text)
	}
}

// declarations are the families a page declares, in their order. As long as the next page declares the same, what was
// concluded from them for a line still holds.
type declarations struct {
	order  []*family
	byName map[string]*family
	next   int
	// undeclared says that samples were seen that no declaration covered.
	undeclared bool
	// bare are their names.
	bare map[string]bool
	// disorder says that a name of the current page was declared twice, or after a sample of it. What such a declaration
	// covers depends on where it stands, so nothing may be concluded from it for the next page.
	disorder bool
}

func newDeclarations() declarations {
	return declarations{byName: make(map[string]*family), bare: make(map[string]bool)}
}

// declare takes the next declaration of the current page. It reports whether what was concluded before from the
// declarations may no longer hold.
func (d *declarations) declare(name []byte, k kind) (f *family, changed bool) {
	if d.next < len(d.order) {
		if f = d.order[d.next]; f.kind == k && f.name == string(name) {
			d.next++
			return f, false
		}
	}
	changed = d.next < len(d.order) || d.undeclared || d.byName[string(name)] != nil
	d.undeclared = false
	d.disorder = d.disorder || d.isLate(string(name))
	for _, stale := range d.order[d.next:] {
		if d.byName[stale.name] == stale {
			delete(d.byName, stale.name)
		}
	}
	f = &family{name: string(name), kind: k, place: d.next}
	d.order = append(d.order[:d.next], f)
	d.byName[f.name] = f
	d.next++
	return f, changed
}

// isLate reports whether the current page declared the name before, or showed a sample that its declaration may cover.
func (d *declarations) isLate(name string) bool {
	if f := d.byName[name]; f != nil && f.place < d.next || d.bare[name] {
		return true
	}
	return slices.ContainsFunc(suffixes, func(s suffix) bool { return d.bare[name+s.text] })
}

// recall takes a line that the page before had in the same place, and reports whether it is one.
func (d *declarations) recall(words []byte) bool {
	if d.next < len(d.order) {
		f := d.order[d.next]
		if f.typeLine == string(words) {
			d.next++
			return true
		}
		if f.helpLine == string(words) {
			return true
		}
	}
	return d.next > 0 && d.order[d.next-1].helpLine == string(words)
}

// role is what a sample is to its series.
type role uint8

const (
	ignoredRole role = iota
	valueRole
	countRole
	sumRole
	bucketRole
	createdRole
)

type suffix struct {
	text  string
	role  role
	kinds []kind
}

// suffixes maps the endings of sample names to their role, and says in which kinds of families they occur.
var suffixes = []suffix{
	{"_total", valueRole, []kind{counterKind}},
	{"_bucket", bucketRole, []kind{histogramKind}},
	{"_count", countRole, []kind{histogramKind, summaryKind}},
	{"_sum", sumRole, []kind{histogramKind, summaryKind}},
	{createdSuffix, createdRole, []kind{counterKind, histogramKind, summaryKind}},
	{"_bucket", ignoredRole, []kind{unsupportedKind}},
	{"_gcount", ignoredRole, []kind{unsupportedKind}},
	{"_gsum", ignoredRole, []kind{unsupportedKind}},
	{"_info", ignoredRole, []kind{unsupportedKind}},
}

const (
	createdSuffix = "_created"
	totalSuffix   = "_total"
)

// of returns the family of a sample's name and its role there. Names that nothing declares are gauges of a family
// of their own.
func (d *declarations) of(name string) (*family, role) {
	if f, ok := d.byName[name]; ok {
		switch f.kind {
		case counterKind, gaugeKind, unknownKind:
			if f.kind != counterKind && strings.HasSuffix(name, createdSuffix) {
				return f, createdRole
			}
			return f, valueRole
		}
		return f, ignoredRole // quantiles of a summary, states, infos
	}
	for _, s := range suffixes {
		base, ok := strings.CutSuffix(name, s.text)
		if !ok {
			continue
		}
		if f, ok := d.byName[base]; ok {
			for _, k := range s.kinds {
				if f.kind == k {
					return f, s.role
				}
			}
		}
	}
	d.undeclared = true
	if len(d.bare) < maxLines {
		d.bare[strings.Clone(name)] = true
	}
	f := &family{name: name}
	if strings.HasSuffix(name, createdSuffix) {
		return f, createdRole
	}
	return f, valueRole
}

// published is the name of the family's series: counters lose "_total".
func (f *family) published() string {
	if f.kind == counterKind {
		return strings.TrimSuffix(f.name, totalSuffix)
	}
	return f.name
}
