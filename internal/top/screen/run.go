package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
	"github.com/graphsignal/graphsignal-collector/internal/top/model"
)

// Options say what to show and how.
type Options struct {
	Client  *endpoint.Client
	Window  time.Duration // 0: totals only
	Once    bool          // one page, then the end
	NoColor bool
	Stdout  *os.File
	Stderr  io.Writer
	Environ []string
}

// Run shows the profiler until the user or ctx ends it, and returns the exit status: 0, or 1 after a message on Stderr.
func Run(ctx context.Context, o Options) int {
	t := inspect(o)
	var err error
	switch {
	case o.Once:
		err = once(ctx, o, t)
	case !t.cursor:
		err = stream(ctx, o, t)
	default:
		err = interactive(ctx, o, t)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && !o.Once:
		return 0 // ending it is how one leaves the view
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted before the page was complete")
	}
	_, _ = fmt.Fprintf(o.Stderr, "graphsignal-top: %s\n", t.glyphs.clean(err.Error()))
	return 1
}

// terminal is what standard output can do.
type terminal struct {
	tty     bool
	cursor  bool // can be drawn on
	colour  bool
	width   int
	glyphs  glyphs
	profile colorprofile.Profile
}

func inspect(o Options) terminal {
	env := func(name string) string {
		for i := len(o.Environ) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(o.Environ[i], name+"="); ok {
				return v
			}
		}
		return ""
	}
	t := terminal{tty: term.IsTerminal(o.Stdout.Fd()), width: plainWidth}
	if t.tty {
		if w, _, err := term.GetSize(o.Stdout.Fd()); err == nil && w > 0 {
			t.width = w
		} else {
			t.width = 80
		}
	} else if w, err := strconv.Atoi(env("COLUMNS")); err == nil && w >= 40 && w <= 1000 {
		t.width = w
	}
	dumb := env("TERM") == "" || env("TERM") == "dumb"
	t.cursor = t.tty && !dumb
	t.profile = colorprofile.Detect(o.Stdout, o.Environ)
	if o.NoColor || env("NO_COLOR") != "" {
		t.profile = min(t.profile, colorprofile.ASCII)
	}
	t.colour = t.cursor && t.profile > colorprofile.ASCII
	locale := ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale = env(name); locale != "" {
			break
		}
	}
	locale = strings.ToLower(locale)
	// A file or pipe has no character set of its own: there, text stays what it is.
	t.glyphs = glyphsFor(!t.tty || strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8"))
	return t
}

func unreadable(c *endpoint.Client, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("cannot read %s: %w", c.Address(), err)
}

// once reads twice, a window apart, and prints one page.
func once(ctx context.Context, o Options, t terminal) error {
	h := model.NewHistory(o.Window)
	var notes []string
	for n := range 2 {
		if n == 1 {
			if o.Window <= 0 {
				break
			}
			if err := pause(ctx, o.Window); err != nil {
				return err
			}
		}
		doc, err := o.Client.Read(ctx)
		if err != nil {
			return unreadable(o.Client, err)
		}
		h.Add(doc, time.Now())
	}
	v, err := viewOf(ctx, h)
	if err != nil {
		return err
	}
	if o.Window > 0 && !v.Span.Rated() {
		notes = append(notes, "the profiler was restarted between the two reads: totals only")
	}
	return t.print(o, v, notes)
}

// viewOf computes the view, unless ctx ends before: what it costs depends on who sends.
func viewOf(ctx context.Context, h *model.History) (model.View, error) {
	done := make(chan model.View, 1)
	go func() {
		v, _ := h.View()
		done <- v
	}()
	select {
	case <-ctx.Done():
		return model.View{}, ctx.Err()
	case v := <-done:
		return v, nil
	}
}

// stream prints a page each second, the way top does in batch mode.
func stream(ctx context.Context, o Options, t terminal) error {
	h := model.NewHistory(o.Window)
	failing := false
	for n := 0; ; n++ {
		started := time.Now()
		doc, err := o.Client.Read(ctx)
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil && !failing:
			failing = true
			_, _ = fmt.Fprintf(o.Stderr, "graphsignal-top: %s; trying every second\n", t.glyphs.clean(unreadable(o.Client, err).Error()))
		case err == nil:
			failing = false
			h.Add(doc, time.Now())
			v, err := viewOf(ctx, h)
			if err != nil {
				return nil
			}
			if n > 0 {
				if _, err := fmt.Fprintln(o.Stdout); err != nil {
					return err
				}
			}
			if err := t.print(o, v, nil); err != nil {
				return err
			}
		}
		if err := pause(ctx, period-time.Since(started)); err != nil {
			return nil
		}
	}
}

func (t terminal) print(o Options, v model.View, notes []string) error {
	l := layout{glyphs: t.glyphs, width: t.width}
	text := render(l.page(v, o.Client.Address(), time.Now(), notes), t.colour) + "\n"
	var w io.Writer = o.Stdout
	if t.colour {
		w = &colorprofile.Writer{Forward: o.Stdout, Profile: t.profile}
	}
	_, err := io.WriteString(w, text)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	if d < 0 {
		d = 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func interactive(ctx context.Context, o Options, t terminal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return runProgram(ctx, newApp(ctx, o.Client, o.Window, t.glyphs), o, t)
}

// runProgram owns the terminal until the model ends, and gives it back as it was, also after a panic.
func runProgram(ctx context.Context, m tea.Model, o Options, t terminal) error {
	p := tea.NewProgram(m,
		tea.WithContext(ctx),
		tea.WithOutput(o.Stdout),
		tea.WithEnvironment(o.Environ),
		tea.WithColorProfile(t.profile),
		tea.WithFPS(30))
	_, err := p.Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return context.Canceled
	}
	return err
}
