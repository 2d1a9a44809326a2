// Package enginepages makes metrics pages like those of real inference engines, for tests: every family that the live
// view uses, with the engines' label sets and bucket bounds, and values that grow from step to step as those of a busy
// engine do.
package enginepages

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// page is an exposition under construction, at one step of the simulated run.
type page struct {
	bytes.Buffer
	step float64
	// number formats a value as the engine's library does.
	number func(float64) string
	// created says that the library shows when counting began.
	created bool
}

// labels are the pairs between the braces, without those of single samples.
type labels string

func (p *page) family(name, typ, help string) {
	p.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + typ + "\n")
}

func (p *page) sample(name string, l labels, value float64) {
	p.WriteString(name)
	if l != "" {
		p.WriteString("{" + string(l) + "}")
	}
	p.WriteString(" " + p.number(value) + "\n")
}

func (l labels) with(more string) labels {
	if l == "" {
		return labels(more)
	}
	return l + "," + labels(more)
}

// began is when the simulated processes started to count, epoch seconds.
const began = 1.7e9

func (p *page) createdFamily(base string, sets []labels) {
	if !p.created {
		return
	}
	name := base + "_created"
	p.family(name, "gauge", "When counting began.")
	for _, l := range sets {
		p.sample(name, l, began+0.25)
	}
}

// gauge shows one value a label set.
func (p *page) gauge(name, help string, sets []labels, value func(i int) float64) {
	p.family(name, "gauge", help)
	for i, l := range sets {
		p.sample(name, l, value(i))
	}
}

// counter shows a total that grows by rate(i) a step.
func (p *page) counter(name, help string, sets []labels, rate func(i int) float64) {
	p.family(name, "counter", help)
	for i, l := range sets {
		p.sample(name, l, math.Floor(rate(i)*p.step))
	}
	p.createdFamily(strings.TrimSuffix(name, "_total"), sets)
}

// histogram shows perStep observations a step, most of them around the bound at place peak (0 to 1) of the list.
func (p *page) histogram(name, help string, sets []labels, bounds []float64, peak float64, perStep float64) {
	p.family(name, "histogram", help)
	for i, l := range sets {
		observed := math.Floor(perStep * float64(i+1) * p.step)
		var weights []float64
		var whole float64
		for k := range bounds {
			distance := (float64(k) - peak*float64(len(bounds)-1)) / 2
			w := math.Exp(-distance * distance)
			weights = append(weights, w)
			whole += w
		}
		whole *= 1.02 // the rest lies above all bounds
		var cumulative, sum float64
		for k, bound := range bounds {
			n := math.Floor(observed * weights[k] / whole)
			cumulative += n
			sum += n * bound * 0.75
			p.sample(name+"_bucket", l.with(`le="`+p.bound(bound)+`"`), cumulative)
		}
		p.sample(name+"_bucket", l.with(`le="+Inf"`), observed)
		p.sample(name+"_count", l, observed)
		p.sample(name+"_sum", l, sum+(observed-cumulative)*bounds[len(bounds)-1]*1.5)
	}
	p.createdFamily(name, sets)
}

func (p *page) bound(le float64) string { return p.number(le) }

// summary shows count and sum without quantiles, as Python's library does.
func (p *page) summary(name, help string, sets []labels, perStep, mean float64) {
	p.family(name, "summary", help)
	for i, l := range sets {
		observed := math.Floor(perStep * float64(i+1) * p.step)
		p.sample(name+"_count", l, observed)
		p.sample(name+"_sum", l, observed*mean)
	}
	p.createdFamily(name, sets)
}

// wave is a value that goes up and down between low and high.
func (p *page) wave(low, high, phase float64) float64 {
	return low + (high-low)*(0.5+0.5*math.Sin(p.step/7+phase))
}

// python formats a number as Python's client library: always as a float.
func python(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.Abs(v) >= 1e6:
		return strconv.FormatFloat(v, 'e', -1, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// iostream formats a number as a C++ stream: six digits.
func iostream(v float64) string {
	if math.IsNaN(v) {
		return "-nan"
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// Page returns the page of an engine (a name of package engines) at a step of its run; each step is about a second
// under load, and at step 0 nothing has been asked of it yet. It reports false for an engine that it does not know.
func Page(engine string, step int) ([]byte, bool) {
	write, ok := pages[engine]
	if !ok {
		return nil, false
	}
	return write(float64(step)), true
}
