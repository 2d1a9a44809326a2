#!/bin/sh
# Checks that libraries ask for no glibc symbol newer than 2.17, for no C++ runtime, and are never unloaded.
# usage: [objdump=...] versions.sh LIBRARY...
set -eu
objdump=${objdump:-objdump}

for lib in "$@"; do
	if $objdump -T "$lib" | grep -q 'GLIBCXX\|CXXABI'; then
		echo "gate: $lib needs a C++ runtime" >&2
		exit 1
	fi
	newest=$($objdump -T "$lib" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
	if [ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -1)" != GLIBC_2.17 ]; then
		echo "gate: $lib needs $newest:" >&2
		$objdump -T "$lib" | grep "$newest" >&2
		exit 1
	fi
	if $objdump -p "$lib" | grep NEEDED | grep -vqE 'lib(c|dl|pthread)\.so'; then
		echo "gate: $lib needs an unexpected library" >&2
		$objdump -p "$lib" | grep NEEDED >&2
		exit 1
	fi
	if ! $objdump -p "$lib" | grep -qE "FLAGS_1 +0x[0-9a-f]*[89abcdef]$"; then
		echo "gate: $lib is not marked nodelete" >&2
		exit 1
	fi
	echo "gate: $(basename "$lib"): newest symbol $newest"
done
