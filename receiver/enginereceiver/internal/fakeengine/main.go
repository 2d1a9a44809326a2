// Command fakeengine stands in for an inference engine in end-to-end tests: under the name of an engine's program (vllm,
// sglang, trtllm-serve, llama-server) it listens where the engine would with the same arguments and serves metrics pages
// like the engine's, a step further with every request. It shows them under the engine's own conditions only: SGLang with
// --enable-metrics, llama-server with --metrics, TensorRT-LLM with return_perf_metrics in its options file.
//
// It prints the line "listening on HOST:PORT" and ends with status 0 on SIGTERM or SIGINT, or after the time that
// FAKEENGINE_RUN_TIME (a Go duration) gives.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/graphsignal/graphsignal-collector/launcher/engines"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/enginepages"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "fakeengine:", err)
		os.Exit(1)
	}
}

func run(argv []string) error {
	engine := engines.Detect(argv, 0, os.LookupEnv)
	if engine.Endpoint == nil {
		return fmt.Errorf("%s is no engine with a metrics page", argv[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if text := os.Getenv("FAKEENGINE_RUN_TIME"); text != "" {
		runTime, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, runTime)
		defer cancel()
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(engine.Endpoint.Host, strconv.Itoa(engine.Endpoint.Port)))
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: handler(engine, argv), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// handler serves the page, or what the engine answers in its place.
func handler(engine engines.Engine, argv []string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
	refusal := 0
	switch engine.Name {
	case engines.SGLang:
		if !slices.Contains(argv, "--enable-metrics") {
			refusal = http.StatusNotFound
		}
	case engines.LlamaCPP:
		if !slices.Contains(argv, "--metrics") {
			refusal = http.StatusNotImplemented
		}
	case engines.TensorRTLLM:
		if !perfMetrics(argv) {
			refusal = http.StatusNotFound
		}
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "[]") })
	}
	var step atomic.Int64
	mux.HandleFunc("GET "+engine.Endpoint.Path, func(w http.ResponseWriter, _ *http.Request) {
		if refusal != 0 {
			http.Error(w, http.StatusText(refusal), refusal)
			return
		}
		page, _ := enginepages.Page(engine.Name, int(step.Add(1)-1))
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(page) // a client that is gone is none of the engine's business
	})
	return mux
}

// perfMetrics reports whether TensorRT-LLM's options file enables its metrics.
func perfMetrics(argv []string) bool {
	for i, word := range argv {
		if word != "--extra_llm_api_options" && word != "--config" || i+1 == len(argv) {
			continue
		}
		text, err := os.ReadFile(argv[i+1])
		return err == nil && strings.Contains(string(text), "return_perf_metrics: true")
	}
	return false
}
