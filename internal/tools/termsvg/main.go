// Command termsvg draws captured terminal text (tmux capture-pane -p -e) as an SVG picture, for documentation.
//
//	termsvg [-title TEXT] < capture > picture.svg
package main

import (
	"bufio"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// Measures of the picture, in SVG units.
const (
	cellWidth  = 8.4
	cellHeight = 18.0
	fontSize   = 14
	margin     = 14.0
	bar        = 28.0 // above the text, with the title
)

// palette are the 16 colours of the terminal that is drawn.
var palette = [16]string{
	"#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
	"#6b7489", "#ff8b92", "#b5e890", "#ffd98a", "#82c8ff", "#e29bff", "#7fe0e8", "#ffffff",
}

const (
	background = "#1e222a"
	foreground = "#d8dee9"
	faint      = "#858fa3"
)

// look is how cells are drawn.
type look struct {
	colour         string // "" is the default
	back           string
	bold, faint    bool
	reverse, under bool
}

// run is neighbouring cells of one look.
type run struct {
	look
	text   string
	column int
	width  int
}

func main() {
	title := flag.String("title", "", "text of the title bar")
	flag.Parse()
	if err := draw(os.Stdin, os.Stdout, *title); err != nil {
		fmt.Fprintln(os.Stderr, "termsvg:", err)
		os.Exit(1)
	}
}

func draw(in io.Reader, out io.Writer, title string) error {
	var lines [][]run
	columns := 0
	state := look{}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := parse(sc.Text(), &state)
		for _, r := range line {
			columns = max(columns, r.column+r.width)
		}
		lines = append(lines, line)
	}
	if err := sc.Err(); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	width := 2*margin + float64(columns)*cellWidth
	height := 2*margin + bar + float64(len(lines))*cellHeight
	_, _ = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="%d">`+"\n", width, height, width, height, fontSize)
	_, _ = fmt.Fprintf(w, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", background)
	_, _ = fmt.Fprintf(w, `<text x="%.0f" y="%.0f" fill="%s">%s</text>`+"\n", margin, margin+10, faint, html.EscapeString(printable(title)))
	for i, line := range lines {
		top := margin + bar + float64(i)*cellHeight
		for _, r := range line {
			drawRun(w, r, top)
		}
	}
	_, _ = fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

func drawRun(w io.Writer, r run, top float64) {
	colour, back := r.colour, r.back
	if colour == "" {
		colour = foreground
	}
	if r.faint && r.colour == "" {
		colour = faint
	}
	if r.reverse {
		if back == "" {
			back = background
		}
		colour, back = back, colour
	}
	left := margin + float64(r.column)*cellWidth
	if back != "" {
		_, _ = fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left, top, float64(r.width)*cellWidth, cellHeight, back)
	}
	text := strings.TrimRight(r.text, " ")
	if text == "" {
		return
	}
	style := ""
	if r.bold {
		style = ` font-weight="bold"`
	}
	if r.under {
		style += ` text-decoration="underline"`
	}
	_, _ = fmt.Fprintf(w, `<text x="%.1f" y="%.1f" textLength="%.1f" lengthAdjust="spacingAndGlyphs" xml:space="preserve" fill="%s"%s>%s</text>`+"\n",
		left, top+cellHeight-4.5, float64(ansi.StringWidth(text))*cellWidth, colour, style, html.EscapeString(text))
}

// parse cuts a line into runs; state carries the look from line to line.
func parse(text string, state *look) []run {
	var out []run
	column := 0
	for text != "" {
		if strings.HasPrefix(text, "\x1b[") {
			end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				break
			}
			if text[2+end] == 'm' {
				state.apply(text[2 : 2+end])
			}
			text = text[2+end+1:]
			continue
		}
		end := strings.IndexByte(text, '\x1b')
		switch {
		case end == 0: // another kind of sequence: skip its introducer
			text = text[1:]
			continue
		case end < 0:
			end = len(text)
		}
		visible := printable(text[:end])
		width := ansi.StringWidth(visible)
		out = append(out, run{*state, visible, column, width})
		column += width
		text = text[end:]
	}
	return out
}

// printable leaves out what neither fills a cell nor may stand in XML.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// apply changes the look by the parameters of one SGR sequence.
func (l *look) apply(parameters string) {
	codes := strings.FieldsFunc(parameters, func(r rune) bool { return r == ';' || r == ':' })
	if len(codes) == 0 {
		codes = []string{"0"}
	}
	for i := 0; i < len(codes); i++ {
		n, err := strconv.Atoi(codes[i])
		if err != nil {
			continue
		}
		switch {
		case n == 0:
			*l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.faint = true
		case n == 4:
			l.under = true
		case n == 7:
			l.reverse = true
		case n == 22:
			l.bold, l.faint = false, false
		case n == 24:
			l.under = false
		case n == 27:
			l.reverse = false
		case n >= 30 && n <= 37:
			l.colour = palette[n-30]
		case n >= 90 && n <= 97:
			l.colour = palette[n-90+8]
		case n == 39:
			l.colour = ""
		case n >= 40 && n <= 47:
			l.back = palette[n-40]
		case n >= 100 && n <= 107:
			l.back = palette[n-100+8]
		case n == 49:
			l.back = ""
		case n == 38 || n == 48:
			colour, used := extended(codes[i+1:])
			i += used
			if n == 38 {
				l.colour = colour
			} else {
				l.back = colour
			}
		}
	}
}

// extended reads a 256-colour or RGB specification and how many parameters it takes.
func extended(codes []string) (colour string, used int) {
	value := func(i int) int {
		if i >= len(codes) {
			return 0
		}
		n, err := strconv.Atoi(codes[i])
		if err != nil {
			return 0
		}
		return n & 0xff
	}
	switch value(0) {
	case 5:
		n := value(1)
		switch {
		case n < 16:
			return palette[n], 2
		case n >= 232:
			g := 8 + 10*(n-232)
			return fmt.Sprintf("#%02x%02x%02x", g, g, g), 2
		}
		level := func(v int) int {
			if v == 0 {
				return 0
			}
			return 55 + 40*v
		}
		n -= 16
		return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6)), 2
	case 2:
		return fmt.Sprintf("#%02x%02x%02x", value(1), value(2), value(3)), 4
	}
	return "", 1
}
