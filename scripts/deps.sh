#!/bin/sh
# Installs the Debian packages that building and testing need beside Go and gcc. Without root it only says
# what is missing.
set -eu
missing=""
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need g++ g++
need git git
need curl curl
need python3 python3
need tmux tmux
need openssl openssl
need ps procps
need objdump binutils
need protoc protobuf-compiler
# Tests that need these say so and are skipped without them.
optional=""
command -v prometheus >/dev/null 2>&1 || optional="prometheus"
# The native parsers are fuzzed with clang's libFuzzer.
command -v clang++ >/dev/null 2>&1 || optional="$optional clang libclang-rt-dev"
[ -n "$missing$optional" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	[ -n "$missing" ] || exit 0
	echo "missing:$missing (install with your package manager)" >&2
	exit 1
fi
echo "installing:$missing $optional"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
[ -z "$missing" ] || apt-get install -y -qq --no-install-recommends $missing >/dev/null
for package in $optional; do
	apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
		echo "not installed, so some tests are skipped: $package" >&2
done
