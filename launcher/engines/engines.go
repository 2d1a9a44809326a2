// Package engines knows the inference engines: how to recognise one in a command line, which of its arguments
// the launcher may touch, and where its Prometheus page is. It looks at words, at the file names behind them and at
// the engine's own configuration file; it starts nothing and opens no connection.
package engines

import (
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Names of the engines, as in Engine.Name and in the engine receiver's `engine` setting.
const (
	VLLM        = "vllm"
	SGLang      = "sglang"
	TensorRTLLM = "tensorrt-llm"
	LlamaCPP    = "llama.cpp"
	Generic     = "generic"
)

// Engine is what a command line turned out to be.
type Engine struct {
	// Name is one of the constants above.
	Name string
	// Argv is the command line to run: the given one but for the adjustments that make the engine show its metrics.
	// It shares no memory with the given one. Its first word is not resolved.
	Argv []string
	// Endpoint is where the engine's Prometheus page is, nil when there is none to scrape.
	Endpoint *Endpoint
	// Warnings are sentences for the user about metrics that will be missing.
	Warnings []string
	// Notes are sentences for the debug output.
	Notes []string
}

// Endpoint is the address of a Prometheus page, always plain http.
type Endpoint struct {
	// Host is a name or an IP address without brackets, never a wildcard address.
	Host string
	// Port is 1 to 65535.
	Port int
	// OtherPorts are the defaults of other versions of the engine, where the user named no port: the page is at one of them
	// instead if the engine listens there.
	OtherPorts []int
	// Path begins with a slash.
	Path string
	// Explicit says that the user named the port for this purpose, so that it is trusted whoever listens there.
	Explicit bool
}

// BaseURL returns the address without the path.
func (e Endpoint) BaseURL() string { return "http://" + net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// URL returns the address of the page.
func (e Endpoint) URL() string { return e.BaseURL() + e.Path }

// engine is one inference engine.
type engine interface {
	name() string
	// command reports whether a program of that base name, given those words, is the engine.
	command(base string, words []string) bool
	// module reports whether running that Python module runs the engine.
	module(name string) bool
	// adjust returns the whole command line with the engine's adjustments, which may be argv itself; own are the
	// engine's words in it.
	adjust(argv []string, own arguments) []string
	// page says where the engine's own words put its Prometheus page. A page without port means that there is none.
	page(own arguments, env variables) page
}

// variables looks up a variable of the engine's environment.
type variables func(name string) (value string, set bool)

// page is an engine's answer about its Prometheus page.
type page struct {
	host     string
	port     int
	others   []int // further default ports
	path     string
	warnings []string
	notes    []string
}

// known lists the engines in the order in which they are asked.
var known = []engine{vllm{}, sglang{}, tensorRTLLM{}, llamaCPP{}}

// Detect recognises the engine that argv starts, also behind wrappers such as env, numactl, uv run, torchrun and
// python -m. A metricsPort above 0 is the port that the user named for the engine's metrics; it wins over every other.
// getenv looks up the environment in which argv will run; nil is an empty one.
func Detect(argv []string, metricsPort int, getenv func(name string) (value string, set bool)) Engine {
	if getenv == nil {
		getenv = func(string) (string, bool) { return "", false }
	}
	e, own := find(argv)
	p := e.page(own, getenv)
	found := Engine{
		Name:     e.name(),
		Argv:     slices.Clone(e.adjust(argv, own)),
		Warnings: p.warnings,
		Notes:    p.notes,
	}
	port, others, explicit := p.port, p.others, metricsPort > 0
	if explicit {
		port, others = metricsPort, nil
	}
	if port > 0 {
		found.Endpoint = &Endpoint{Host: p.host, Port: port, OtherPorts: others, Path: p.path, Explicit: explicit}
	}
	return found
}

// find returns the engine and its own words, the first of which names its program or module. The generic engine
// owns all words.
func find(argv []string) (engine, arguments) {
	if len(argv) == 0 {
		return generic{}, nil
	}
	for c, ok := (command{name: argv[0]}), true; ok; {
		if e := match(c, argv[c.at+1:]); e != nil {
			return e, arguments(argv[c.at:])
		}
		c, ok = unwrap(argv, c)
	}
	return generic{}, arguments(argv)
}

func match(c command, words []string) engine {
	if c.module {
		for _, e := range known {
			if e.module(c.name) {
				return e
			}
		}
		return nil
	}
	if e := byName(filepath.Base(c.name), words); e != nil {
		return e
	}
	return byName(realName(c.name), words)
}

func byName(base string, words []string) engine {
	for _, e := range known {
		if e.command(base, words) {
			return e
		}
	}
	return nil
}

// realName follows a program's symbolic links and returns the base name at their end, or nothing.
func realName(program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		return ""
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	return filepath.Base(path)
}
