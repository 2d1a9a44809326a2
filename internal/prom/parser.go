package prom

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

const (
	// maxLines is the most lines read of a page.
	maxLines = 50_000
	// maxBuckets is the most buckets of one histogram.
	maxBuckets = 1000
	// maxLabels is the most labels of a sample, its name among them; the configuration that vLLM shows has some 40.
	maxLabels = 129
	// maxRestarts is how many lines of a page may stop the tokenizer; the rest of the page is then given up.
	maxRestarts = 5000
	// keepPages is for how many pages an identity is remembered that no page shows.
	keepPages = 60
)

// ErrNotMetrics is returned for a body that does not look like a metrics page.
var ErrNotMetrics = errors.New("the page is no Prometheus text")

// Page is what Parse found.
type Page struct {
	// Series are valid until the next call of Parse.
	Series []*Series
	// Malformed is how many lines could not be read, FirstMalformed the beginning of the first of them. Samples
	// whose value is no number, in any spelling, are left out without being counted.
	Malformed      int
	FirstMalformed string
	// Dropped is how many lines were left out because of the limits on lines, series, buckets and labels.
	Dropped int
}

// Parser reads the pages of one source. It is not for concurrent use.
type Parser struct {
	maxSeries int
	taken     map[string]bool // labels that mean something else where the series go

	page    uint64 // number of the current page
	pruned  uint64 // number of the last page on which room was made for new series
	decls   declarations
	lines   map[string]*line    // by the text before the value
	parts   map[string]*part    // by family and all labels
	series  map[string]*Series  // by name, type and tags
	created map[string]*created // by name and tags
	current []*Series

	helpName, help, helpLine []byte // the last description of the page that the tokenizer read

	header      string // the last Content-Type and what it means
	openMetrics bool
	charset     string

	symbols *labels.SymbolTable
	labels  labels.Labels
	tags    []series.Tag
	key     []byte
	own     []byte
}

// line is what the text of a sample before its value stands for.
type line struct {
	role    role
	part    *part
	bucket  *bucket
	created *created
	page    uint64
	dropped bool
}

// NewParser returns a Parser that gives at most maxSeries series a page. Labels with one of the taken names are given
// "exported_" before theirs, as a Prometheus server does with labels that it sets itself.
func NewParser(maxSeries int, taken ...string) *Parser {
	names := make(map[string]bool, len(taken))
	for _, name := range taken {
		names[name] = true
	}
	return &Parser{
		maxSeries: maxSeries,
		taken:     names,
		decls:     newDeclarations(),
		lines:     make(map[string]*line),
		parts:     make(map[string]*part),
		series:    make(map[string]*Series),
		created:   make(map[string]*created),
		symbols:   labels.NewSymbolTable(),
	}
}

// Parse reads a page. The header is the reply's Content-Type, now the time of the page in epoch nanoseconds. The body
// is overwritten. The only error is ErrNotMetrics.
func (p *Parser) Parse(body []byte, header string, now int64) (Page, error) {
	if header != p.header {
		p.header = strings.Clone(header)
		p.openMetrics, p.charset = contentType(header)
	}
	body = text(body, p.charset)
	if !looksLikeMetrics(body) {
		return Page{}, ErrNotMetrics
	}
	prepared := prepare(body, p.openMetrics, maxLines)
	page := Page{Malformed: prepared.malformed, FirstMalformed: prepared.first, Dropped: prepared.dropped}

	p.page++
	p.decls.next, p.helpName = 0, p.helpName[:0]
	if len(p.lines) > maxLines {
		p.forgetLines(1)
	}
	p.current = p.current[:0]
	if p.read(prepared, &page); page.Malformed > 0 && page.Malformed == prepared.count+prepared.malformed {
		return Page{}, ErrNotMetrics
	}

	if p.decls.disorder || len(p.decls.bare) >= maxLines {
		p.decls = newDeclarations()
		clear(p.lines)
	}

	page.Series = p.current[:0:len(p.current)]
	for _, s := range p.current {
		if s.finish(now, p.page) {
			page.Series = append(page.Series, s)
		}
	}
	switch {
	case p.page%keepPages == 0:
		p.forget(keepPages)
	case page.Dropped > 0 && len(p.current) < len(p.series):
		p.forget(1) // makes room for what was dropped
	}
	return page, nil
}

// read goes through the page. Lines that were there before in the same words are known by them; from the first other
// one on the tokenizer reads the rest. Where that gives up, the line is looked at alone and the next one may be known
// again.
func (p *Parser) read(l lines, page *Page) {
	rest := l.text
	for restarts := 0; ; restarts++ {
		if !p.openMetrics {
			rest = p.recall(rest, page)
		}
		if len(rest) == 0 {
			return
		}
		if restarts > maxRestarts {
			page.Dropped += bytes.Count(rest, []byte{'\n'})
			return
		}
		rest = p.tokenize(rest, page)
		if len(rest) == 0 {
			return
		}
		var bad []byte
		bad, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if p.understand(bad) {
			continue
		}
		if page.Malformed++; page.Malformed == 1 {
			page.FirstMalformed = excerpt(bad)
		}
	}
}

// recall takes the values of lines of classic text that are known but for their values, and returns the text from the
// first one on that is not.
func (p *Parser) recall(text []byte, page *Page) (rest []byte) {
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		words := text[:end]
		if words[0] == '#' {
			if !p.decls.recall(words) {
				return text
			}
			text = text[end+1:]
			continue
		}
		name := bytes.LastIndexByte(words, '}') + 1
		if name == 0 {
			name = max(0, bytes.IndexAny(words, " \t"))
		}
		l, ok := p.lines[string(words[:name])]
		if !ok {
			return text
		}
		number, stamp := words[name:], []byte(nil)
		number = bytes.TrimLeft(number, " \t")
		if at := bytes.IndexAny(number, " \t"); at >= 0 {
			number, stamp = number[:at], bytes.TrimLeft(number[at:], " \t")
		}
		value, ok := plainFloat(number)
		if !ok || !digits(stamp) {
			return text
		}
		p.take(l, value, page)
		text = text[end+1:]
	}
	return nil
}

// plainFloat reads a number in the notation of the format; Go's own goes further.
func plainFloat(number []byte) (float64, bool) {
	if bytes.ContainsAny(number, "pP_") {
		return 0, false
	}
	value, err := strconv.ParseFloat(string(number), 64)
	return value, err == nil
}

func digits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) < 19 // fits an int64
}

// tokenize reads entries, one a line, and returns the text from the line on that is none.
func (p *Parser) tokenize(text []byte, page *Page) (rest []byte) {
	var tokens textparse.Parser
	if p.openMetrics {
		tokens = textparse.NewOpenMetricsParser(text, p.symbols)
	} else {
		// This one appends a line feed: that of the last line makes room for it.
		tokens = textparse.NewPromParser(text[:len(text)-1], p.symbols, false)
	}
	for len(text) > 0 {
		entry, err := tokens.Next()
		if err != nil {
			return text
		}
		end := bytes.IndexByte(text, '\n')
		words := text[:end]
		text = text[end+1:]
		switch entry {
		case textparse.EntryType:
			name, typ := tokens.Type()
			p.declare(name, kindOf(string(typ)), words)
		case textparse.EntryHelp:
			name, help := tokens.Help()
			p.describe(name, help, words)
		case textparse.EntrySeries:
			p.sample(tokens, page)
		}
	}
	return nil
}

// declare takes a declaration; words is its whole line.
func (p *Parser) declare(name []byte, k kind, words []byte) {
	f, changed := p.decls.declare(name, k)
	if changed {
		clear(p.lines)
	}
	remember(&f.typeLine, words)
	if bytes.Equal(name, p.helpName) {
		f.describe(p.help, p.helpLine)
	}
}

// describe takes a description, which by custom stands before the declaration of its family; words is its whole line.
func (p *Parser) describe(name, help, words []byte) {
	p.helpName = append(p.helpName[:0], name...)
	p.help = append(p.help[:0], help[:min(len(help), maxHelp)]...)
	p.helpLine = append(p.helpLine[:0], words...)
	if n := p.decls.next; n > 0 && p.decls.order[n-1].name == string(name) {
		p.decls.order[n-1].describe(p.help, p.helpLine)
	}
}

// understand looks at a line that the tokenizer refuses and reports whether it means something all the same: a type
// that the format does not have, or a number that is none in the spelling of some printf.
func (p *Parser) understand(bad []byte) bool {
	if bad[0] == '#' {
		words := bytes.Fields(bad)
		if len(words) == 4 && string(words[1]) == "TYPE" && validName(words[2]) {
			p.declare(words[2], kindOf(string(words[3])), bad)
			return true
		}
		return len(words) > 1 && string(words[1]) == "HELP"
	}
	value := bad
	if end := bytes.LastIndexByte(bad, '}'); end >= 0 {
		value = bad[end+1:]
	} else if _, after, ok := bytes.Cut(bad, []byte{' '}); ok {
		value = after
	}
	words := bytes.Fields(value)
	return len(words) > 0 && len(words) <= 2 && nonNumber(words[0])
}

func validName(name []byte) bool {
	return model.LegacyValidation.IsValidMetricName(string(name))
}

// nonNumber reports whether a word is how C libraries print NaN or an infinity.
func nonNumber(word []byte) bool {
	word = bytes.ToLower(bytes.TrimLeft(word, "+-"))
	for _, spelling := range []string{"nan", "inf", "1.#ind", "1.#qnan", "1.#snan", "1.#inf"} {
		if bytes.HasPrefix(word, []byte(spelling)) {
			return true
		}
	}
	return false
}

func (p *Parser) sample(tokens textparse.Parser, page *Page) {
	text, _, value := tokens.Series()
	l, ok := p.lines[string(text)]
	if !ok {
		tokens.Labels(&p.labels)
		l = p.resolve()
		p.lines[string(text)] = l
	}
	p.take(l, value, page)
}

// take gives a line its value on the current page.
func (p *Parser) take(l *line, value float64, page *Page) {
	l.page = p.page
	switch l.role {
	case ignoredRole:
		if l.dropped {
			page.Dropped++
		}
		return
	case createdRole:
		if c := l.created; c.page != p.page || value < c.seconds {
			c.page, c.seconds = p.page, value
		}
		return
	}
	part := l.part
	p.touch(part)
	part.has |= 1 << l.role
	switch l.role {
	case valueRole:
		part.value = value
	case countRole:
		part.count = value
	case sumRole:
		part.sum = value
	case bucketRole:
		l.bucket.cumulative, l.bucket.page = value, p.page
	}
}

// touch makes the part and its series ones of the current page.
func (p *Parser) touch(part *part) {
	if part.page == p.page {
		return
	}
	part.page, part.has = p.page, 0
	s := part.series
	if s.page != p.page {
		s.page, s.parts = p.page, s.parts[:0]
		p.current = append(p.current, s)
	}
	s.parts = append(s.parts, part)
}

// Labels that tell the parts of one series apart.
const (
	boundLabel    = "le"
	quantileLabel = "quantile"
	aboveLabel    = "gt"
	pidLabel      = "pid"
	positionLabel = "position"
)

// resolve finds out what a sample with p.labels stands for.
func (p *Parser) resolve() *line {
	if p.labels.Len() > maxLabels {
		return &line{dropped: true}
	}
	family, role := p.decls.of(p.labels.Get(model.MetricNameLabel))
	if role == ignoredRole || family.published() == "" {
		return &line{}
	}
	bound, bounded, quantile, above := "", false, false, false
	p.tags = p.tags[:0]
	p.own = append(append(p.own[:0], family.name...), 0)
	p.labels.Range(func(l labels.Label) {
		switch l.Name {
		case model.MetricNameLabel:
			return
		case boundLabel:
			if bound, bounded = l.Value, true; role == bucketRole {
				return
			}
		case quantileLabel:
			quantile = true
		case aboveLabel:
			above = true
		case pidLabel, positionLabel:
		default:
			key := l.Name
			for p.taken[key] || key != l.Name && p.labels.Has(key) {
				key = "exported_" + key
			}
			p.tags = append(p.tags, series.Tag{Key: key, Value: l.Value})
		}
		p.own = appendText(appendText(p.own, l.Name), l.Value)
	})
	p.tags = series.NormalizeTags(p.tags)
	switch {
	case above:
		return &line{} // a bucket between two bounds, of a gauge that is none
	case role == createdRole:
		return &line{role: role, created: p.createdOf(strings.TrimSuffix(family.published(), createdSuffix))}
	case family.kind == unknownKind && (bounded || quantile):
		return &line{} // without its type, a bucket or quantile is no value by itself
	}
	le := math.NaN()
	if role == bucketRole {
		var err error
		if le, err = strconv.ParseFloat(bound, 64); err != nil || math.IsNaN(le) || math.IsInf(le, -1) {
			return &line{}
		}
	}
	part := p.partOf(family)
	if part == nil {
		return &line{dropped: true}
	}
	l := &line{role: role, part: part}
	if role == bucketRole {
		if l.bucket = part.bucketOf(le); l.bucket == nil {
			return &line{dropped: true}
		}
	}
	return l
}

// partOf returns the part with the labels in p.own, of the series with the tags in p.tags; nil when there is no room
// for it, or when another family of the page has the same series.
func (p *Parser) partOf(f *family) *part {
	typ := f.seriesType()
	p.key = append(append(p.key[:0], f.published()...), 0, byte(typ))
	for _, t := range p.tags {
		p.key = appendText(appendText(p.key, t.Key), t.Value)
	}
	s, ok := p.series[string(p.key)]
	if !ok {
		if len(p.series) >= p.maxSeries && p.pruned != p.page {
			p.pruned = p.page
			p.forget(1)
		}
		if len(p.series) >= p.maxSeries {
			return nil
		}
		s = &Series{Name: strings.Clone(f.published()), Type: typ, Tags: make([]series.Tag, len(p.tags)), family: f}
		for i, t := range p.tags {
			s.Tags[i] = series.Tag{Key: strings.Clone(t.Key), Value: strings.Clone(t.Value)}
		}
		p.series[string(p.key)] = s
		s.created = p.createdOf(s.Name)
	}
	if s.family.name != f.name && s.page == p.page {
		return nil
	}
	s.family = f
	own, ok := p.parts[string(p.own)]
	if !ok || own.series != s {
		own = &part{series: s}
		p.parts[string(p.own)] = own
	}
	return own
}

// createdOf returns where the page's word on the beginning of the series of that name with the tags in p.tags goes.
func (p *Parser) createdOf(name string) *created {
	p.key = append(append(p.key[:0], name...), 0)
	for _, t := range p.tags {
		p.key = appendText(appendText(p.key, t.Key), t.Value)
	}
	c, ok := p.created[string(p.key)]
	if !ok {
		c = &created{}
		p.created[string(p.key)] = c
	}
	return c
}

// appendText appends a text so that no two sequences of texts give the same bytes.
func appendText(dst []byte, text string) []byte {
	dst = strconv.AppendInt(dst, int64(len(text)), 10)
	return append(append(dst, ':'), text...)
}

func (f *family) seriesType() series.Type {
	switch f.kind {
	case counterKind:
		return series.Counter
	case histogramKind, summaryKind:
		return series.Histogram
	}
	return series.Gauge
}

// bucketOf returns the bucket of that bound, nil when there are too many.
func (p *part) bucketOf(le float64) *bucket {
	at, found := slices.BinarySearchFunc(p.buckets, le, func(b *bucket, le float64) int {
		switch {
		case b.le < le:
			return -1
		case b.le > le:
			return 1
		}
		return 0
	})
	if found {
		return p.buckets[at]
	}
	if len(p.buckets) >= maxBuckets {
		return nil
	}
	b := &bucket{le: le}
	p.buckets = slices.Insert(p.buckets, at, b)
	return b
}

// forget drops what no page has shown for that many pages before the current one. A line is never newer than what it
// points to, so that nothing dropped is pointed to.
func (p *Parser) forget(pages uint64) {
	if pages >= p.page {
		return
	}
	oldest := p.page - pages
	p.forgetLines(pages)
	for key, part := range p.parts {
		if part.page < oldest {
			delete(p.parts, key)
			continue
		}
		part.buckets = slices.DeleteFunc(part.buckets, func(b *bucket) bool { return b.page < oldest })
	}
	for key, s := range p.series {
		if s.page < oldest {
			delete(p.series, key)
		}
	}
	used := make(map[*created]bool, len(p.series))
	for _, s := range p.series {
		used[s.created] = true
	}
	for key, c := range p.created {
		if c.page < oldest && !used[c] {
			delete(p.created, key)
		}
	}
}

// forgetLines drops the lines that were not shown for that many pages, and all that were dropped for want of room.
func (p *Parser) forgetLines(pages uint64) {
	if pages >= p.page {
		return
	}
	for text, l := range p.lines {
		if l.page < p.page-pages || l.dropped {
			delete(p.lines, text)
		}
	}
}
