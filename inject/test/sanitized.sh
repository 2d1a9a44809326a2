#!/bin/sh
# Runs the sanitized tests of one folder.
# usage: sanitized.sh FOLDER
set -eu
dir=$1
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:log_path=stdout TSAN_OPTIONS=halt_on_error=1:log_path=stdout:second_deadlock_stack=1
for t in probe_test writer_test cupti_unit_test; do
	echo "== $t"
	"$dir/$t"
done
shm=$(mktemp -d)
trap 'rm -rf "$shm"' EXIT
export GRAPHSIGNAL_SHM_PATH=$shm CUDA_INJECTION64_PATH=$dir/injection.so
for what in kinds graphs impossible names many-names threads periodic in-flight fork-after "soak 3000000"; do
	status=0
	# shellcheck disable=SC2086
	"$dir/cuda_sanitized" $what || status=$?
	if [ "$status" != 42 ]; then
		echo "cuda_sanitized $what ended with $status" >&2
		exit 1
	fi
	echo "ok   cuda_sanitized $what"
done
