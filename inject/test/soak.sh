#!/bin/sh
# Reports so many records through the stub CUPTI and checks that none is invalid, dropped or lost and that memory is flat.
# usage: soak.sh LIBRARY PROGRAM RECORDS
set -eu
shm=$(mktemp -d)
trap 'rm -rf "$shm"' EXIT
export GRAPHSIGNAL_SHM_PATH=$shm CUDA_INJECTION64_PATH=$1
status=0
"$2" soak "$3" || status=$?
if [ "$status" != 42 ]; then
	echo "soak: ended with $status" >&2
	exit 1
fi
doc=$(cat "$shm"/*/cupti.json)
kernels=$(printf %s "$doc" | grep -oE '"(gemm|attn|norm|rope|silu|sample)":\[[0-9]+,[0-9]+\]' | sed 's/.*,\([0-9]*\)\]/\1/' | awk '{ n += $1 } END { printf "%.0f", n }')
for counter in cuda_invalid_records cuda_dropped_records_total; do
	case $doc in
	*"\"$counter\",\"type\":\"counter\",\"tags\":{},\"value\":0}"*) ;;
	*)
		echo "soak: $counter is not 0" >&2
		exit 1
		;;
	esac
done
if [ "$kernels" != "$3" ]; then
	echo "soak: $kernels of $3 kernels arrived" >&2
	exit 1
fi
echo "soak: all $kernels kernels arrived"
