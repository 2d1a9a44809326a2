package launcher

import (
	"path/filepath"
	"strings"
)

// environment is a process environment that can be changed without losing its order or its odd entries.
type environment struct{ entries []string }

func (e *environment) get(name string) (string, bool) {
	for _, entry := range e.entries {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// searchPath is where programs are looked for: PATH, and without it what execvp takes then.
func (e *environment) searchPath() string {
	if path, set := e.get("PATH"); set {
		return path
	}
	return "/bin:/usr/bin"
}

// makeAbsolute makes the path in a variable one that is the same in every directory.
func (e *environment) makeAbsolute(name string) {
	path, _ := e.get(name)
	if path == "" || filepath.IsAbs(path) {
		return
	}
	if absolute, err := filepath.Abs(path); err == nil {
		e.set(name, absolute)
	}
}

// set gives a variable a value, in the place of its first entry or at the end.
func (e *environment) set(name, value string) {
	placed := false
	kept := e.entries[:0:0]
	for _, entry := range e.entries {
		if strings.HasPrefix(entry, name+"=") {
			if placed {
				continue
			}
			placed = true
			entry = name + "=" + value
		}
		kept = append(kept, entry)
	}
	if !placed {
		kept = append(kept, name+"="+value)
	}
	e.entries = kept
}

func (e *environment) unset(name string) {
	kept := e.entries[:0:0]
	for _, entry := range e.entries {
		if !strings.HasPrefix(entry, name+"=") {
			kept = append(kept, entry)
		}
	}
	e.entries = kept
}
