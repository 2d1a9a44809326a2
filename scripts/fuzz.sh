#!/bin/sh
# Runs every fuzz target of the module for the given time each.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz runs one target. The Go tool sometimes reports its own time limit as a failure ("context deadline exceeded", and
# no failing input); that alone is none.
fuzz() {
	if go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" "$2" </dev/null >"$log" 2>&1; then
		tail -n 1 "$log"
		return
	fi
	if grep -q '^    context deadline exceeded$' "$log" && ! grep -Eq 'Failing input|panic|fuzzing process hung' "$log"; then
		echo "$1: ended by the time limit"
		return
	fi
	cat "$log"
	return 1
}

git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | sort | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -c6- | while read -r target; do
		echo "$file: $target"
		fuzz "$target" "./$(dirname "$file")"
	done
done
