#!/bin/sh
# Checks that the Collector needs no glibc newer than FLOOR, that it serves /signals with a GPU under glibc 2.31's own
# loader, and that it starts where the loader binds everything at once and there is no NVIDIA library.
# usage: gate-collector.sh FLOOR COLLECTOR PACKAGE_CACHE
set -eu
cd "$(dirname "$0")/.."
floor=$1 collector=$2 cache=$3
newest=$(objdump -T -p "$collector" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
if [ "$(printf '%s\nGLIBC_%s\n' "$newest" "$floor" | sort -V | tail -1)" != "GLIBC_$floor" ]; then
	echo "gate: the Collector needs $newest" >&2
	exit 1
fi
echo "gate: the newest glibc version that the Collector needs is $newest"
if readelf -d "$collector" | grep -qwE 'BIND_NOW|NOW'; then
	echo "gate: the Collector was linked to bind everything at once" >&2
	exit 1
fi
LD_BIND_NOW=1 "$collector" --version >/dev/null
echo "gate: the Collector starts with LD_BIND_NOW"

old=$(inject/test/fetch.sh "$cache" bullseye main libc6) || {
	echo "gate: glibc 2.31 could not be fetched: running under it was NOT tested"
	exit 0
}
GRAPHSIGNAL_OLD_GLIBC=$old GRAPHSIGNAL_COLLECTOR=$collector go test -count=1 -run '^TestOldGlibc$' ./e2e
