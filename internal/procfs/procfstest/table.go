// Package procfstest writes process tables for tests.
package procfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Table is a directory in the shape of /proc.
type Table struct {
	Root string
	t    testing.TB
}

// Process is one process of a Table.
type Process struct {
	PID, PPID int
	// Comm is the title; empty is "test".
	Comm string
	// State is the state letter; 0 is S.
	State byte
	// Start is the time from boot to start in ticks of 10 ms.
	Start               uint64
	User, System        uint64 // ticks
	VirtualBytes, Pages uint64
	Argv                []string
	// Switches are voluntary and involuntary switches by thread; empty is one thread with none.
	Switches [][2]uint64
}

// New returns an empty Table of a machine with the given boot time in epoch seconds and number of CPUs.
func New(t testing.TB, boot int64, cpus int) *Table {
	t.Helper()
	table := &Table{Root: t.TempDir(), t: t}
	text := "cpu  1 2 3 4 5 6 7 8 9 10\n"
	for i := range cpus {
		text += fmt.Sprintf("cpu%d 1 2 3 4 5 6 7 8 9 10\n", i)
	}
	table.Write("stat", fmt.Sprintf("%sintr 5 0 0\nctxt 17\nbtime %d\nprocesses 99\n", text, boot))
	table.Write("sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
	return table
}

// Write writes one file below the root, replacing it.
func (table *Table) Write(name, content string) {
	table.t.Helper()
	path := filepath.Join(table.Root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		table.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		table.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		table.t.Fatal(err)
	}
}

// Set adds or changes a process.
func (table *Table) Set(p Process) {
	table.t.Helper()
	if p.Comm == "" {
		p.Comm = "test"
	}
	if p.State == 0 {
		p.State = 'S'
	}
	if len(p.Switches) == 0 {
		p.Switches = [][2]uint64{{}}
	}
	dir := strconv.Itoa(p.PID)
	table.Write(dir+"/stat", fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 4194304 1 2 3 4 %d %d 5 6 20 0 %d 0 %d %d %d 18446744073709551615 1 1 0 0\n",
		p.PID, p.Comm, p.State, p.PPID, p.User, p.System, len(p.Switches), p.Start, p.VirtualBytes, p.Pages))
	table.Write(dir+"/cmdline", strings.Join(append(p.Argv, ""), "\x00"))
	if err := os.RemoveAll(filepath.Join(table.Root, dir, "task")); err != nil {
		table.t.Fatal(err)
	}
	for i, s := range p.Switches {
		tid := strconv.Itoa(p.PID + i)
		table.Write(dir+"/task/"+tid+"/status", fmt.Sprintf(
			"Name:\t%s\nState:\tS\nThreads:\t%d\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t%d\n",
			strings.ReplaceAll(p.Comm, "\n", "\\n"), len(p.Switches), s[0], s[1]))
	}
}

// Remove removes a process.
func (table *Table) Remove(pid int) {
	table.t.Helper()
	if err := os.RemoveAll(filepath.Join(table.Root, strconv.Itoa(pid))); err != nil {
		table.t.Fatal(err)
	}
}
