#!/bin/sh
# Fuzzes every target of the module for the given time each, two at once for each processor. A package's targets share one
# binary. A failing input is printed, and left in the package's testdata/fuzz.
#   scripts/fuzz.sh [TIME [PACKAGE...]]    TIME as Go writes it (15s), packages as directories
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:--trimpath -tags=netgo,osusergo}" CGO_ENABLED="${CGO_ENABLED:-1}"

binary_of() { echo "$FUZZ_WORK/$(echo "$1" | tr / _).test"; }

# one runs a target of a package that was built. What comes of it must not depend on how fast the machine is: minimising,
# for which Go takes up to a minute an input, is bounded by a number of tries, and the memory of a worker is bounded. Where
# the time is over in the wrong moment, the testing package reports that ("context deadline exceeded") as a failure without
# a failing input, which is none.
one() {
	package=$1 target=$2
	binary=$(binary_of "$package")
	log=$binary.$target.log
	if (cd "$package" && GOMEMLIMIT=512MiB exec "$binary" -test.run '^$' "-test.fuzz=^$target\$" -test.fuzztime "$FUZZ_TIME" \
		-test.fuzzminimizetime 50x -test.parallel 1 -test.fuzzcachedir "$FUZZ_CACHE/$package") </dev/null >"$log" 2>&1 ||
		{ grep -q '^    context deadline exceeded$' "$log" && ! grep -Eq 'Failing input|panic|fuzzing process' "$log"; }; then
		echo "$package $target: $(sed -n 's/.* execs: \([0-9]*\).*/\1/p' "$log" | tail -n 1) inputs"
		return
	fi
	{
		echo "$package $target failed:"
		tail -n 60 "$log" | cut -c 1-2000
		sed -n 's/.*Failing input written to //p' "$log" | while read -r input; do
			echo "$package/$input:"
			head -c 4000 "$package/$input"
		done
	} >&2
	return 1
}
if [ "${1:-}" = -one ]; then
	one "$2" "$3"
	exit
fi

FUZZ_TIME=${1:-15s}
[ $# = 0 ] || shift
FUZZ_CACHE=$(go env GOCACHE)/fuzz/$(go list -m)
FUZZ_WORK=$(mktemp -d)
# Targets that write files do so in memory, where that can be.
base=${TMPDIR:-/tmp}
[ ! -w /dev/shm ] || base=/dev/shm
TMPDIR=$(mktemp -d -p "$base")
export FUZZ_TIME FUZZ_CACHE FUZZ_WORK TMPDIR
trap 'rm -rf "$FUZZ_WORK" "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | xargs -n 1 dirname | sort -u)
for package in "$@"; do
	go test -c -fuzz . -o "$(binary_of "$package")" "./$package"
	grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$package"/*_test.go | sed "s|^func |$package |" >>"$FUZZ_WORK/targets"
done
xargs -P $((2 * $(nproc))) -n 2 scripts/fuzz.sh -one <"$FUZZ_WORK/targets"
