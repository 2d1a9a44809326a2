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
need objdump binutils
need protoc protobuf-compiler
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing:$missing (install with your package manager)" >&2
	exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
