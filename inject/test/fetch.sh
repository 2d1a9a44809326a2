#!/bin/sh
# Unpacks (does not install) a package of another Debian release and prints the folder. Uses the mirror that apt is set up
# with. Fails when the package cannot be had.
# usage: fetch.sh CACHE RELEASE COMPONENT PACKAGE
set -eu
cache=$1 release=$2 component=$3 package=$4
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
out=$cache/$release-$package
if [ -d "$out" ]; then
	echo "$out"
	exit 0
fi
command -v apt-get >/dev/null && command -v dpkg >/dev/null || exit 1
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -i debian | head -1)
[ -n "$mirror" ] || exit 1
work=$cache/apt-$release-$component
mkdir -p "$work/lists/partial" "$work/archives/partial"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] $mirror $release $component" >"$work/sources.list"
apt="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$work/lists -o Dir::Cache=$work -o APT::Sandbox::User=root -o Acquire::Languages=none"
(
	cd "$work"
	# shellcheck disable=SC2086
	timeout 120 apt-get $apt update && timeout 300 apt-get $apt download "$package/$release"
) >"$work/log" 2>&1 || exit 1
deb=$(ls "$work/${package}"_*.deb | head -1)
dpkg -x "$deb" "$out.partial"
mv "$out.partial" "$out"
echo "$out"
