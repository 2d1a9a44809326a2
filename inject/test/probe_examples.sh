#!/bin/sh
# Builds the examples of host and Python probes, runs them, and looks for what they should have published.
# usage: probe_examples.sh PUBLISHER
set -eu
GRAPHSIGNAL_PROBE_LIB=$1
export GRAPHSIGNAL_PROBE_LIB
cd "$(dirname "$0")/../../examples"
GRAPHSIGNAL_SHM_PATH=$(mktemp -d)
export GRAPHSIGNAL_SHM_PATH
trap 'rm -rf "$GRAPHSIGNAL_SHM_PATH"' EXIT

# run FOLDER TARGET COMMAND PATTERN... : each pattern has to be in the document of the command.
run() {
	folder=$1 target=$2 command=$3
	shift 3
	make -s -C "$folder" "$target"
	rm -rf "$GRAPHSIGNAL_SHM_PATH"/*
	(cd "$folder" && PYTHONDONTWRITEBYTECODE=1 $command) >"$GRAPHSIGNAL_SHM_PATH/out" || {
		cat "$GRAPHSIGNAL_SHM_PATH/out"
		exit 1
	}
	for pattern in "$@"; do
		grep -qE "$pattern" "$GRAPHSIGNAL_SHM_PATH"/graphsignal_*/probes.json || {
			echo "$folder: no $pattern in" "$GRAPHSIGNAL_SHM_PATH"/graphsignal_*/probes.json >&2
			cat "$GRAPHSIGNAL_SHM_PATH"/graphsignal_*/probes.json >&2
			exit 1
		}
	done
	echo "ok   $folder"
}

run probes-host build/probes-host "build/probes-host 0.5" \
	'"toyserver_batch_nanoseconds","type":"histogram","tags":\{"worker":"0"\},"bins":\[' \
	'"toyserver_bytes_in","type":"counter","tags":\{"worker":"0"\},"value":[1-9]' '"toyserver_queue_depth","type":"gauge"' \
	'"frames":\{"sort":\[[1-9][0-9]*,[1-9][0-9]*\],"sum":\['
if command -v python3 >/dev/null; then
	run probes-python build/libprobes.so "python3 example.py 0.3" \
		'"toycompressor_compressed_bytes","type":"histogram","tags":\{"level":"6"\},"bins":\[' \
		'"toycompressor_bytes_in","type":"counter","tags":\{\},"value":[1-9]' '"toycompressor_ratio","type":"gauge"' \
		'"frames":\{"make":\[[1-9][0-9]*,[1-9][0-9]*\],"compress":\['
else
	echo "python3 is not installed: examples/probes-python was NOT run"
fi
