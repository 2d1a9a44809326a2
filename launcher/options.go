package launcher

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/version"
)

const (
	defaultListenHost = "127.0.0.1"
	defaultListenPort = 18259
)

// options are what the command line and the environment ask for.
type options struct {
	metricsPort     int // 0: derived from the engine
	listenHost      string
	listenPort      int
	cudaGraphTrace  string // "graph", "node" or empty: not given
	rocmKernelTrace string // "none", "all" or empty: not given
	output          string // absolute path of the final document, or empty
	debug           bool
	attach          int // process to attach to, 0: none
	command         []string

	// ownEndpoint says that an endpoint or a document of its own was asked for on the command line.
	ownEndpoint bool
}

// action is what a command line asks for.
type action int

const (
	actionRun action = iota
	actionHelp
	actionVersion
	actionAttach
	actionPrintEnvironment
)

// usageError is a mistake in the command line.
type usageError struct {
	text string
	// withUsage asks for the usage text after the message.
	withUsage bool
}

func (e *usageError) Error() string { return e.text }

const usageText = `Usage: graphsignal-run [OPTIONS] [--] COMMAND [ARG...]
       graphsignal-run [OPTIONS] --attach PID
       graphsignal-run [OPTIONS] --print-environment [--] COMMAND [ARG...]

Runs COMMAND unchanged and serves what it does, GPU kernels included, at http://127.0.0.1:18259/signals.

Options:
  --listen-host HOST        address of the /signals endpoint (default 127.0.0.1)
  --listen-port PORT        port of the /signals endpoint (default 18259)
  --metrics-port PORT       port of the engine's Prometheus page (default: the engine's own)
  --output FILE             write the last /signals document to FILE when COMMAND has ended
  --cuda-graph-trace MODE   graph: one entry per CUDA graph (default); node: one per kernel in it
  --rocm-kernel-trace MODE  none: no kernel dispatches (default); all: every kernel, at a price
  --attach PID              start no COMMAND: serve what a running process does, until it ends
  --print-environment       only print the variables that COMMAND would be given, as NAME=VALUE lines
  -h, --help                this text
  -V, --version             the version

Environment:
  GRAPHSIGNAL_LISTEN_HOST, GRAPHSIGNAL_LISTEN_PORT, GRAPHSIGNAL_OUTPUT, GRAPHSIGNAL_CUDA_GRAPH_TRACE,
  GRAPHSIGNAL_ROCM_KERNEL_TRACE  as the options, which win
  GRAPHSIGNAL_TAG_NAME=VALUE     a tag "name" on everything this run reports
  GRAPHSIGNAL_COLLECTOR_CONFIG   FILE[,FILE]: Collector configuration to merge into the sidecar's
  GRAPHSIGNAL_OTLP_ENDPOINT      http(s)://HOST:PORT: send all metrics and logs there by OTLP as well
  GRAPHSIGNAL_API_KEY, GRAPHSIGNAL_API_KEY_FILE
                                 upload to the Graphsignal platform; without a key nothing is
  GRAPHSIGNAL_DISABLE_VERSION_CHECK=1
                                 no question for a newer release
  GRAPHSIGNAL_SUBREAPER=1        adopt and reap orphaned descendants
  GRAPHSIGNAL_CONSOLE_CAPTURE=0  leave standard output and error alone: no errors from the console
  GRAPHSIGNAL_DEBUG=1            say on stderr what is done

Examples:
  graphsignal-run vllm serve Qwen/Qwen3-8B --port 8001
  graphsignal-run python -m sglang.launch_server --model-path Qwen/Qwen3-8B
  graphsignal-run --metrics-port 8002 trtllm-serve Qwen/Qwen3-8B
  graphsignal-run python train.py
  graphsignal-run ./train.py
`

// versionText is what --version prints.
func versionText() string { return "graphsignal-run " + version.Version + "\n" }

// parseOptions reads the launcher's own options from the head of args, and what the environment says where they are
// silent. The rest of args is the command, untouched. warnings are about the environment, where a mistake must not
// keep the command from running.
func parseOptions(args []string, getenv func(string) (string, bool)) (o options, a action, warnings []string, err error) {
	if len(args) == 0 {
		return o, actionRun, nil, &usageError{text: "no command to run", withUsage: true}
	}
	a = actionRun
	rest := args
	for len(rest) > 0 {
		word := rest[0]
		if word == "--" {
			rest = rest[1:]
			break
		}
		if len(word) < 2 || word[0] != '-' {
			break
		}
		rest = rest[1:]
		switch word {
		case "-h", "--help":
			return o, actionHelp, nil, nil
		case "-V", "--version":
			return o, actionVersion, nil, nil
		case "--print-environment":
			a = actionPrintEnvironment
			continue
		}
		name, value, glued := strings.Cut(word, "=")
		set, known := setters[name]
		if !known {
			return o, actionRun, nil, &usageError{text: fmt.Sprintf("unknown option %q (a command that begins with a dash goes after --)", word), withUsage: true}
		}
		if !glued {
			if len(rest) == 0 {
				return o, actionRun, nil, &usageError{text: "option " + name + " needs a value"}
			}
			value, rest = rest[0], rest[1:]
		}
		if problem := set(&o, value); problem != "" {
			return o, actionRun, nil, &usageError{text: fmt.Sprintf("option %s: %q is not %s", name, value, problem)}
		}
	}
	switch {
	case o.attach > 0 && (a != actionRun || len(rest) > 0):
		return o, actionRun, nil, &usageError{text: "option --attach stands for a command; there cannot be both"}
	case o.attach > 0:
		a = actionAttach
	case len(rest) == 0:
		return o, actionRun, nil, &usageError{text: "no command to run"}
	}
	o.command = rest
	o.ownEndpoint = o.listenHost != "" || o.listenPort != 0 || o.output != ""
	warnings = o.fromEnvironment(getenv)
	if o.output != "" {
		if o.output, err = filepath.Abs(o.output); err != nil {
			return o, actionRun, nil, fmt.Errorf("option --output: %w", err)
		}
	}
	return o, a, warnings, nil
}

// setters store the value of an option; what they return says what the value should have been.
var setters = map[string]func(o *options, value string) string{
	"--metrics-port": func(o *options, value string) (problem string) {
		o.metricsPort, problem = parsePort(value)
		return problem
	},
	"--listen-port": func(o *options, value string) (problem string) {
		o.listenPort, problem = parsePort(value)
		return problem
	},
	"--listen-host": func(o *options, value string) string {
		if value = strings.TrimSpace(value); value == "" {
			return "a host (0.0.0.0 stands for all interfaces)"
		}
		o.listenHost = value
		return ""
	},
	"--output": func(o *options, value string) string {
		if value == "" {
			return "the name of a file"
		}
		o.output = value
		return ""
	},
	"--attach": func(o *options, value string) string {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32)
		if err != nil || n <= 0 {
			return "the id of a process"
		}
		o.attach = int(n)
		return ""
	},
	"--cuda-graph-trace": func(o *options, value string) string {
		o.cudaGraphTrace = strings.ToLower(strings.TrimSpace(value))
		if o.cudaGraphTrace != "graph" && o.cudaGraphTrace != "node" {
			return "graph or node"
		}
		return ""
	},
	"--rocm-kernel-trace": func(o *options, value string) string {
		o.rocmKernelTrace = strings.ToLower(strings.TrimSpace(value))
		if o.rocmKernelTrace != "none" && o.rocmKernelTrace != "all" {
			return "none or all"
		}
		return ""
	},
}

// parsePort reads a TCP port; problem says what it should have been.
func parsePort(value string) (port int, problem string) {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
	if err != nil || n == 0 {
		return 0, "a port from 1 to 65535"
	}
	return int(n), ""
}

// fromEnvironment fills what the command line left open.
func (o *options) fromEnvironment(getenv func(string) (string, bool)) (warnings []string) {
	o.debug = isOn(getenv, "GRAPHSIGNAL_DEBUG")
	if o.listenHost == "" {
		// An empty variable does not open the endpoint to the network.
		host, _ := getenv("GRAPHSIGNAL_LISTEN_HOST")
		if o.listenHost = strings.TrimSpace(host); o.listenHost == "" {
			o.listenHost = defaultListenHost
		}
	}
	if o.listenPort == 0 {
		o.listenPort = defaultListenPort
		if value, ok := getenv("GRAPHSIGNAL_LISTEN_PORT"); ok {
			if port, problem := parsePort(value); problem == "" {
				o.listenPort = port
			} else {
				warnings = append(warnings, fmt.Sprintf("GRAPHSIGNAL_LISTEN_PORT: %q is not %s; using %d", value, problem, defaultListenPort))
			}
		}
	}
	if o.output == "" {
		o.output, _ = getenv("GRAPHSIGNAL_OUTPUT")
	}
	return warnings
}

// isOn reads a switch: 1, true or yes, in any case and with blanks around it.
func isOn(getenv func(string) (string, bool), name string) bool {
	value, _ := getenv(name)
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "1", "true", "yes":
		return true
	}
	return false
}
