#!/bin/sh
# Runs the demo engine under the profiler and prints what /signals says of it after a few seconds.
set -eu
cd "$(dirname "$0")/.."
port=${DEMO_LISTEN_PORT:-18259}
log=$(mktemp)
bin/graphsignal-run --listen-port "$port" bin/graphsignal-demo --port "${DEMO_PORT:-18500}" --seconds 30 >"$log" 2>&1 &
run=$!
trap 'kill $run 2>/dev/null || true; wait $run 2>/dev/null || true; rm -f "$log"' EXIT INT TERM
# One of each source: a probe, the engine's page, and what needs two looks at the process.
await=demo_decode_step_nanoseconds,demo_generation_tokens,process_cpu_usage_percent
if ! go run ./internal/tools/excerpt -url "http://127.0.0.1:$port/signals" -await "$await"; then
	cat "$log" >&2
	echo >&2
	grep '^graphsignal-' "$log" >&2 || true
	echo "Ports in use? DEMO_LISTEN_PORT=18260 DEMO_PORT=18501 make demo" >&2
	exit 1
fi
echo
echo "That was: graphsignal-run bin/graphsignal-demo, then GET http://127.0.0.1:$port/signals"
