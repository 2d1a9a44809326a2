package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
	"github.com/graphsignal/graphsignal-collector/internal/top/model"
)

const (
	// period is the time between two reads.
	period = time.Second
	// maxFilter bounds the filter text, in characters.
	maxFilter = 64
)

// windows are the lengths that + and - step through.
var windows = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
	2 * time.Minute, 5 * time.Minute,
}

type mode int

const (
	ranking mode = iota
	details
	help
)

// reader is where documents come from.
type reader interface {
	Read(context.Context) (*endpoint.Document, error)
	Address() string
}

// app is the interactive program.
type app struct {
	ctx    context.Context
	source reader
	views  *views
	glyphs glyphs
	now    func() time.Time

	width, height int
	window        time.Duration
	view          model.View
	ready         bool    // view is filled
	number        int     // of view
	newest        picture // also while paused
	updated       time.Time
	failure       error // of the last read, nil if it succeeded
	failedSince   time.Time
	paused        bool

	mode     mode
	kind     model.TableKind
	chosen   bool // the user has picked a ranking
	cursor   int
	selected string // ID of the row that the cursor follows when the ranking changes, "" for the first
	offset   int    // first row shown
	rows     []model.Row
	visible  int // rows that fit
	scroll   int // of details and help
	text     int // lines of details or help

	editing bool
	filter  string
}

// views computes the views of what was read, outside of the loop that takes the keys: what that costs depends on who sends.
type views struct {
	mu      sync.Mutex
	history *model.History
	number  int
	window  atomic.Int64 // nanoseconds
}

// picture is one of the views, numbered in the order in which they were computed.
type picture struct {
	number int
	view   model.View
	ok     bool // there is one
}

// after computes the view after a further document, nil for none.
func (v *views) after(doc *endpoint.Document, at time.Time) picture {
	v.mu.Lock()
	defer v.mu.Unlock()
	if doc != nil {
		v.history.Add(doc, at)
	}
	v.history.SetWindow(time.Duration(v.window.Load()))
	v.number++
	p := picture{number: v.number}
	p.view, p.ok = v.history.View()
	return p
}

type readMsg struct {
	picture picture
	err     error
	started time.Time
	at      time.Time
}

// windowMsg is the view of another window.
type windowMsg picture

type dueMsg struct{}

func newApp(ctx context.Context, source reader, window time.Duration, g glyphs) *app {
	a := &app{ctx: ctx, source: source, views: &views{history: model.NewHistory(window)}, glyphs: g, now: time.Now, width: 80, height: 24}
	a.setWindow(window)
	return a
}

func (a *app) setWindow(w time.Duration) {
	a.window = w
	a.views.window.Store(int64(w))
}

// Init starts the first read.
func (a *app) Init() tea.Cmd { return a.read }

func (a *app) read() tea.Msg {
	m := readMsg{started: a.now()}
	var doc *endpoint.Document
	doc, m.err = a.source.Read(a.ctx)
	m.at = a.now()
	if m.err == nil {
		m.picture = a.views.after(doc, m.at)
	}
	return m
}

// Update handles one event.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		a.width, a.height = max(m.Width, 1), max(m.Height, 1)
	case readMsg:
		a.take(m)
		return a, tea.Tick(max(0, period-m.at.Sub(m.started)), func(time.Time) tea.Msg { return dueMsg{} })
	case windowMsg:
		a.newest = picture(m)
		if !a.paused {
			a.refresh()
		}
	case dueMsg:
		return a, a.read
	case tea.KeyPressMsg:
		return a, a.key(m)
	case tea.PasteMsg:
		if a.editing {
			a.extendFilter(m.Content)
		}
	}
	return a, nil
}

func (a *app) take(m readMsg) {
	if m.err != nil {
		if a.failure == nil {
			a.failedSince = m.at
		}
		a.failure = m.err
		return
	}
	a.failure = nil
	a.newest = m.picture
	if !a.paused {
		a.refresh()
		a.updated = m.at
	}
}

// refresh shows the newest view.
func (a *app) refresh() {
	if !a.newest.ok || a.newest.number < a.number {
		return
	}
	a.view, a.ready, a.number = a.newest.view, true, a.newest.number
	if !a.chosen {
		first := model.Kernels
		if !a.view.Tables[model.Kernels].Present && a.view.Tables[model.Probes].Present {
			first = model.Probes // a workload without a GPU
		}
		a.show(first)
	}
	a.selectRows()
}

// selectRows applies the filter and keeps the cursor on its frame.
func (a *app) selectRows() {
	all := a.view.Tables[a.kind].Rows
	a.rows = all
	if a.filter != "" {
		want := strings.ToLower(a.filter)
		a.rows = nil
		for _, r := range all {
			if strings.Contains(strings.ToLower(r.Name), want) || strings.Contains(strings.ToLower(string(r.Category)), want) ||
				strings.Contains(strings.ToLower(r.Frame), want) || strings.Contains(strings.ToLower(r.Detail), want) {
				a.rows = append(a.rows, r)
			}
		}
	}
	if a.selected != "" {
		if i := slices.IndexFunc(a.rows, func(r model.Row) bool { return r.ID == a.selected }); i >= 0 {
			a.cursor = i
		}
	}
	a.cursor = max(0, min(a.cursor, len(a.rows)-1))
}

// moveTo puts the cursor on a row, which it follows from then on. On the first row it stays: the top of the ranking.
func (a *app) moveTo(i int) {
	a.cursor = max(0, min(i, len(a.rows)-1))
	a.selected = ""
	if a.cursor > 0 {
		a.selected = a.rows[a.cursor].ID
	}
}

func (a *app) choose(kind model.TableKind) {
	a.chosen = true
	a.show(kind)
}

func (a *app) show(kind model.TableKind) {
	if a.kind != kind {
		a.kind, a.cursor, a.offset, a.selected = kind, 0, 0, ""
		a.selectRows()
	}
}

func (a *app) key(m tea.KeyPressMsg) tea.Cmd {
	name := m.String()
	switch name {
	case "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	}
	if a.editing {
		a.editKey(m, name)
		return nil
	}
	if a.mode != ranking {
		switch name {
		case "q":
			return tea.Quit
		case "esc", "enter", "?", "backspace":
			a.mode, a.scroll = ranking, 0
		default:
			a.scroll = a.moved(name, a.scroll, max(0, a.text-(a.height-2)))
		}
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "?", "h":
		a.mode, a.scroll = help, 0
	case "enter":
		if len(a.rows) > 0 {
			a.selected = a.rows[a.cursor].ID
			a.mode, a.scroll = details, 0
		}
	case "esc":
		a.filter = ""
		a.selectRows()
	case "k":
		a.choose(model.Kernels)
	case "g":
		a.choose(model.Graphs)
	case "m":
		a.choose(model.Memory)
	case "s":
		a.choose(model.Sync)
	case "o":
		a.choose(model.Probes)
	case "/":
		a.editing = true
	case "p":
		a.paused = !a.paused
		if !a.paused {
			a.refresh()
			a.updated = a.now()
		}
	case "+", "=":
		return a.stepWindow(+1)
	case "-", "_":
		return a.stepWindow(-1)
	default:
		a.moveTo(a.moved(name, a.cursor, len(a.rows)-1))
	}
	return nil
}

// moved is a position after a movement key.
func (a *app) moved(key string, at, last int) int {
	pageSize := max(1, a.visible-1)
	if a.mode != ranking {
		pageSize = max(1, a.height-3)
	}
	switch key {
	case "up":
		at--
	case "down":
		at++
	case "pgup":
		at -= pageSize
	case "pgdown", "space":
		at += pageSize
	case "home":
		at = 0
	case "end":
		at = last
	}
	return max(0, min(at, last))
}

func (a *app) editKey(m tea.KeyPressMsg, name string) {
	switch name {
	case "enter":
		a.editing = false
	case "esc":
		a.editing, a.filter = false, ""
	case "backspace":
		if a.filter == "" {
			a.editing = false
		} else {
			_, n := utf8.DecodeLastRuneInString(a.filter)
			a.filter = a.filter[:len(a.filter)-n]
		}
	case "ctrl+u":
		a.filter = ""
	default:
		a.extendFilter(m.Text)
		return
	}
	a.selectRows()
}

func (a *app) extendFilter(text string) {
	for _, r := range a.glyphs.clean(text) {
		if utf8.RuneCountInString(a.filter) < maxFilter {
			a.filter += string(r)
		}
	}
	a.selectRows()
}

func (a *app) stepWindow(by int) tea.Cmd {
	now := a.window
	next := now
	if by > 0 {
		for _, w := range windows {
			if w > now {
				next = w
				break
			}
		}
	} else {
		for _, w := range slices.Backward(windows) {
			if w < now {
				next = w
				break
			}
		}
	}
	a.setWindow(next)
	return func() tea.Msg { return windowMsg(a.views.after(nil, time.Time{})) }
}

// View draws the screen.
func (a *app) View() tea.View {
	v := tea.NewView(render(a.screen(), true))
	v.AltScreen = true
	return v
}

// screen is exactly as many lines as the terminal has.
func (a *app) screen() []line {
	l := layout{glyphs: a.glyphs, width: a.width, trends: true}
	var body []line
	footer := a.footer(l)
	room := a.height - 1
	switch {
	case a.mode == help:
		body = a.scrolled(helpText(l), room)
	case !a.ready:
		body = a.waiting(l)
	case a.mode == details:
		body = a.detailLines(l, room)
	default:
		body = a.ranking(l, room)
	}
	if len(body) > room {
		body = body[:room]
	}
	for len(body) < room {
		body = append(body, line{})
	}
	return append(l.fitAll(body), footer)
}

func (a *app) waiting(l layout) []line {
	out := []line{{{title, "graphsignal-top"}, {normal, blank + "reading " + l.clean(a.source.Address())}}}
	if a.failure != nil {
		out = append(out,
			line{},
			line{{bad, "not reachable: "}, {normal, l.clean(a.failure.Error())}},
			line{{dim, "tried every second since " + a.failedSince.Format("15:04:05")}},
			line{},
			line{{dim, "A profiler answers there while a workload runs under graphsignal-run;"}},
			line{{dim, "one on another machine must have been started with --listen-host."}})
	}
	return l.fitAll(out)
}

// status is a line about the view itself: out of date, paused, incomplete.
func (a *app) status(l layout) []line {
	var out []line
	if a.failure != nil {
		age := uptime(a.now().Sub(a.updated))
		out = append(out, line{
			{bad, "STALE since " + a.updated.Format("15:04:05") + " (" + age + ")"},
			{normal, blank + l.clean(a.failure.Error())},
			{dim, blank + l.clean(a.source.Address())},
		})
	}
	if a.paused {
		out = append(out, line{{warn, "PAUSED at " + a.updated.Format("15:04:05")}, {dim, blank + "p goes on"}})
	}
	return append(l.fitAll(out), l.warnings(a.view.Warnings)...)
}

// density says how much a screen shows beside the ranking.
type density struct {
	rows    int // the ranking must keep this many
	gaps    bool
	rich    bool // engines with all lines
	groups  bool
	errors  int
	gpus    int // at most, 0: all
	engines int // lines of engines, 0: all
}

// densities are tried from the most generous to the tersest.
var densities = []density{
	{rows: 16, gaps: true, rich: true, groups: true, errors: 3},
	{rows: 12, gaps: true, rich: true, groups: true, errors: 1},
	{rows: 10, rich: true, groups: true, errors: 1},
	{rows: 6, groups: true, errors: 1},
	{rows: 5, errors: 1},
	{rows: 3, errors: 1, gpus: 4},
	{rows: 0, errors: 1, gpus: 1, engines: 1},
}

func (a *app) ranking(l layout, room int) []line {
	t := a.view.Tables[a.kind]
	for i, d := range densities {
		above, below := a.frame(l, t, d)
		rows := room - len(above) - len(below) - 1 // the ranking's heading
		if i < len(densities)-1 && rows < d.rows {
			continue
		}
		return a.compose(l, above, below, max(rows, 1))
	}
	return nil
}

// frame is what stands above and below the ranking.
func (a *app) frame(l layout, t model.Table, d density) (above, below []line) {
	gap := func() {
		if d.gaps {
			above = append(above, line{})
		}
	}
	above = l.header(a.view)
	above = append(above, a.status(l)...)
	gap()
	gpus := a.view.GPUs
	if d.gpus > 0 && len(gpus) > d.gpus {
		gpus = gpus[:d.gpus]
	}
	above = append(above, l.gpus(gpus)...)
	if hidden := len(a.view.GPUs) - len(gpus); hidden > 0 {
		above = append(above, line{{dim, fmt.Sprintf("    and %d more GPUs", hidden)}}.fit(l.width, l.glyphs))
	}
	if len(a.view.Engines) > 0 {
		gap()
		lines := l.engines(a.view.Engines, d.rich && l.width >= 110)
		if d.engines > 0 && len(lines) > d.engines {
			lines = lines[:d.engines]
		}
		above = append(above, lines...)
	}
	gap()
	above = append(above, l.spread(l.tabs(a.view, a.kind), line{{dim, a.counts(t)}}).fit(l.width, l.glyphs))
	if d.groups && a.kind == model.Kernels && len(a.view.Groups) > 0 {
		above = append(above, l.groups(a.view.Groups))
	}
	if d.gaps {
		below = append(below, line{})
	}
	return above, append(below, l.errors(a.view.Errors, d.errors)...)
}

func (a *app) counts(t model.Table) string {
	text := fmt.Sprintf("%d rows", len(t.Rows))
	if a.filter != "" {
		text = fmt.Sprintf("%d of %d rows", len(a.rows), len(t.Rows))
	}
	if t.Unlisted.OK && t.Unlisted.V > 0 {
		text += ", beyond the list " + nanos(t.Unlisted)
		if a.view.Span.Rated() {
			text += "/s"
		}
	}
	return text
}

func (a *app) compose(l layout, above, below []line, rows int) []line {
	a.visible = rows
	if a.cursor < a.offset {
		a.offset = a.cursor
	}
	if a.cursor >= a.offset+rows {
		a.offset = a.cursor - rows + 1
	}
	a.offset = max(0, min(a.offset, len(a.rows)-rows))
	shown := a.rows[a.offset:min(len(a.rows), a.offset+rows)]
	out := above
	if len(a.rows) == 0 {
		out = append(out, line{{dim, "  " + a.emptyText()}})
		rows++ // no heading
	} else {
		out = append(out, l.table(a.kind, a.view.Span.Rated(), shown, a.cursor-a.offset)...)
		rows -= len(shown)
		for range rows {
			out = append(out, line{})
		}
		return append(out, below...)
	}
	for range rows - 1 {
		out = append(out, line{})
	}
	return append(out, below...)
}

func (a *app) emptyText() string {
	switch {
	case a.filter != "" && len(a.view.Tables[a.kind].Rows) > 0:
		return "nothing matches the filter"
	case !a.view.Tables[a.kind].Present:
		return "not measured: the document has no such profile"
	case a.kind == model.Kernels && a.view.Header.KernelTraceOff:
		return "empty: kernels of ROCm are timed with --rocm-kernel-trace all"
	case a.kind == model.Graphs && a.view.Header.GraphTrace == "node":
		return "empty: with graph trace node, the kernels of graphs are under [k]ernels"
	}
	return "nothing recorded yet"
}

func (a *app) detailLines(l layout, room int) []line {
	i := slices.IndexFunc(a.view.Tables[a.kind].Rows, func(r model.Row) bool { return r.ID == a.selected })
	if i < 0 {
		return []line{{{dim, "this row is no longer in the document"}}}
	}
	return a.scrolled(append(a.status(l), l.details(a.view, a.kind, a.view.Tables[a.kind].Rows[i])...), room)
}

// scrolled is the part of a long text that is on the screen.
func (a *app) scrolled(lines []line, room int) []line {
	a.text = len(lines)
	a.scroll = max(0, min(a.scroll, len(lines)-room))
	return lines[a.scroll:]
}

func (a *app) footer(l layout) line {
	var text line
	switch {
	case a.editing:
		text = line{{strong, "/" + a.filter + "_"}, {dim, blank + "enter keeps the filter, esc clears it"}}
	case a.mode == details || a.mode == help:
		text = line{{dim, "esc back  up/down scroll  q quit"}}
	case a.filter != "":
		text = line{{strong, "filter: " + a.filter}, {dim, blank + "/ changes it, esc clears it, ? help"}}
	default:
		text = line{{dim, "q quit  ? help  enter details  / filter  k g m s tables  p pause  +/- window"}}
	}
	return text.fit(l.width, l.glyphs)
}

func helpText(l layout) []line {
	var out []line
	for _, h := range [][2]string{
		{"", "Keys"},
		{"up, down", "select a row; pgup pgdown home end go further"},
		{"enter", "details of the row: symbol, totals since the start, processes; esc goes back"},
		{"k g m s", "kernels, CUDA graph replays, memory transfers, host synchronization"},
		{"o", "the workload's own probes that measure time"},
		{"/", "filter rows by name, kind or symbol; esc clears the filter"},
		{"+ -", "longer or shorter window"},
		{"p", "pause: keep the picture while reading goes on"},
		{"q, ctrl-c", "quit"},
		{"", ""},
		{"", "Columns"},
		{"share", "time in the window / (window x GPUs); streams that overlap can exceed 100 %"},
		{"time/s", "time spent per second of the window; calls/s: calls made"},
		{"mean", "time per call in the window"},
		{"total", "since the profiler's start"},
		{"p50/p95", "of engine latencies: since the engine's start, upper bounds of histogram bins"},
		{"-", "not measured; 0 is a measured zero"},
		{"sync", "time the host was blocked, which is no GPU time"},
	} {
		if h[0] == "" {
			out = append(out, line{{title, h[1]}})
			continue
		}
		const label = 14
		for i, part := range strings.Split(ansi.Wordwrap(h[1], max(10, l.width-label-2), ""), "\n") {
			name := h[0]
			if i > 0 {
				name = ""
			}
			out = append(out, line{{strong, "  " + left(name, label)}, {normal, part}})
		}
	}
	return l.fitAll(out)
}
