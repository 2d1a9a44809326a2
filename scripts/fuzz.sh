#!/bin/sh
# Runs every fuzz target of the module for the given time each.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s}
git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | sort | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -c6- | while read -r target; do
		echo "$file: $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")" </dev/null
	done
done
