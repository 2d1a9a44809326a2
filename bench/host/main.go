// Command host measures what the launcher and its sidecar cost on a machine without a GPU, and prints one
// Markdown table: start and end of a run, the console, a kernel's way to /signals, the sidecar's CPU and memory
// under three loads, and the latency of GET /signals.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// workloads are what this program is under the launcher, by its first argument.
var workloads = map[string]func([]string) error{loadArgument: runLoad, writeArgument: runWriter, logArgument: runLog}

func main() {
	if len(os.Args) > 1 {
		if workload, ok := workloads[os.Args[1]]; ok {
			if err := workload(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	bin := flag.String("bin", "bin", "directory of graphsignal-run and graphsignal-collector")
	duration := flag.Duration("duration", time.Minute, "length of each load")
	runs := flag.Int("runs", 31, "repetitions of the start and end measurements")
	only := flag.String("only", "", "measure only this: start, tee, delay, loads, processes")
	flag.Parse()
	if err := measure(*bin, *duration, *runs, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(bin string, duration time.Duration, runs int, only string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "graphsignal-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	launcher := filepath.Join(bin, "graphsignal-run")
	if _, err := os.Stat(launcher); err != nil {
		return err
	}
	fmt.Printf("%d cores, %s, loads of %v\n\n", runtime.NumCPU(), runtime.Version(), duration)
	fmt.Println("| what | budget | measured |\n| --- | --- | --- |")
	if only == "" || only == "start" {
		if err := measureStartAndEnd(launcher, dir, runs); err != nil {
			return err
		}
	}
	if only == "" || only == "tee" {
		if err := measureTee(launcher, 5); err != nil {
			return err
		}
		for _, l := range []logLoad{{1_000_000, "≤ 1 % of a core for the launcher"}, {10_000_000, "≤ 5 % of a core, no error lost"}} {
			if err := measureLog(launcher, l, duration); err != nil {
				return err
			}
		}
	}
	if only == "" || only == "delay" {
		if err := measureDelay(launcher, min(duration, 30*time.Second)); err != nil {
			return err
		}
	}
	if only == "" || only == "loads" {
		for _, l := range loads {
			took, err := measureLoad(launcher, l, duration, nil)
			if err == nil && l.upload {
				_, err = measureLoad(launcher, l, duration, &took)
			}
			if err != nil {
				return fmt.Errorf("load %s: %w", l.name, err)
			}
		}
	}
	if only == "" || only == "processes" {
		_, err := measureLoad(launcher, manyProcesses, duration, nil)
		return err
	}
	return nil
}

func row(what, budget, format string, args ...any) {
	fmt.Printf("| %s | %s | %s |\n", what, budget, fmt.Sprintf(format, args...))
}

// compile builds one of the C programs of testdata.
func compile(dir, name string) (string, error) {
	out := filepath.Join(dir, name)
	source, err := programs.ReadFile("testdata/" + name + ".c")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("gcc", "-O2", "-x", "c", "-o", out, "-")
	cmd.Stdin = bytesReader(source)
	cmd.Stderr = os.Stderr
	return out, cmd.Run()
}
