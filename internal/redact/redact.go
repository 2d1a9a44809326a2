// Package redact removes secrets from command lines before they are shown or sent anywhere.
package redact

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// Placeholder stands where a secret was.
const Placeholder = "***"

// CommandLine returns argv joined by single blanks with every secret value
// replaced by [Placeholder]. See [Args] for what counts as a secret.
func CommandLine(argv []string) string {
	return strings.Join(Args(argv), " ")
}

// Args returns a copy of argv, of the same length, in which secrets are replaced
// by [Placeholder]: the values of flags (`--api-key V`, `--api-key=V`, `-token V`)
// and variables (`HF_TOKEN=V`) whose name looks like that of a secret, the values
// of such names inside JSON, URL queries and shell text, credentials in URLs,
// authorization headers, and tokens of well-known shapes. Everything else is
// left byte for byte as it is.
func Args(argv []string) []string {
	out := make([]string, len(argv))
	next := harmless // what the previous argument says of the next one
	for i, arg := range argv {
		if next != harmless && !looksLikeFlag(arg) {
			switch {
			case next == userAndSecret:
				out[i] = redactUserPair(redactText(arg))
			case arg != "":
				out[i] = Placeholder
			}
			next = harmless
			continue
		}
		out[i], next = redactArg(arg)
	}
	return out
}

// redactArg redacts one argument. Where that is the flag of a secret whose value is
// the next argument, next is the kind of that value.
func redactArg(arg string) (redacted string, next nameKind) {
	name, value, assigned := strings.Cut(arg, "=")
	if isName(name) {
		kind := classify(name)
		switch {
		case assigned && kind == secret:
			if value == "" {
				return arg, harmless
			}
			return name + "=" + Placeholder, harmless
		case assigned && kind == userAndSecret:
			return name + "=" + redactUserPair(redactText(value)), harmless
		case !assigned && strings.HasPrefix(arg, "-"):
			return arg, kind
		}
	}
	return redactText(arg), harmless
}

type nameKind int

const (
	harmless      nameKind = iota
	secret                 // the whole value is secret
	userAndSecret          // the value may be USER:SECRET
)

// secretEndings end a name, written without separators, whose value is a secret.
var secretEndings = []string{
	"apikey", "apikeys", "accesskey", "accesskeys", "secretkey", "privatekey", "authkey", "signingkey",
	"password", "passwords", "passwd", "passphrase", "secret", "secrets", "credential", "credentials",
	"authtoken", "authtokens", "accesstoken", "accesstokens", "apitoken", "apitokens", "refreshtoken",
	"idtoken", "hftoken", "bearertoken", "sessiontoken", "authorization", "bearer",
}

// modelTokenWords precede "token" in names that are about text, not about access.
var modelTokenWords = wordSet("max", "min", "num", "pad", "eos", "bos", "unk", "mask", "sep", "cls", "stop", "new",
	"per", "image", "audio", "video", "special", "begin", "start", "end", "think", "reasoning", "first", "last",
	"next", "prompt", "prefill", "decode", "draft", "skip", "add", "ignore", "placeholder", "tool", "call", "output",
	"input")

// plainKeyWords precede "key" in names of things that are not secret.
var plainKeyWords = wordSet("primary", "sort", "partition", "foreign", "public", "cache", "routing", "group",
	"hash", "ssl", "tls", "dict", "map", "json", "lookup", "index", "metric", "label", "column", "row")

// plainPassWords precede "pass" where it is a pass over something.
var plainPassWords = wordSet("first", "second", "one", "two", "multi", "single", "n", "forward", "backward", "by",
	"low", "high", "band", "all", "each", "warmup")

func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}

// classify judges the name of a flag, variable, JSON key or query parameter by its last words.
func classify(name string) nameKind {
	words := splitWords(name)
	for len(words) > 0 && isDigits(words[len(words)-1]) {
		words = words[:len(words)-1] // API_KEY_2
	}
	if len(words) == 0 {
		return harmless
	}
	last := strings.TrimRight(words[len(words)-1], "0123456789")
	before := ""
	if len(words) > 1 {
		before = words[len(words)-2]
	}
	words[len(words)-1] = last
	compact := strings.Join(words, "")
	for _, ending := range secretEndings {
		if strings.HasSuffix(compact, ending) {
			return secret
		}
	}
	switch last {
	case "token":
		if !modelTokenWords[before] {
			return secret
		}
	case "key":
		if before != "" && !plainKeyWords[before] {
			return secret
		}
	case "pwd":
		// PWD and OLDPWD are the shell's directories.
		if before != "" || strings.HasPrefix(name, "-") {
			return secret
		}
	case "pass":
		if before != "" && !plainPassWords[before] {
			return secret
		}
	case "signature", "sig":
		if before != "" || last == "sig" {
			return secret
		}
	case "auth":
		return userAndSecret
	}
	return harmless
}

// splitWords cuts a name at separators and at the humps of camel case, lower-cased.
func splitWords(name string) []string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if unicode.IsUpper(r) && i > 0 {
			prevLower := unicode.IsLower(runes[i-1])
			endOfCapitals := unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if prevLower || endOfCapitals {
				flush()
			}
		}
		word = append(word, r)
	}
	flush()
	return words
}

func isDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// isName reports whether s can be the name of a flag or variable.
func isName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r) {
			return false
		}
	}
	return true
}

// looksLikeFlag reports whether the argument after the flag of a secret is itself a flag,
// so that the secret is missing. A secret may begin with dashes too; in doubt it is a secret.
func looksLikeFlag(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	switch {
	case strings.HasPrefix(name, "--"):
		return len(name) > 2 && isName(name) && unicode.IsLetter(rune(name[2])) && len(name) <= 40 && !strings.ContainsAny(name[2:], "0123456789")
	case strings.HasPrefix(name, "-"):
		return len(name) == 2 && unicode.IsLetter(rune(name[1]))
	}
	return false
}

// redactUserPair hides what follows the first colon of USER:SECRET.
func redactUserPair(value string) string {
	user, pass, ok := strings.Cut(value, ":")
	if !ok || pass == "" || strings.HasPrefix(pass, "//") {
		return value
	}
	return user + ":" + Placeholder
}

type textPatterns struct {
	url, header, scheme, quoted, assigned, flag, shape *regexp.Regexp
}

// patterns are compiled at the first use: the launcher must start fast. Those for names
// match the name and what stands before the value; the value is measured only where the
// name is that of a secret, so that the work stays linear in the text.
var patterns = sync.OnceValue(func() textPatterns {
	return textPatterns{
		// scheme://userinfo@
		url: regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s?#'"]+@`),
		// Name: value of a request header, to the end of the line or of the quotes
		header: regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|cookie|set-cookie|(?:[a-z]+-){1,8}(?:key|token|secret))(\s*:\s*)([^\r\n"']+)`),
		// an authorization scheme and its credentials
		scheme: regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}`),
		// "name": before a JSON or Python value
		quoted: regexp.MustCompile(`["']([A-Za-z0-9_.-]{1,64})["']\s*:\s*`),
		// name= in shell text and URL queries
		assigned: regexp.MustCompile(`([A-Za-z0-9_.-]{1,64})=`),
		// --name and blanks in shell text
		flag: regexp.MustCompile(`(--?[A-Za-z][A-Za-z0-9_.-]{0,63})\s+`),
		// tokens that services mark by a prefix
		shape: regexp.MustCompile(`\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|nvapi-[A-Za-z0-9_-]{16,}|A(?:KIA|SIA)[A-Z0-9]{16}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+)`),
	}
})

// redactText hides secrets inside one argument.
func redactText(text string) string {
	if len(text) < 4 {
		return text
	}
	p := patterns()
	text = p.url.ReplaceAllString(text, "${1}"+Placeholder+"@")
	text = p.header.ReplaceAllString(text, "${1}${2}"+Placeholder)
	text = p.scheme.ReplaceAllString(text, "${1}${2}"+Placeholder)
	text = redactNamed(p.quoted, text, quotedLength)
	text = redactNamed(p.assigned, text, wordLength)
	if strings.ContainsAny(text, " \t\n") {
		text = redactNamed(p.flag, text, flagValueLength)
	}
	return p.shape.ReplaceAllLiteralString(text, Placeholder)
}

// redactNamed replaces the value that follows each match of re whose first group names a
// secret; valueLength measures it at the head of the text that follows.
func redactNamed(re *regexp.Regexp, text string, valueLength func(rest string) int) string {
	var out strings.Builder
	for text != "" {
		loc := re.FindStringSubmatchIndex(text)
		if loc == nil {
			break
		}
		end := loc[1]
		out.WriteString(text[:end])
		if classify(text[loc[2]:loc[3]]) == secret {
			rest := text[end:]
			n := valueLength(rest)
			switch {
			case n == 0:
			case rest[0] == '"' || rest[0] == '\'':
				// The quotes stay, so that JSON remains JSON.
				out.WriteString(rest[:1] + Placeholder + rest[:1])
			default:
				out.WriteString(Placeholder)
			}
			end += n
		}
		text = text[end:]
	}
	out.WriteString(text)
	return out.String()
}

// quotedLength returns the length of the quoted string at the head of s, to its end where
// the closing quote is missing, and 0 where there is none.
func quotedLength(s string) int {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}

// wordLength returns the length of a shell word or query value at the head of s.
func wordLength(s string) int {
	if n := quotedLength(s); n > 0 {
		return n
	}
	if i := strings.IndexAny(s, " \t\r\n&;|\"'"); i >= 0 {
		return i
	}
	return len(s)
}

// flagValueLength returns the length of what stands at the head of s up to the next flag
// or the end of the command: a process title does not tell how many words a value has.
func flagValueLength(s string) int {
	if n := quotedLength(s); n > 0 {
		return n
	}
	first, _, _ := strings.Cut(s, " ")
	if looksLikeFlag(first) {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case ';', '|', '&', '\n', '\r':
			return i
		case '-':
			if s[i-1] == ' ' || s[i-1] == '\t' {
				return len(strings.TrimRight(s[:i], " \t"))
			}
		}
	}
	return len(s)
}
