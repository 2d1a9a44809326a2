// Command soak runs the launcher and its sidecar for hours beside a busy workload, and says whether anything grew, was
// lost or was counted wrongly: 64 processes with 44 series each, an engine's page of 2,000 lines, 1 MB/s of console
// output with errors, a reader of /signals ten times a second, and an upload to a server that keeps failing. It ends
// with status 1 if anything is not as promised.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		roles := map[string]func([]string) error{leaderRole: runLeader, workerRole: runWorker}
		if role, ok := roles[os.Args[1]]; ok {
			if err := role(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "soak workload:", err)
				os.Exit(1)
			}
			return
		}
	}
	bin := flag.String("bin", "bin", "directory of graphsignal-run and graphsignal-collector")
	duration := flag.Duration("duration", 2*time.Hour, "how long the workload runs, at least a minute")
	ticks := flag.Float64("missed-ticks", 1, "share of the sidecar's collections that may be missed, in percent: 100 on a machine that does other things too")
	flag.Parse()
	if *duration < time.Minute || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	s, err := newSoak(*bin, *duration)
	if err == nil {
		defer s.close()
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if problems := s.judge(*ticks); len(problems) > 0 {
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, "soak:", p)
		}
		s.close()
		os.Exit(1)
	}
}
