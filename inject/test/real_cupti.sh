#!/bin/sh
# Runs a test with the path of a real libcupti (Debian's, unpacked and not installed), or with none when it cannot be had.
# usage: real_cupti.sh PACKAGE_CACHE TEST
set -eu
dir=$("$(dirname "$0")/fetch.sh" "$1" trixie non-free libcupti12) || dir=
if [ -n "$dir" ]; then
	lib=$(find "$dir" -name 'libcupti.so.12' | head -1)
	exec "$2" "$lib"
fi
echo "libcupti12 could not be fetched: the walk with a real CUPTI is NOT tested"
exec "$2"
