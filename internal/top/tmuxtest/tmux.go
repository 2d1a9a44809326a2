// Package tmuxtest runs programs in tmux for tests: a terminal that can be typed into, resized and read.
package tmuxtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a test waits for a screen to show something.
const patience = 20 * time.Second

var sessions atomic.Int64

// Terminal is one tmux session of its own server.
type Terminal struct {
	t      *testing.T
	socket string
}

// Start runs a shell command in a new terminal; environment variables are NAME=VALUE. The test is skipped where there is
// no tmux.
func Start(t *testing.T, width, height int, command string, env ...string) *Terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: screens cannot be tested")
	}
	term := &Terminal{t: t, socket: fmt.Sprintf("graphsignal-top-test-%d-%d", os.Getpid(), sessions.Add(1))}
	args := []string{"-f", "/dev/null", "-u", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	for _, e := range env {
		args = append(args, "-e", e)
	}
	term.run(append(args, command)...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-L", term.socket, "kill-server").Run() })
	return term
}

func (term *Terminal) run(args ...string) string {
	term.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-L", term.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Type presses keys by tmux's names (Down, Enter, C-c, a).
func (term *Terminal) Type(keys ...string) {
	term.t.Helper()
	term.run(append([]string{"send-keys"}, keys...)...)
}

// Resize changes the size of the terminal.
func (term *Terminal) Resize(width, height int) {
	term.t.Helper()
	term.run("resize-window", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height))
}

// Screen is the visible text, without trailing blanks.
func (term *Terminal) Screen() string {
	term.t.Helper()
	return term.run("capture-pane", "-p")
}

// Coloured is the visible text, trailing blanks included, with the escape sequences of its colours.
func (term *Terminal) Coloured() string {
	term.t.Helper()
	return term.run("capture-pane", "-p", "-e", "-N")
}

// Everything is the visible text and what has scrolled away.
func (term *Terminal) Everything() string {
	term.t.Helper()
	return term.run("capture-pane", "-p", "-S", "-")
}

// Format is a tmux format, such as #{alternate_on}.
func (term *Terminal) Format(format string) string {
	term.t.Helper()
	return strings.TrimSpace(term.run("display-message", "-p", format))
}

// WaitFor waits until all texts are on the screen and returns it.
func (term *Terminal) WaitFor(texts ...string) string {
	term.t.Helper()
	return term.WaitUntil(strings.Join(texts, ", "), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// WaitUntil waits until the screen fulfils a condition and returns it.
func (term *Terminal) WaitUntil(what string, ok func(screen string) bool) string {
	term.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		screen := term.Screen()
		if ok(screen) {
			return screen
		}
		if time.Now().After(deadline) {
			term.t.Fatalf("the screen never showed %s:\n%s", what, screen)
		}
		time.Sleep(30 * time.Millisecond)
	}
}
