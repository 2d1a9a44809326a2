package screen

import (
	"fmt"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/top/model"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

const (
	// plainWidth is the width of a page that no terminal limits.
	plainWidth = 160
	// pageRows bounds the rows of each ranking on a page.
	pageRows = 50
	// pageErrors bounds the errors on a page: as many as /signals carries.
	pageErrors = 10
)

// page is a whole view as one text, every ranking included: for files, pipes and terminals without cursor movement.
func (l layout) page(v model.View, address string, at time.Time, notes []string) []line {
	out := []line{{
		{title, "graphsignal-top " + version.Version},
		{normal, blank + l.clean(address) + blank + at.UTC().Format("2006-01-02T15:04:05Z")},
	}}
	out = append(out, l.header(v)...)
	out = append(out, l.warnings(append(notes, v.Warnings...))...)
	section := func(lines []line) {
		out = append(out, line{})
		out = append(out, lines...)
	}
	section(l.gpus(v.GPUs))
	if len(v.Engines) > 0 {
		section(l.engines(v.Engines, true))
	}
	for _, kind := range model.AllTables {
		t := v.Tables[kind]
		if !t.Present {
			continue
		}
		head := line{{title, kind.Title()}, {normal, blank + tableSummary(t, v)}}
		section([]line{head})
		if kind == model.Kernels && len(v.Groups) > 0 {
			out = append(out, l.groups(v.Groups))
		}
		if len(t.Rows) == 0 {
			continue
		}
		rows := t.Rows
		if len(rows) > pageRows {
			rows = rows[:pageRows]
		}
		out = append(out, l.table(kind, v.Span.Rated(), rows, -1)...)
		if rest := len(t.Rows) - len(rows); rest > 0 {
			out = append(out, line{{dim, fmt.Sprintf("  and %d more", rest)}})
		}
	}
	section(l.errors(v.Errors, pageErrors))
	return l.fitAll(out)
}

// tableSummary is what a ranking adds up to.
func tableSummary(t model.Table, v model.View) string {
	text := fmt.Sprintf("%d listed, %s since the start", len(t.Rows), nanos(model.Value{V: t.Total, OK: true}))
	if v.Span.Rated() {
		text += ", " + nanos(t.Time) + " per second in the window"
	}
	if t.Share.OK {
		text += ", " + percent(t.Share) + " of GPU time"
	}
	if t.Unlisted.OK && t.Unlisted.V > 0 {
		text += "; beyond the list " + unlistedText(t, v)
	}
	return text
}

func unlistedText(t model.Table, v model.View) string {
	if v.Span.Rated() {
		return nanos(t.Unlisted) + " per second"
	}
	return nanos(t.Unlisted)
}
