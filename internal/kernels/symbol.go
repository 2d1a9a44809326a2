package kernels

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

const (
	// maxSymbol bounds how much of a symbol is looked at. The injected library interns names of up to 4 KiB.
	maxSymbol = 16 << 10
	// maxArgs bounds how much of the template arguments is searched: what names a kernel stands at their beginning.
	maxArgs = 1 << 10
	// maxMangled bounds what is demangled: a hostile symbol of n bytes can cost n² steps.
	maxMangled = 4 << 10
	// maxDemangledPower: a demangled name is cut at 2^16 characters, since a short hostile one can expand without end.
	maxDemangledPower = 16
)

// symbol is a kernel name taken apart.
type symbol struct {
	full string // demangled, whole
	path string // qualified function name without return type, template arguments and parameters
	base string // last component of path
	args string // template arguments of the function, without the outer brackets, at most maxArgs bytes
	// subject is what the rules are matched against: path, then "<" and args if there are any, in lower case.
	subject string
	// pathLen is the length of the path at the beginning of subject.
	pathLen int
}

func parse(raw string) symbol {
	name := raw
	if len(name) > maxSymbol {
		name = name[:maxSymbol]
	}
	name = strings.TrimSpace(name)
	name = strings.TrimSuffix(name, " (.kd)")
	name = strings.TrimSuffix(name, ".kd")
	if i := strings.Index(name, " [clone"); i > 0 {
		name = name[:i]
	}
	s := symbol{full: demangled(name)}
	text := strings.ReplaceAll(s.full, "(anonymous namespace)::", "")
	text = strings.ReplaceAll(text, "<unnamed>::", "")
	if strings.HasPrefix(text, "Memcpy ") || strings.HasPrefix(text, "Memset ") {
		s.path = text // how profilers write copies: "Memcpy DtoD (Device -> Device)"
	} else {
		s.path, s.args = split(text)
	}
	if s.path == "" {
		s.path, s.args = text, "" // not a C++ name
	}
	if len(s.args) > maxArgs {
		s.args = s.args[:maxArgs]
	}
	s.base = s.path
	if i := strings.LastIndex(s.path, "::"); i >= 0 && i+2 < len(s.path) {
		s.base = s.path[i+2:]
	}
	s.subject = s.path
	s.pathLen = len(s.path)
	if s.args != "" {
		s.subject += "<" + s.args
	}
	s.subject = asciiLower(s.subject)
	return s
}

// asciiLower keeps the length, so that offsets into the text stay valid.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func demangled(name string) string {
	if !strings.HasPrefix(name, "_Z") {
		return name
	}
	if len(name) <= maxMangled {
		if out, err := demangle.ToString(name, demangle.MaxLength(maxDemangledPower)); err == nil {
			return out
		}
	}
	// Names are cut at a length limit on their way here; a cut one cannot be demangled, but its identifiers can be read.
	rest := strings.TrimPrefix(name, "_Z")
	nested := strings.HasPrefix(rest, "N")
	path, rest := identifiers(strings.TrimPrefix(rest, "N"), nested)
	if len(path) == 0 {
		return name
	}
	out := strings.Join(path, "::")
	if strings.HasPrefix(rest, "I") {
		var args []string
		for len(rest) > 0 {
			var ids []string
			ids, rest = identifiers(rest, true)
			if len(ids) > 0 {
				args = append(args, strings.Join(ids, "::"))
			}
			if len(rest) > 0 {
				rest = rest[1:]
			}
		}
		out += "<" + strings.Join(args, ", ") + ">"
	}
	return out
}

// identifiers reads the length-prefixed identifiers at the start of mangled text, all of them or one, and gives back what
// follows.
func identifiers(text string, all bool) (ids []string, rest string) {
	rest = text
	for len(rest) > 0 && rest[0] >= '1' && rest[0] <= '9' {
		n, i := 0, 0
		for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' && n < maxSymbol {
			n = n*10 + int(rest[i]-'0')
			i++
		}
		rest = rest[i:]
		n = min(n, len(rest))
		id := rest[:n]
		if n > 0 && !isIdentifier(id) {
			return ids, rest // a number that is no length, such as a template argument's value
		}
		if id != "" && !strings.HasPrefix(id, "_GLOBAL__N") {
			ids = append(ids, id)
		}
		rest = rest[n:]
		if !all {
			break
		}
	}
	return ids, rest
}

func isIdentifier(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '_' && (c < '0' || c > '9' || i == 0) && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// split finds the qualified name and its template arguments in "type ns::name<args>(parameters)".
func split(text string) (path, args string) {
	start, angle := 0, -1
	argEnd := len(text)
	end := len(text)
	depth := 0
scan:
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '<', '{', '[':
			if c == '<' && depth == 0 {
				angle = i
			}
			depth++
		case '>', '}', ']':
			if c == '>' && i > 0 && text[i-1] == '-' { // "->"
				continue
			}
			if depth > 0 {
				depth--
			}
			if c == '>' && depth == 0 {
				argEnd = i
			}
		case '(':
			if depth == 0 {
				// "ns::(lambda at ...)" style components continue the name; a parameter list ends it.
				if strings.HasSuffix(text[:i], "::") {
					depth++
					continue
				}
				end = i
				break scan
			}
			depth++
		case ')':
			if depth > 0 {
				depth--
			}
		case ' ':
			if depth == 0 && i+1 < len(text) && text[i+1] != '(' && !strings.HasSuffix(text[:i], "operator") {
				start, angle, argEnd = i+1, -1, len(text)
			}
		case ':':
			// A later component of the name: earlier template arguments belong to a namespace or class.
			if depth == 0 && angle >= 0 && argEnd < i {
				angle, argEnd = -1, len(text)
			}
		}
	}
	if angle < 0 || angle < start {
		return cleanPath(text[start:end]), ""
	}
	if argEnd > end || argEnd < angle {
		argEnd = end
	}
	return cleanPath(text[start:angle]), strings.TrimSpace(text[angle+1 : argEnd])
}

// cleanPath removes template arguments of enclosing classes from a qualified name.
func cleanPath(p string) string {
	p = strings.TrimSpace(p)
	if !strings.ContainsAny(p, "<>") {
		return p
	}
	var b strings.Builder
	depth := 0
	for _, r := range p {
		switch {
		case r == '<':
			depth++
		case r == '>':
			if depth > 0 {
				depth--
			}
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}
