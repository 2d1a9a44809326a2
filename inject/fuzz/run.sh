#!/bin/sh
# Runs libFuzzer targets, two at once for each processor: run.sh FOLDER TIME TARGET...
set -eu
one() {
	folder=$1 seconds=$2 target=$3
	corpus=$folder/corpus/$target
	mkdir -p "$corpus"
	# Seeds that were failing inputs once, or that reach what chance finds late.
	seeds=
	[ ! -d "fuzz/seeds/$target" ] || seeds=fuzz/seeds/$target
	# shellcheck disable=SC2086
	if ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:allocator_may_return_null=1 \
		"$folder/$target" -max_total_time="$seconds" -max_len=8192 -len_control=0 -timeout=60 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$folder/$target." "$corpus" $seeds >"$folder/$target.log" 2>&1; then
		echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$target.log") inputs"
		return
	fi
	{
		echo "$target failed:"
		tail -n 80 "$folder/$target.log" | cut -c 1-2000
	} >&2
	return 1
}
if [ "$1" = -one ]; then
	shift
	one "$@"
	exit
fi
folder=$1
seconds=$(($(echo "$2" | sed 's/h$/*3600/; s/m$/*60/; s/s$//')))
shift 2
for target in "$@"; do echo "$folder" "$seconds" "$target"; done | xargs -P $((2 * $(nproc))) -n 3 "$0" -one
