package console

import (
	"strings"
)

// record is one line as a logger wrote it.
type record struct {
	// start says that the line begins a log record; otherwise it is raw text.
	start bool
	level level
	// text is what follows the logger's prefix; the whole line where there is none.
	text string
	// pid is the process that the prefix names, "" if none.
	pid string
	// exception is the traceback of a structured record.
	exception string
	// signs are what the colons of a text without a level point to.
	signs signs
}

// parseRecord recognises the record forms of inference engines and their libraries. Each is anchored at the start
// of the line; a line that has none of them is raw.
func parseRecord(line string) record {
	raw := record{text: line}
	if line == "" {
		return raw
	}
	switch c := line[0]; {
	case c >= 'A' && c <= 'Z':
		if r, ok := parseLevelFirst(line); ok {
			return r
		}
		if r, ok := parseLetterFirst(line); ok {
			return r
		}
	case c == '[':
		if r, ok := parseBracket(line); ok {
			return r
		}
	case c == '{':
		if r, ok := parseJSON(line); ok {
			return r
		}
	case isDigit(c):
		if r, ok := parseLlamaTime(line); ok {
			return r
		}
		if n := dateLen(line); n > 0 {
			return parseDated(line[n:])
		}
		if n := clockLen(line); n > 0 { // "14:02:11 | ERROR | text": a clock alone needs a level behind it
			if r := parseDated(line[n:]); r.level != levelNone {
				return r
			}
		}
	case c >= 'a' && c <= 'z':
		if r, ok := parseLogfmt(line); ok {
			return r
		}
	}
	return raw
}

// parseLevelFirst recognises "LEVEL ...": vLLM's format, uvicorn's, Python's root logger and logrus'.
func parseLevelFirst(line string) (record, bool) {
	l, n := leadingLevel(line)
	if l == levelNone {
		return parseLogrus(line)
	}
	rest := line[n:]
	if rest == "" {
		return record{start: true, level: l}, true
	}
	switch rest[0] {
	case ':':
		if line[:n] == "FATAL" {
			return record{}, false // "FATAL: x" is the error line of a command, told as a whole
		}
		text := strings.TrimLeft(rest[1:], " \t")
		return record{start: true, level: l, text: text}, true
	case ' ', '\t':
		if text, ok := vllmText(rest); ok {
			return record{start: true, level: l, text: text}, true
		}
		text := strings.TrimLeft(rest, " \t")
		for _, separator := range [...]string{":", "- ", "| "} {
			if after, cut := strings.CutPrefix(text, separator); cut {
				text = strings.TrimLeft(after, " \t")
				break
			}
		}
		if l == levelError && isMetric(text) {
			l = levelInfo
		}
		return record{start: true, level: l, text: text}, true
	case '|', ']':
		return record{start: true, level: l, text: strings.TrimLeft(rest[1:], " \t")}, true
	}
	return record{}, false
}

// vllmText returns the text of " MM-DD HH:MM:SS[.frac] [file:line] text"; the older form lacks the first bracket.
func vllmText(s string) (string, bool) {
	if len(s) < 16 || s[0] != ' ' || s[3] != '-' || s[6] != ' ' || countDigits(s[1:]) != 2 || countDigits(s[4:]) != 2 {
		return "", false
	}
	n := clockLen(s[7:])
	if n == 0 || 7+n >= len(s) || s[7+n] != ' ' {
		return "", false
	}
	return afterFileLine(strings.TrimPrefix(s[7+n+1:], "["))
}

// maxFileLine bounds the "file:line" part of a prefix, bytes.
const maxFileLine = 200

// afterFileLine returns what follows "file:line] ", less one blank.
func afterFileLine(s string) (string, bool) {
	end := strings.IndexByte(s[:min(len(s), maxFileLine)], ']')
	if end < 2 || !endsInLine(s[:end]) {
		return "", false
	}
	return strings.TrimPrefix(s[end+1:], " "), true
}

// endsInLine reports whether s ends in ":digits".
func endsInLine(s string) bool {
	i := len(s)
	for i > 0 && isDigit(s[i-1]) {
		i--
	}
	return i < len(s) && i > 1 && s[i-1] == ':'
}

// isMonthDay reports whether s starts with "MM-DD ".
func isMonthDay(s string) bool {
	return len(s) > 6 && s[2] == '-' && s[5] == ' ' && countDigits(s) == 2 && countDigits(s[3:]) == 2
}

// clockLen is the length of "HH:MM:SS" with an optional fraction at the start of s, else 0.
func clockLen(s string) int {
	if len(s) < 8 || s[2] != ':' || s[5] != ':' || countDigits(s) != 2 || countDigits(s[3:]) != 2 || countDigits(s[6:]) != 2 {
		return 0
	}
	n := 8
	if n+1 < len(s) && (s[n] == '.' || s[n] == ',') {
		if d := countDigits(s[n+1:]); d > 0 {
			n += 1 + d
		}
	}
	return n
}

// logrusWords are the level words of logrus' terminal format, "ERRO[0001] text".
var logrusWords = map[string]level{
	"TRAC": levelDebug, "DEBU": levelDebug, "INFO": levelInfo, "WARN": levelWarning,
	"ERRO": levelError, "FATA": levelError, "PANI": levelError,
}

func parseLogrus(line string) (record, bool) {
	if len(line) < 7 || line[4] != '[' {
		return record{}, false
	}
	l, ok := logrusWords[line[:4]]
	n := countDigits(line[5:])
	if !ok || n == 0 || 5+n >= len(line) || line[5+n] != ']' {
		return record{}, false
	}
	return record{start: true, level: l, text: strings.TrimLeft(line[6+n:], " ")}, true
}

// parseLetterFirst recognises glog ("E0309 14:02:11.123456 77 file.cc:12] text") and llama.cpp ("E srv  load: text").
func parseLetterFirst(line string) (record, bool) {
	l := levelOfLetter(line[0])
	if l == levelNone || len(line) < 3 {
		return record{}, false
	}
	if text, ok := glogText(line[1:]); ok {
		return record{start: true, level: l, text: text}, true
	}
	if line[1] == ' ' && (isLlamaText(line[2:]) || strings.HasPrefix(line[2:], noSocket)) {
		return record{start: true, level: l, text: line[2:]}, true
	}
	return record{}, false
}

// glogText returns the text of "[MMDD HH:MM:SS.frac thread ]file:line] text"; PyTorch writes a month of one digit.
func glogText(s string) (string, bool) {
	if n := countDigits(s); n > 0 {
		if n != 3 && n != 4 && n != 8 || n >= len(s) || s[n] != ' ' {
			return "", false
		}
		s = s[n+1:]
		c := clockLen(s)
		if c == 0 {
			if c = unixClockLen(s); c == 0 {
				return "", false
			}
		}
		s = s[c:]
	}
	if s == "" || s[0] != ' ' {
		return "", false
	}
	s = strings.TrimLeft(s, " ")
	if n := countDigits(s); n > 0 && n < len(s) && s[n] == ' ' {
		s = s[n+1:] // the thread
	}
	return afterFileLine(s)
}

// unixClockLen is the length of the "00:00:1710000000.123456" that XLA writes before its logging is set up.
func unixClockLen(s string) int {
	if !strings.HasPrefix(s, "00:00:") {
		return 0
	}
	n := len("00:00:") + countDigits(s[len("00:00:"):])
	if n < len(s) && s[n] == '.' {
		n += 1 + countDigits(s[n+1:])
	}
	return n
}

// isLlamaText reports whether s looks like what llama.cpp logs after its level letter: "function: text".
func isLlamaText(s string) bool {
	n := 0
	for n < len(s) && (s[n] >= 'a' && s[n] <= 'z' || s[n] == '_' || isDigit(s[n])) {
		n++
	}
	if n < 2 || n >= len(s) || s[n] != ' ' && s[n] != ':' {
		return false
	}
	return strings.Contains(s[n:], ": ") || strings.HasSuffix(s, ":")
}

// parseLlamaTime recognises llama.cpp with timestamps: "0.01.234.567 E text" (minutes, seconds, ms, us).
func parseLlamaTime(line string) (record, bool) {
	n := countDigits(line)
	if n > 6 || len(line) < n+14 || line[n] != '.' {
		return record{}, false
	}
	s := line[n+1:]
	if s[2] != '.' || s[6] != '.' || s[10] != ' ' || s[12] != ' ' ||
		countDigits(s) != 2 || countDigits(s[3:]) != 3 || countDigits(s[7:]) != 3 {
		return record{}, false
	}
	return record{start: true, level: levelOfLetter(s[11]), text: s[13:]}, true
}

// maxBracket bounds a leading bracket, bytes.
const maxBracket = 160

// parseBracket recognises the forms that begin with a bracket.
func parseBracket(line string) (record, bool) {
	end := strings.IndexByte(line[:min(len(line), maxBracket)], ']')
	if end < 2 {
		return record{}, false
	}
	inside, rest := line[1:end], line[end+1:]
	switch c := inside[0]; {
	case c == 'T':
		if isTensorRT(inside) {
			return parseTensorRT(rest)
		}
		if name, ok := strings.CutSuffix(inside, " Error"); ok && strings.EqualFold(name, "TensorRT-LLM") {
			return record{start: true, level: levelError, text: strings.TrimPrefix(rest, " ")}, true
		}
	case c == 'N' && strings.HasPrefix(inside, "NeMo "): // "[NeMo E 2026-03-09 14:02:11 file:12] text"
		if letter := inside[len("NeMo "):]; len(letter) > 2 && letter[1] == ' ' && dateLen(letter[2:]) > 0 {
			return record{start: true, level: levelOfLetter(letter[0]), text: strings.TrimPrefix(rest, " ")}, true
		}
	case isDigit(c):
		if n := dateLen(inside); n > 0 {
			return parseBracketDate(inside[n:], rest), true
		}
		if clockLen(inside) == len(inside) {
			if r := parseBracketDate("", rest); r.level != levelNone {
				return r, true
			}
		}
		// SGLang's server for diffusion models has no year.
		if isMonthDay(inside) && clockLen(inside[len("01-02 "):]) == len(inside)-len("01-02 ") {
			return parseBracketDate("", rest), true
		}
		if countDigits(inside) == len(inside) { // llama.cpp's router puts the port of its child before the line
			if r := parseRecord(strings.TrimPrefix(rest, " ")); r.start {
				return r, true
			}
		}
		return record{}, false
	}
	if len(inside) == 1 {
		// "[E] text" and "[E] [TRT] text"; a capital alone needs a blank behind the bracket.
		l := levelOfLetter(inside[0])
		if l == levelNone || rest == "" || rest[0] != ' ' {
			return record{}, false
		}
		return record{start: true, level: l, text: strings.TrimPrefix(strings.TrimLeft(rest, " "), "[TRT] ")}, true
	}
	if word, source, cut := strings.Cut(inside, "|"); cut { // "[ERROR|trainer.py:12] 2026-03-09 14:02:11,1 >> text"
		l := levelOfAnyCase(word)
		if l == levelNone || !endsInLine(source) {
			return record{}, false
		}
		text := strings.TrimLeft(rest, " ")
		text = strings.TrimLeft(text[dateLen(text):], " ")
		return record{start: true, level: l, text: strings.TrimPrefix(text, ">> ")}, true
	}
	if l := levelOfAnyCase(strings.Trim(inside, " ")); l != levelNone {
		return record{start: true, level: l, text: strings.TrimLeft(rest, " \t:")}, true
	}
	if l := levelOfLetter(inside[0]); l != levelNone { // PyTorch: "[E309 14:02:11.1 ProcessGroupNCCL.cpp:6] text"
		if text, ok := glogText(line[2:]); ok {
			return record{start: true, level: l, text: text}, true
		}
	}
	return parseNamed(inside, rest)
}

// maxName bounds the name of a logger in a bracket, bytes.
const maxName = 32

// parseNamed recognises "[name][LEVEL] text" of TurboMind and others, behind a date "[name][LEVEL] - text" of Hydra,
// "[name] LEVEL: text", and protobuf's "[libprotobuf LEVEL file.cc:12] text".
func parseNamed(inside, rest string) (r record, ok bool) {
	if name, more, cut := strings.Cut(inside, " "); cut && name == "libprotobuf" {
		word, place, _ := strings.Cut(more, " ")
		r = record{start: true, level: levelOfWord(word), text: strings.TrimPrefix(rest, " ")}
		return r, r.level != levelNone && endsInLine(place)
	}
	if len(inside) > maxName || !isLoggerName(inside) {
		return r, false
	}
	next := strings.TrimLeft(rest, " ")
	switch {
	case next == "":
		return r, false
	case next[0] == '[':
		if end := strings.IndexByte(next[:min(len(next), maxBracket)], ']'); end > 0 {
			r = record{start: true, level: levelOfAnyCase(strings.Trim(next[1:end], " ")), text: strings.TrimLeft(next[end+1:], " \t:")}
			ok = true
		}
	case next[0] >= 'A' && next[0] <= 'Z' && len(next) < len(rest):
		r, ok = parseLevelFirst(next)
	}
	r.text = strings.TrimPrefix(r.text, "- ")
	return r, ok && r.level != levelNone
}

// isLoggerName reports whether s can name a logger, a thread or a rank: words with a letter among them.
func isLoggerName(s string) bool {
	letters := 0
	for i := range len(s) {
		switch c := s[i]; {
		case isDigit(c) || strings.IndexByte(" -.:/", c) >= 0:
		case isWord(c):
			letters++
		default:
			return false
		}
	}
	return letters > 0
}

func isTensorRT(name string) bool {
	return name == "TRT-LLM" || name == "TensorRT-LLM" || name == "TRT"
}

// parseTensorRT recognises what follows "[TRT-LLM]": an optional "[RANK n]", then "[LEVEL] text".
func parseTensorRT(s string) (record, bool) {
	for range 2 {
		s = strings.TrimPrefix(s, " ")
		end := strings.IndexByte(s[:min(len(s), 32)], ']')
		if end < 2 || s[0] != '[' {
			return record{}, false
		}
		inside, rest := s[1:end], s[end+1:]
		if strings.HasPrefix(inside, "RANK ") {
			s = rest
			continue
		}
		for i := range len(inside) {
			if inside[i] < 'A' || inside[i] > 'Z' {
				return record{}, false
			}
		}
		l := levelOfWord(inside)
		if len(inside) == 1 {
			l = levelOfLetter(inside[0])
		}
		return record{start: true, level: l, text: strings.TrimPrefix(rest, " ")}, true
	}
	return record{}, false
}

// parseBracketDate recognises what follows "[date": more of the bracket (inside) and the text behind it.
func parseBracketDate(inside, rest string) record {
	text := strings.TrimPrefix(rest, " ")
	r := record{start: true, text: text}
	if word, pid := levelInside(inside); word != levelNone { // Rust's env_logger and Ray
		r.level, r.pid = word, pid
		if pid != "" {
			r.text = afterCaller(text)
		}
		return r
	}
	if text == "" {
		return r
	}
	switch text[0] {
	case '[':
		end := strings.IndexByte(text[:min(len(text), maxBracket)], ']')
		if end < 2 {
			return r
		}
		if pid := text[1:end]; countDigits(pid) == len(pid) { // gunicorn: "[date] [pid] [LEVEL] text"
			r.pid = pid
			r.text = strings.TrimPrefix(text[end+1:], " ")
			text = r.text
		}
		if b, ok := parseBracket(text); ok {
			b.pid = r.pid
			return b
		}
	default:
		if text[0] < 'A' || text[0] > 'Z' {
			break
		}
		if l, ok := parseLevelFirst(text); ok {
			l.text = beforePlace(l.text)
			return l
		}
	}
	return r
}

// beforePlace drops the "file:12" that rich puts at the right edge of the terminal.
func beforePlace(s string) string {
	s = strings.TrimRight(s, " ")
	i := strings.LastIndexByte(s, ' ')
	if i > 1 && s[i-1] == ' ' && endsInLine(s[i+1:]) {
		return strings.TrimRight(s[:i], " ")
	}
	return s
}

// levelInside finds a level in the rest of a date bracket: "Z ERROR module" and " E 123 456" (pid, thread).
func levelInside(s string) (level, string) {
	if s == "" {
		return levelNone, ""
	}
	for field := range strings.FieldsSeq(s) {
		if l := levelOfWord(field); l != levelNone {
			return l, ""
		}
		if len(field) == 1 && levelOfLetter(field[0]) != levelNone {
			fields := strings.Fields(s)
			if len(fields) == 3 && fields[0] == field && countDigits(fields[1]) == len(fields[1]) {
				return levelOfLetter(field[0]), fields[1]
			}
		}
	}
	return levelNone, ""
}

// vllmBefore finds the vLLM record whose clock "HH:MM:SS" has its first colon at s[colon], and returns where its level
// word begins, or -1.
func vllmBefore(s string, colon int) int {
	blank := colon - len(" MM-DD HH")
	if blank < len("INFO") || s[blank] != ' ' || s[blank+3] != '-' {
		return -1
	}
	if _, ok := vllmText(s[blank:]); !ok {
		return -1
	}
	start := blank
	for start > 0 && s[start-1] >= 'A' && s[start-1] <= 'Z' {
		start--
	}
	if levelOfWord(s[start:blank]) == levelNone || start > 0 && isWord(s[start-1]) {
		return -1
	}
	return start
}

// splitGlued splits off what stands before a record at s[start:]: a progress bar that ended without a newline, or a
// logging prefix of the user's own. A worker prefix right before the record belongs to it.
func splitGlued(s string, start int) (worker, string) {
	if before := strings.TrimSuffix(s[:start], " "); strings.HasSuffix(before, ")") {
		if open := strings.LastIndexByte(before, '('); open >= 0 {
			if w, rest, ok := pidPrefix(s[open:]); ok {
				return w, rest
			}
		}
	}
	return worker{}, s[start:]
}
