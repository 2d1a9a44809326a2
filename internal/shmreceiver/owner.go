package shmreceiver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
)

// ownedBy reports whether the run directory of a process of the tree is that process's. Processes of other pid
// namespaces may share the memory, and one of them may have the same pid there, and the same user. A directory that
// does not say whose it is may be the process's.
func (r *Receiver) ownedBy(p *process) bool {
	if p.owns || r.tree == nil || r.roots != nil {
		return true
	}
	if p.namespace == "" {
		// Now, since a process that has ended does not tell any more.
		p.namespace = r.namespaceOf(p.PID)
	}
	path := rundir.Path(r.config.SHMPath, p.PID)
	owner, known := rundir.ParseOwner(readHead(filepath.Join(path, ".owner"), maxOwner))
	if !known || p.namespace == "" {
		return true
	}
	p.owns = owner.PID == p.PID && p.namespace == fmt.Sprintf("pid:[%d]", owner.Namespace)
	if !p.owns && !p.foreign {
		p.foreign = true
		r.report.add("Run directories of processes of other pid namespaces were not read", 1, errors.New(path))
	}
	return p.owns
}

// namespaceOf names the pid namespace of a process, or of this one where that may not be asked; empty when unknown.
func (r *Receiver) namespaceOf(pid int) string {
	name, err := os.Readlink(filepath.Join(r.config.ProcFSPath, strconv.Itoa(pid), "ns", "pid"))
	if err != nil && filepath.Clean(r.config.ProcFSPath) == procfs.DefaultRoot {
		name, _ = os.Readlink("/proc/self/ns/pid")
	}
	return name
}
