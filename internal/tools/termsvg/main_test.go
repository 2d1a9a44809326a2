package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	in := "plain \x1b[1;32mbold green\x1b[0m <&>\n\x1b[7mreverse\x1b[27m \x1b[38;5;196mred\x1b[39m \x1b[38;2;1;2;3mrgb\x1b[m\n\x1b]0;title\x07\n"
	var out strings.Builder
	if err := draw(strings.NewReader(in), &out, "a <title>"); err != nil {
		t.Fatal(err)
	}
	svg := out.String()
	for _, want := range []string{
		">plain</text>", `fill="#98c379" font-weight="bold">bold green<`, "&lt;&amp;&gt;", "a &lt;title&gt;",
		`fill="#1e222a">reverse<`, `fill="#ff0000">red<`, `fill="#010203">rgb<`,
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
	checkXML(t, svg)
}

func checkXML(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, text)
		}
	}
}

func TestDrawOddInput(t *testing.T) {
	for _, in := range []string{"", "\x1b", "\x1b[", "\x1b[mx\x1b[38;5;300;48;2m", "\x1b[38;5my", "\x1b]8;;x\x1b\\link", "\xff\xfe\x00"} {
		var out strings.Builder
		if err := draw(strings.NewReader(in), &out, in); err != nil {
			t.Errorf("%q: %v", in, err)
		}
		checkXML(t, out.String())
	}
}
