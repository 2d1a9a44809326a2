package screen

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/kernels"
	"github.com/graphsignal/graphsignal-collector/internal/top/model"
)

// layout draws views as lines of a width.
type layout struct {
	glyphs
	width  int
	trends bool // draw trend lines
}

// blank is the gap between two fields of a heading.
const blank = "  "

// wide is the width from which columns are added that 80 columns have no room for.
const wide = 120

func (l layout) fitAll(lines []line) []line {
	for i := range lines {
		lines[i] = lines[i].fit(l.width, l.glyphs)
	}
	return lines
}

// spread puts the second line at the right edge, if there is room.
func (l layout) spread(a, b line) line {
	gap := l.width - a.width() - b.width()
	if gap < 2 {
		return a
	}
	return append(append(slices.Clone(a), span{normal, strings.Repeat(" ", gap)}), b...)
}

// header is the block that says what is observed: two lines.
func (l layout) header(v model.View) []line {
	h := v.Header
	first := line{{title, orNone(l.clean(h.Host))}}
	var engines []string
	for _, e := range v.Engines {
		engines = append(engines, e.Name)
	}
	if len(engines) > 0 {
		first = append(first, span{normal, blank}, span{strong, strings.Join(engines, ", ")})
	}
	first = append(first, span{normal, blank}, span{normal, orNone(l.clean(h.Command))})
	up := none
	if h.UptimeKnown {
		up = uptime(h.Uptime)
	}
	trace := orNone(h.GraphTrace)
	second := line{
		{dim, "up "}, {normal, up},
		{dim, blank + "instance "}, {normal, orNone(l.clean(h.Instance))},
		{dim, blank + "profiler "}, {normal, orNone(l.clean(h.ProfilerVersion))},
		{dim, blank + "graph trace "}, {normal, trace},
	}
	second = append(second, span{dim, blank + "window "}, span{normal, windowText(v.Span)})
	if v.HostMem.OK && l.width >= wide {
		second = append(second, span{dim, blank + "host mem "}, span{normal, gib(v.HostMem) + "GiB"})
	}
	return l.fitAll([]line{first, second})
}

func windowText(s model.Span) string {
	switch {
	case s.Want == 0:
		return "off: totals"
	case !s.Rated():
		return "totals"
	}
	return fmt.Sprintf("%.1fs", s.Length.Seconds())
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// column is a field of a table.
type column struct {
	head  string
	width int
	left  bool
}

func (c column) cell(text string) string {
	if c.left {
		return left(text, c.width)
	}
	return right(text, c.width)
}

// gpus is one line per GPU under a heading.
func (l layout) gpus(list []model.GPU) []line {
	if len(list) == 0 {
		return []line{{{dim, "no GPU telemetry"}}}
	}
	big := l.width >= wide
	mem, power, clocks, pcie := column{"mem GiB", 11, false}, column{"power W", 8, false}, column{"SM/mem MHz", 10, false}, column{"PCIe tx/rx", 11, false}
	nameWidth, trendWidth := 0, 0
	if big {
		for _, g := range list {
			nameWidth = min(24, max(nameWidth, width(l.clean(g.Name))))
		}
		pcie = column{"PCIe tx/rx B/s", 14, false}
	}
	if l.trends {
		trendWidth = 8
		if big {
			trendWidth = max(8, min(60, l.width-107))
		}
	}
	head := line{{dim, right("GPU", 3)}}
	add := func(s style, text string) { head = append(head, span{s, " " + text}) }
	if nameWidth > 0 {
		add(dim, left("name", nameWidth))
	}
	add(dim, right("util", 4))
	if trendWidth > 0 {
		add(dim, left("", trendWidth))
	}
	add(dim, mem.cell(mem.head))
	add(dim, power.cell(power.head))
	add(dim, right("temp", 4))
	add(dim, clocks.cell(clocks.head))
	add(dim, pcie.cell(pcie.head))
	if big {
		add(dim, right("XID", 4))
		add(dim, "throttle")
	} else {
		add(dim, "state")
	}
	out := []line{head}
	for _, g := range list {
		row := line{{strong, right(fmt.Sprint(g.Index), 3)}}
		put := func(s style, text string) { row = append(row, span{s, " " + text}) }
		if nameWidth > 0 {
			put(normal, left(l.cutTo(orNone(l.clean(g.Name)), nameWidth), nameWidth))
		}
		put(utilStyle(g.Util), right(wholePercent(g.Util), 4))
		if trendWidth > 0 {
			put(good, l.trend(g.Trend, trendWidth, 100))
		}
		put(memoryStyle(g), mem.cell(memoryText(g)))
		put(normal, power.cell(pair(whole(g.Power), whole(g.PowerLimit))))
		put(temperatureStyle(g.Temperature), right(celsius(g.Temperature), 4))
		put(normal, clocks.cell(pair(whole(g.SMClock), whole(g.MemClock))))
		put(normal, pcie.cell(pair(kilobytes(g.PCIeTx), kilobytes(g.PCIeRx))))
		state, stateStyle := throttleText(g, big)
		if big {
			xid := whole(g.XIDErrors)
			s := normal
			if g.XIDErrors.OK && g.XIDErrors.V > 0 {
				s = bad
			}
			put(s, right(xid, 4))
		} else if g.XIDErrors.OK && g.XIDErrors.V > 0 {
			put(bad, "XID "+whole(g.XIDErrors))
		}
		put(stateStyle, state)
		out = append(out, row)
	}
	return l.fitAll(out)
}

// pair prints "a/b", and "-" only once if neither is there.
func pair(a, b string) string {
	if a == none && b == none {
		return none
	}
	return a + "/" + b
}

// memoryText is "n/a" for a device that has no memory of its own to report, such as one with unified memory.
func memoryText(g model.GPU) string {
	if !g.MemUsed.OK && !g.MemTotal.OK {
		if g.Measured {
			return "n/a"
		}
		return none
	}
	return pair(gib(g.MemUsed), gib(g.MemTotal))
}

// kilobytes prints a rate given in kB/s as bytes/s, in at most 5 columns.
func kilobytes(v model.Value) string {
	if !v.OK {
		return none
	}
	return short(v.V*1000, "")
}

func celsius(v model.Value) string {
	if !v.OK {
		return none
	}
	return whole(v) + "C"
}

func wholePercent(v model.Value) string {
	if !v.OK {
		return none
	}
	return whole(v) + "%"
}

func utilStyle(v model.Value) style {
	switch {
	case !v.OK:
		return dim
	case v.V >= 70:
		return good
	}
	return normal
}

func memoryStyle(g model.GPU) style {
	if g.MemUsed.OK && g.MemTotal.OK && g.MemUsed.V > 0.97*g.MemTotal.V {
		return warn
	}
	return normal
}

func temperatureStyle(v model.Value) style {
	if v.OK && v.V >= 85 {
		return warn
	}
	return normal
}

// throttleText is the throttling in words: all reasons, or the first of the worst kind and how many more.
func throttleText(g model.GPU, all bool) (string, style) {
	if !g.ThrottleKnown {
		return none, dim
	}
	s := dim
	reasons := make([]string, 0, len(g.Throttle))
	for _, r := range g.Throttle {
		if r.Hurting {
			s = warn
		}
		reasons = append(reasons, r.Words)
	}
	switch {
	case len(reasons) == 0:
		return "none", dim
	case all || len(reasons) == 1:
		return strings.Join(reasons, ", "), s
	}
	first := reasons[0]
	if i := slices.IndexFunc(g.Throttle, func(r model.Reason) bool { return r.Hurting }); i >= 0 {
		first = reasons[i]
	}
	return fmt.Sprintf("%s +%d", first, len(reasons)-1), s
}

// engines is two lines per engine; three where there is room.
func (l layout) engines(list []model.Engine, rich bool) []line {
	var out []line
	for _, e := range list {
		first := line{
			{title, e.Name},
			{dim, blank + "running "}, {strong, count(e.Running)},
			{dim, blank + "waiting "}, {waitingStyle(e.Waiting), count(e.Waiting)},
			{dim, blank + "KV "}, {kvStyle(e.KVUse), percent(e.KVUse)},
		}
		if e.TokenRate.OK || e.PromptRate.OK {
			first = append(first, span{dim, blank + "tokens/s out "}, span{strong, count(e.TokenRate)}, span{dim, " in "}, span{strong, count(e.PromptRate)})
		} else {
			first = append(first, span{dim, blank + "tokens out "}, span{strong, count(e.TokenTotal)}, span{dim, " in "}, span{strong, count(e.PromptTotal)})
		}
		if l.trends {
			if room := l.width - first.width() - 2; room >= 6 {
				first = append(first, span{normal, blank}, span{good, l.trend(e.Trend, min(room, 60), 0)})
			}
		}
		if e.Age > 5*time.Second {
			first = append(line{{title, e.Name}, {warn, " (read " + uptime(e.Age) + " ago)"}}, first[1:]...)
		}
		out = append(out, first)
		second := line{{dim, "p50/p95 since start"}}
		for _, lat := range e.Latencies {
			if lat.Label == "queue" && !rich {
				continue
			}
			second = append(second, span{dim, blank + lat.Label + " "}, span{normal, pair(seconds(lat.P50), seconds(lat.P95))})
			if lat.Series > 1 && rich {
				second = append(second, span{dim, fmt.Sprintf(" (max of %d)", lat.Series)})
			}
		}
		out = append(out, second)
		if !rich {
			continue
		}
		third := line{{dim, "mean in window     "}}
		for _, lat := range e.Latencies {
			third = append(third, span{dim, blank + lat.Label + " "}, span{normal, seconds(lat.WindowMean)})
		}
		third = append(third, span{dim, blank + "requests finished "}, span{normal, count(e.FinishedTotal)},
			span{dim, " ("}, span{normal, count(e.FinishedRate)}, span{dim, "/s)"},
			span{dim, blank + "tokens out "}, span{normal, count(e.TokenTotal)}, span{dim, " in "}, span{normal, count(e.PromptTotal)})
		if e.PreemptedTotal.OK {
			third = append(third, span{dim, blank + "preempted "}, span{normal, count(e.PreemptedTotal)})
		}
		if e.OwnThroughput.OK {
			third = append(third, span{dim, blank + "own gauge "}, span{normal, count(e.OwnThroughput) + " tok/s"})
		}
		out = append(out, third)
	}
	return l.fitAll(out)
}

func waitingStyle(v model.Value) style {
	if v.OK && v.V > 0 {
		return warn
	}
	return strong
}

func kvStyle(v model.Value) style {
	if v.OK && v.V >= 0.95 {
		return warn
	}
	return strong
}

// tabs is the heading of the rankings with each one's part of the time.
func (l layout) tabs(v model.View, active model.TableKind) line {
	names := []struct {
		kind    model.TableKind
		key, of string
	}{{model.Kernels, "k", "ernels"}, {model.Graphs, "g", "raphs"}, {model.Memory, "m", "emory"}, {model.Sync, "s", "ync"}, {model.Probes, "o", "wn probes"}}
	var out line
	for _, n := range names {
		if n.kind == model.Probes && !v.Tables[n.kind].Present {
			continue // few workloads have any
		}
		text := "[" + n.key + "]" + n.of + " " + weight(v.Tables[n.kind])
		s := dim
		if n.kind == active {
			s = title
			text = ">" + text
		} else {
			text = " " + text
		}
		out = append(out, span{s, text}, span{normal, blank})
	}
	return out
}

// weight is a ranking's part: of the GPUs' time, else time per second, else the total.
func weight(t model.Table) string {
	switch {
	case !t.Present:
		return none
	case t.Share.OK:
		return percent(t.Share)
	case t.Time.OK:
		return nanos(t.Time) + "/s"
	}
	return nanos(model.Value{V: t.Total, OK: true})
}

// groups is kernel time by category, in one line: as many as fit.
func (l layout) groups(list []model.Group) line {
	var out line
	room := l.width
	for _, g := range list {
		if g.Share.V < 0.001 {
			continue
		}
		name, share := string(g.Category), " "+percent(g.Share)
		if l.width < wide {
			name = g.Category.Abbreviation()
		}
		if room -= width(name + share); room < 0 {
			break
		}
		if len(out) > 0 {
			out = append(out, span{normal, blank})
		}
		room -= len(blank)
		out = append(out, span{categoryStyles[g.Category], name}, span{normal, share})
	}
	return out
}

// tableColumns are the number columns of a ranking.
func (l layout) tableColumns(kind model.TableKind, rated bool) []column {
	big := l.width >= 100
	var c []column
	if kind != model.Sync && kind != model.Probes {
		c = append(c, column{"share", 6, false})
	}
	if rated || big {
		c = append(c, column{"time/s", 6, false}, column{"calls/s", 7, false})
	}
	c = append(c, column{"mean", 6, false})
	if kind == model.Memory {
		c = append(c, column{"bytes/s", 9, false})
	}
	if !rated || big {
		c = append(c, column{"total", 6, false})
	}
	if big {
		c = append(c, column{"calls", 6, false})
	}
	return c
}

func cells(r model.Row, columns []column) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		switch c.head {
		case "share":
			out[i] = percent(r.Share)
		case "time/s":
			out[i] = nanos(r.Time)
		case "calls/s":
			out[i] = count(r.Calls)
		case "mean":
			out[i] = nanos(r.Mean)
		case "bytes/s":
			out[i] = perSecond(r.Bytes)
		case "total":
			out[i] = nanos(model.Value{V: r.Total, OK: true})
		case "calls":
			out[i] = count(model.Value{V: r.TotalCalls, OK: true})
		}
	}
	return out
}

// table draws rows under a heading. cursor is the index of the selected row among them, -1 for none.
func (l layout) table(kind model.TableKind, rated bool, rows []model.Row, cursor int) []line {
	columns := l.tableColumns(kind, rated)
	head := "  "
	for _, c := range columns {
		head += c.cell(c.head) + " "
	}
	category := 0
	if kind == model.Kernels {
		category = 6
		if l.width >= wide {
			category = len(kernels.MoE)
		}
		head += left("kind", category) + " "
	}
	name := max(8, l.width-width(head))
	head += "name"
	out := []line{line{{dim, head}}.fit(l.width, l.glyphs)}
	names := l.rowNames(rows, name)
	for i, r := range rows {
		text := "  "
		if i == cursor {
			text = "> "
		}
		for j, cell := range cells(r, columns) {
			text += columns[j].cell(cell) + " "
		}
		row := line{{normal, text}}
		if category > 0 {
			kind := r.Category.Abbreviation()
			if category > 6 {
				kind = string(r.Category)
			}
			row = append(row, span{categoryStyles[r.Category], left(kind, category) + " "})
		}
		row = append(row, span{normal, names[i]})
		row = row.fit(l.width, l.glyphs)
		if i == cursor {
			if pad := l.width - row.width(); pad > 0 {
				row = append(row, span{normal, strings.Repeat(" ", pad)})
			}
			row = row.all(selected)
		}
		out = append(out, row)
	}
	return out
}

// rowNames cuts names to a width and keeps those apart that become equal by it.
func (l layout) rowNames(rows []model.Row, w int) []string {
	out := make([]string, len(rows))
	uses := make(map[string]int, len(rows))
	for i, r := range rows {
		out[i] = l.middle(orNone(l.clean(r.Name)), w)
		uses[out[i]]++
	}
	for i, r := range rows {
		if uses[out[i]] > 1 {
			h := fnv.New32a()
			_, _ = h.Write([]byte(r.ID))
			mark := fmt.Sprintf(" #%06x", h.Sum32()>>8)
			out[i] = l.cutTo(l.clean(r.Name), max(1, w-len(mark))) + mark
		}
	}
	return out
}

// errors is the newest entries, newest first, at most max lines.
func (l layout) errors(e model.Errors, most int) []line {
	if e.Count == 0 {
		return []line{{{dim, "no errors"}}}
	}
	var out []line
	for i, entry := range e.Newest {
		if i == most {
			break
		}
		s := bad
		if entry.Level == "warning" {
			s = warn
		}
		age := none
		if entry.Age.OK {
			age = uptime(time.Duration(min(entry.Age.V, 1e9) * 1e9))
		}
		row := line{{s, l.cutTo(orNone(l.clean(entry.Level)), 10)}, {normal, " " + age + " ago"}}
		if i == 0 {
			row = append(row, span{dim, fmt.Sprintf(" (1 of %d)", e.Count)})
		}
		row = append(row, span{normal, blank + orNone(l.clean(entry.Message))})
		if entry.Source != "" {
			row = append(row, span{dim, blank + "[" + l.clean(entry.Source) + "]"})
		}
		out = append(out, row)
	}
	return l.fitAll(out)
}

// details is everything about one row, wrapped to the width.
func (l layout) details(v model.View, kind model.TableKind, r model.Row) []line {
	var out []line
	field := func(name, value string) {
		const indent = 12
		for i, part := range wrap(value, max(10, l.width-indent)) {
			label := left("", indent)
			if i == 0 {
				label = left(name, indent)
			}
			out = append(out, line{{dim, label}, {normal, part}})
		}
	}
	out = append(out, line{{title, l.clean(r.Name)}})
	if kind == model.Kernels {
		field("category", string(r.Category))
		if r.Detail != r.Frame {
			field("demangled", l.clean(r.Detail))
		}
	}
	field("symbol", orNone(l.clean(r.Frame)))
	totalMean := model.Value{}
	if r.TotalCalls > 0 {
		totalMean = model.Value{V: r.Total / r.TotalCalls, OK: true}
	}
	total := func(t, calls float64) string {
		return left(nanos(model.Value{V: t, OK: true}), 8) + " " + left(count(model.Value{V: calls, OK: true})+" calls", 14)
	}
	field("since start", total(r.Total, r.TotalCalls)+" mean "+nanos(totalMean))
	if r.TotalBytes.OK {
		field("", short(r.TotalBytes.V, "B"))
	}
	if v.Span.Rated() {
		text := fmt.Sprintf("%s/s  %s calls/s  mean %s", nanos(r.Time), count(r.Calls), nanos(r.Mean))
		if r.Share.OK {
			text = "share of GPU time " + percent(r.Share) + "  " + text
		}
		if r.Bytes.OK {
			text += "  " + perSecond(r.Bytes)
		}
		field("window "+windowText(v.Span), text)
	}
	out = append(out, line{})
	out = append(out, line{{dim, left("process", 10) + left("rank", 6) + right("time/s", 8) + right("calls/s", 9) + right("total", 9) + right("calls", 8) + "  command"}})
	parts := slices.Clone(r.Processes)
	slices.SortStableFunc(parts, func(a, b model.Share) int {
		switch {
		case a.Time.V != b.Time.V:
			return sign(b.Time.V - a.Time.V)
		default:
			return sign(b.Total - a.Total)
		}
	})
	for _, p := range parts {
		out = append(out, line{
			{strong, left(l.cutTo(orNone(l.clean(p.PID)), 9), 10)}, {normal, left(l.cutTo(orNone(l.clean(p.Rank)), 5), 6)},
			{normal, right(nanos(p.Time), 8) + right(count(p.Calls), 9) + right(nanos(model.Value{V: p.Total, OK: true}), 9) + right(count(model.Value{V: p.TotalCalls, OK: true}), 8)},
			{dim, "  " + l.clean(v.Processes[p.PID])},
		})
	}
	return l.fitAll(out)
}

func sign(v float64) int {
	switch {
	case v < 0:
		return -1
	case v > 0:
		return 1
	}
	return 0
}

// warnings are the profile's statements about itself.
func (l layout) warnings(list []string) []line {
	var out []line
	for _, w := range list {
		out = append(out, line{{warn, "note: " + w}}.fit(l.width, l.glyphs))
	}
	return out
}
