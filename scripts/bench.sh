#!/bin/sh
# Measures every budget that needs no GPU. Arguments go to bench/host (see its -help).
set -eu
cd "$(dirname "$0")/.."
make -s -C inject programs
exec go run ./bench/host "$@"
