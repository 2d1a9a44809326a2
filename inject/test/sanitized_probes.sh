#!/bin/sh
# Runs the sanitized program with GPU probes.
# usage: sanitized_probes.sh FOLDER
set -eu
dir=$1
shm=$(mktemp -d)
trap 'rm -rf "$shm"' EXIT
export GRAPHSIGNAL_SHM_PATH="$shm" CUDA_INJECTION64_PATH="$dir/injection.so" GRAPHSIGNAL_CUPTI_PATH=/nonexistent GRAPHSIGNAL_PROBE_LIB=
export ASAN_OPTIONS=detect_leaks=0:log_path=stdout TSAN_OPTIONS=halt_on_error=1:log_path=stdout
for what in basic other-types failures slow never reset many capture fork "leave 205" "leave 1210"; do
	status=0
	# shellcheck disable=SC2086
	"$dir/probe_gpu_program" $what 2>"$shm/err" || status=$?
	if [ "$status" != 42 ]; then
		cat "$shm/err" >&2
		echo "probe_gpu_program $what ended with $status" >&2
		exit 1
	fi
	echo "ok   probe_gpu_program $what"
done
