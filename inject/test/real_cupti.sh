#!/bin/sh
# Runs a test with the paths of real libcupti (Debian's, unpacked and not installed), or with those of them that can be had.
# usage: real_cupti.sh PACKAGE_CACHE TEST
set -eu
cache=$1 test=$2
set --
for package in bookworm/libcupti11.8 trixie/libcupti12; do
	dir=$("$(dirname "$0")/fetch.sh" "$cache" "${package%/*}" non-free "${package#*/}") || dir=
	lib=${dir:+$(find "$dir" -name 'libcupti.so.1[12]*' | sort | head -1)}
	if [ -n "$lib" ]; then
		set -- "$@" "$lib"
	else
		echo "${package#*/} could not be fetched: the walk with it is NOT tested"
	fi
done
exec "$test" "$@"
