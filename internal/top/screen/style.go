package screen

import (
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/graphsignal/graphsignal-collector/internal/kernels"
)

// style is the meaning of a piece of text; palette gives it colours.
type style int

const (
	normal style = iota
	strong
	dim
	title
	good
	warn
	bad
	selected
	attention
	multiply
	communication
	cache
	quantization
	normalization
	sampling
	movement
	elementwise
	otherKernel
	styles
)

// escapes are the texts that switch a style on and off. The 16 colours of the terminal's own theme are used.
type escapes [styles][2]string

var colours = func() escapes {
	base := lipgloss.NewStyle()
	ansi := func(n string) lipgloss.Style { return base.Foreground(lipgloss.Color(n)) }
	list := [styles]lipgloss.Style{
		normal: base, strong: base.Bold(true), dim: base.Faint(true), title: ansi("6").Bold(true),
		good: ansi("2"), warn: ansi("3"), bad: ansi("1").Bold(true), selected: base.Reverse(true),
		attention: ansi("5"), multiply: ansi("2"), communication: ansi("3"), cache: ansi("6"), quantization: ansi("4"),
		normalization: ansi("12"), sampling: ansi("13"), movement: ansi("11"), elementwise: ansi("14"), otherKernel: base,
	}
	var out escapes
	for s, st := range list {
		on, off, _ := strings.Cut(st.Render("x"), "x")
		out[s] = [2]string{on, off}
	}
	return out
}()

var categoryStyles = map[kernels.Category]style{
	kernels.Attention: attention, kernels.MatrixMultiply: multiply, kernels.Communication: communication,
	kernels.KVCache: cache, kernels.Embedding: cache, kernels.Quantization: quantization,
	kernels.Normalization: normalization, kernels.Sampling: sampling, kernels.Random: sampling,
	kernels.MemoryMovement: movement, kernels.Elementwise: elementwise, kernels.Reduction: elementwise,
	kernels.MoE: multiply, kernels.Convolution: multiply, kernels.Other: otherKernel,
}

// span is text of one style. Its text is clean: see glyphs.clean.
type span struct {
	style style
	text  string
}

// line is one row of the screen.
type line []span

func (l line) width() int {
	n := 0
	for _, s := range l {
		n += width(s.text)
	}
	return n
}

// fit cuts a line to a width.
func (l line) fit(w int, g glyphs) line {
	if l.width() <= w {
		return l
	}
	var out line
	for _, s := range l {
		n := width(s.text)
		if n <= w {
			out = append(out, s)
			w -= n
			continue
		}
		if w > 0 {
			out = append(out, span{s.style, g.cutTo(s.text, w)})
		}
		break
	}
	return out
}

// all gives the whole line one style.
func (l line) all(s style) line {
	var b strings.Builder
	for _, sp := range l {
		b.WriteString(sp.text)
	}
	return line{{s, b.String()}}
}

// render writes lines as text. Without colour only the text is written, without trailing blanks.
func render(lines []line, colour bool) string {
	var b, row strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		row.Reset()
		for _, s := range l {
			if s.text == "" {
				continue
			}
			if colour {
				row.WriteString(colours[s.style][0])
			}
			row.WriteString(s.text)
			if colour {
				row.WriteString(colours[s.style][1])
			}
		}
		if colour {
			b.WriteString(row.String())
		} else {
			b.WriteString(strings.TrimRight(row.String(), " "))
		}
	}
	return b.String()
}
