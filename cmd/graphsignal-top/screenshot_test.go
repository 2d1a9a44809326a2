package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/top/scene"
)

var screenshot = flag.Bool("screenshot", false, "make docs/top.svg anew, which takes a minute and a half")

// TestScreenshot makes the picture of the documentation: the program in a terminal, looking at a made-up server.
func TestScreenshot(t *testing.T) {
	if !*screenshot {
		t.Skip("makes a picture for the documentation: -screenshot")
	}
	last := 60 + 75
	s := serve(t, scene.Serving, 60, 10*last)
	term := view(t, 150, 43, s, "")
	// The trends fill up at the view's own pace, one read a second.
	for up := 70; up <= last; up += 10 {
		term.WaitUntil("the next ten seconds", func(screen string) bool { return tick(screen) >= up })
	}
	term.Type("Down", "Down")
	term.WaitFor(">  13.3%")
	tool := exec.Command("go", "run", "../../internal/tools/termsvg", "-title", "graphsignal-top --host gpu-07")
	tool.Env = append(os.Environ(), "CGO_ENABLED=0")
	tool.Stdin = strings.NewReader(term.Coloured())
	var svg, errs bytes.Buffer
	tool.Stdout, tool.Stderr = &svg, &errs
	if err := tool.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "top.svg"), svg.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

var uptimeOnScreen = regexp.MustCompile(`up (\d+)m(\d\d)s`)

// tick is the second of the scene that the screen shows, read from its uptime.
func tick(screen string) int {
	m := uptimeOnScreen.FindStringSubmatch(screen)
	if m == nil {
		return 0
	}
	minutes, _ := strconv.Atoi(m[1])
	seconds, _ := strconv.Atoi(m[2])
	return 60*minutes + seconds
}
