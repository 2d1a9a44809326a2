#!/bin/sh
# Runs the ROCm library and the fake SDK, both built with a sanitizer, in both layouts.
# usage: sanitized.sh FOLDER
set -eu
dir=$1
export ASAN_OPTIONS=detect_leaks=0:log_path=stdout TSAN_OPTIONS=halt_on_error=1:log_path=stdout:second_deadlock_stack=1
shm=$(mktemp -d)
trap 'rm -rf "$shm"' EXIT
export GRAPHSIGNAL_SHM_PATH=$shm ROCP_TOOL_LIBRARIES=$dir/tool.so GRAPHSIGNAL_ROCM_KERNEL_TRACE=all
for version in 600 10000; do
	for what in kinds impossible names many-names threads drops periodic exit busy fork device-probes device-exit; do
		status=0
		"$dir/run" $what $version "$dir/hip_module.so" || status=$?
		if [ "$status" != 42 ]; then
			echo "rocm $what $version ended with $status" >&2
			exit 1
		fi
		echo "ok   rocm $what $version"
	done
done
