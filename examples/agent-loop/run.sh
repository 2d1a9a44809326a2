#!/bin/sh
# Measures both versions of the decode loop: without profiler (twice, taking turns), and under it with the ranking of five
# seconds in the middle. Needs a GPU, python3 with PyTorch, and graphsignal-run and graphsignal-top on PATH. About 3 minutes.
# usage: run.sh [DIRECTORY for the documents]
set -eu
here=$(dirname "$0")
out=${1:-$(mktemp -d)}
mkdir -p "$out"
export GRAPHSIGNAL_LISTEN_PORT="${GRAPHSIGNAL_LISTEN_PORT:-18259}"

echo "== without profiler"
for turn in 1 2; do
	for kv in concat preallocated; do
		python3 "$here/decode.py" --kv "$kv" --seconds 6 | tail -n 1
	done
done

for kv in concat preallocated; do
	echo "== under graphsignal-run: $kv"
	graphsignal-run --output "$out/$kv.json" python3 "$here/decode.py" --kv "$kv" --seconds 16 >"$out/$kv.txt" 2>&1 &
	run=$!
	until grep -qs ready "$out/$kv.txt"; do
		kill -0 $run 2>/dev/null || { cat "$out/$kv.txt"; exit 1; }
		sleep 0.2
	done
	sleep 3
	graphsignal-top --port "$GRAPHSIGNAL_LISTEN_PORT" --once --window 5
	wait $run
	tail -n 1 "$out/$kv.txt"
done

echo "== from inside: graphsignal.watch()"
PYTHONPATH="$here/../../python" python3 "$here/decode.py" --kv preallocated --seconds 4 --watch "$out/watch.json" | tail -n 1
until [ -s "$out/watch.json" ]; do sleep 0.2; done
python3 - "$out/watch.json" <<'EOF'
import json, sys
metrics = json.load(open(sys.argv[1]))["metrics"]
frames = [f for m in metrics if m["name"] == "cuda_kernels_nanoseconds" for f in m["stats"]["frames"]]
print(len(frames), "kernels,", sum(f["value"] for f in frames) // 10**6, "ms")
sys.exit(not frames)
EOF
