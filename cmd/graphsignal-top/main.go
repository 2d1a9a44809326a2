// Command graphsignal-top shows the /signals endpoint of a profiler as a terminal view for people.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
	"github.com/graphsignal/graphsignal-collector/internal/top/model"
	"github.com/graphsignal/graphsignal-collector/internal/top/screen"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

const usage = `usage: graphsignal-top [--host HOST] [--port PORT] [--window SECONDS] [--once] [--no-color]

A live view of the workload that graphsignal-run profiles.

  --host HOST       profiler to read (default 127.0.0.1); one on another machine
                    must have been started with --listen-host
  --port PORT       its port (default 18259)
  --window SECONDS  rates and ranking cover the last SECONDS (default 5);
                    0 shows totals since the start
  --once            print one page and exit: two reads, one window apart
  --no-color        no colours (also: NO_COLOR in the environment)
  --version         print the version and exit
  --help            print this and exit

Where standard output is no terminal, or TERM is dumb or missing, a plain page is
printed every second instead of the interactive view.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string, stdout *os.File, stderr io.Writer) int {
	flags := flag.NewFlagSet("graphsignal-top", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	host := flags.String("host", "127.0.0.1", "")
	port := flags.Int("port", 18259, "")
	window := flags.Float64("window", 5, "")
	once := flags.Bool("once", false, "")
	noColor := flags.Bool("no-color", false, "")
	showVersion := flags.Bool("version", false, "")
	fail := func(err error) int {
		_, _ = fmt.Fprintf(stderr, "graphsignal-top: %s\n%s", err, usage)
		return 2
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return 0
	case err != nil:
		return fail(err)
	case flags.NArg() > 0:
		return fail(fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	case *showVersion:
		_, _ = fmt.Fprintf(stdout, "graphsignal-top %s\n", version.Version)
		return 0
	case math.IsNaN(*window) || *window < 0 || *window > model.MaxWindow.Seconds():
		return fail(fmt.Errorf("--window must be between 0 and %.0f seconds", model.MaxWindow.Seconds()))
	}
	client, err := endpoint.NewClient(*host, *port)
	if err != nil {
		return fail(err)
	}
	defer client.Close()
	return screen.Run(ctx, screen.Options{
		Client:  client,
		Window:  time.Duration(*window * float64(time.Second)),
		Once:    *once,
		NoColor: *noColor,
		Stdout:  stdout,
		Stderr:  stderr,
		Environ: os.Environ(),
	})
}
