package screen

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/graphsignal/graphsignal-collector/internal/top/scene"
	"github.com/graphsignal/graphsignal-collector/internal/top/tmuxtest"
)

const crashVariable = "GRAPHSIGNAL_TOP_TEST_CRASH"

func TestMain(m *testing.M) {
	if os.Getenv(crashVariable) != "" {
		os.Exit(crash())
	}
	os.Exit(m.Run())
}

// crashing is the program until someone types x.
type crashing struct{ *app }

func (c crashing) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if k, ok := msg.(tea.KeyPressMsg); ok && k.String() == "x" {
		panic("crashed on purpose")
	}
	_, cmd := c.app.Update(msg)
	return c, cmd
}

func crash() int {
	o := Options{Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}
	t := inspect(o)
	a := newApp(context.Background(), &fixed{make: scene.Single}, time.Second, t.glyphs)
	if err := runProgram(context.Background(), crashing{a}, o, t); err == nil {
		return 0
	}
	return 1
}

func TestTerminalAfterACrash(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	term := tmuxtest.Start(t, 80, 24, fmt.Sprintf("sh -c 'echo before; %s; echo status $?; stty -a; sleep 60'", exe), crashVariable+"=1", "LC_ALL=C.UTF-8")
	term.WaitFor("nvjet gemm")
	if term.Format("#{alternate_on}") != "1" {
		t.Error("the view is not on the alternate screen")
	}
	term.Type("x")
	term.WaitUntil("the shell's line after the crash", func(string) bool { return term.Format("#{alternate_on}") == "0" })
	term.WaitFor("status 1", " icanon", " echo ")
	if term.Format("#{cursor_flag}") != "1" {
		t.Error("the cursor is still hidden")
	}
}
