#!/bin/sh
# gofmt, go vet and staticcheck over the module; the C++ part is compiled with -Wall -Wextra -Werror.
set -eu
cd "$(dirname "$0")/.."
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "gofmt would change:" >&2
	echo "$unformatted" >&2
	exit 1
fi
go vet ./...
go tool staticcheck ./...
