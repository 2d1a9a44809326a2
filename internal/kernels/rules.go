package kernels

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed taxonomy.tsv
var taxonomy string

// rule is one line of taxonomy.tsv.
type rule struct {
	category     Category
	alternatives []pattern
	label        string // label of the short name, empty: made from the symbol
}

// pattern is a sequence of texts that occur in this order. One with a "<" in it may reach into the template arguments,
// any other must occur in the function's own name.
type pattern struct {
	parts    []string
	anchored bool // the first part is at the very beginning
	args     bool
}

var table = sync.OnceValue(func() []rule {
	rules, err := parseTable(taxonomy)
	if err != nil {
		panic(err) // embedded data; the package's tests load it
	}
	return rules
})

// parseTable reads rules: category, patterns separated by "|", label; tabs between; "#" starts a comment line.
func parseTable(text string) ([]rule, error) {
	known := make(map[Category]bool, len(Categories))
	for _, c := range Categories {
		known[c] = true
	}
	var rules []rule
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) < 2 || len(fields) > 3 {
			return nil, fmt.Errorf("taxonomy line %d: want 2 or 3 tab-separated fields, got %d", n+1, len(fields))
		}
		r := rule{category: Category(fields[0])}
		if !known[r.category] {
			return nil, fmt.Errorf("taxonomy line %d: unknown category %q", n+1, fields[0])
		}
		if len(fields) == 3 {
			r.label = fields[2]
		}
		for _, alt := range strings.Split(fields[1], "|") {
			p := pattern{anchored: strings.HasPrefix(alt, "^"), args: strings.Contains(alt, "<")}
			p.parts = strings.Split(strings.TrimPrefix(alt, "^"), "*")
			for _, part := range p.parts {
				if part == "" || part != strings.ToLower(part) {
					return nil, fmt.Errorf("taxonomy line %d: bad pattern %q", n+1, alt)
				}
			}
			r.alternatives = append(r.alternatives, p)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func (p pattern) matches(s symbol) bool {
	text := s.subject
	if !p.args {
		text = text[:s.pathLen]
	}
	for i, part := range p.parts {
		at := strings.Index(text, part)
		if at < 0 || (i == 0 && p.anchored && at != 0) {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

func match(s symbol) rule {
	for _, r := range table() {
		for _, p := range r.alternatives {
			if p.matches(s) {
				return r
			}
		}
	}
	return rule{category: Other}
}
