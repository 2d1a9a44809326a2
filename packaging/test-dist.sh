#!/bin/sh
# Installs the release in a bare Debian 11 and a bare Ubuntu 20.04 (both glibc 2.31) and profiles the demo engine there, which
# is built by that system's own compiler from what the tarball holds. Also installs the .deb, and compares two makes of the
# release. Ubuntu is left out, and that is said, where its archive cannot be reached.
# usage: test-dist.sh DIST CACHE (root; the network for the first run)
set -eu
cd "$(dirname "$0")/.."
dist=$(cd "$1" && pwd) cache=$2
[ "$(id -u)" = 0 ] || { echo "test-dist: needs root for debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "test-dist: needs debootstrap (apt-get install debootstrap)" >&2; exit 1; }
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# bare NAME SUITE MIRROR: a minimal system with a compiler in $cache/NAME, kept for the next time.
bare() {
	[ ! -e "$cache/$1.done" ] || return 0
	rm -rf "${cache:?}/$1"
	keyring=""
	# Other distributions' keys are not at hand, and the system is thrown away.
	[ "$1" = debian-11 ] || keyring=--no-check-gpg
	# shellcheck disable=SC2086 # without a mirror, debootstrap's own default
	debootstrap --variant=minbase --include=g++ $keyring "$2" "$cache/$1" $3 >"$cache/$1.log" 2>&1 || return 1
	touch "$cache/$1.done"
}

(cd "$dist" && sha256sum -c --quiet SHA256SUMS)
echo "test-dist: checksums hold"
tarball=$(ls "$dist"/graphsignal-*.tar.gz)

# What runs in the old system, in mount and pid namespaces of its own.
cat >"$cache/run.sh" <<'INNER'
set -eu
mount -t proc proc /proc
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
export GRAPHSIGNAL_DISABLE_VERSION_CHECK=1
say() { echo "test-dist: $*"; }
say "$(. /etc/os-release && echo "$PRETTY_NAME"), $(ldd --version | head -1)"
cd /srv/test
mkdir "odd place"
tar -xzf release.tar.gz -C "odd place"
home=$(ls -d "/srv/test/odd place"/graphsignal-*)

profile() { # BIN-DIRECTORY LABEL
	"$1/graphsignal-run" --version
	"$1/graphsignal-collector" --version
	"$1/graphsignal-top" --version
	"$1/graphsignal-run" --listen-port 28999 --output /srv/test/signals.json /srv/test/graphsignal-demo --port 28998 --seconds 5 >/srv/test/log 2>&1
	for name in demo_tokens demo_decode_step_nanoseconds demo_request_latency_seconds process_memory_usage_bytes host_memory_usage_bytes; do
		grep -q "\"name\": \"$name\"" /srv/test/signals.json || {
			say "$2: $name is not in /signals"
			exit 1
		}
	done
	say "$2: the demo engine is profiled"
}
(cd "$home/share/graphsignal/examples/demo" && g++ -std=c++17 -O2 -I"$home/include" ./*.cpp -o /srv/test/graphsignal-demo \
	-pthread -ldl)
profile "$home/bin" "tarball"
ln -sf "$home/bin/graphsignal-run" /usr/local/bin/linked-run
/usr/local/bin/linked-run --print-environment true | grep -q "$home" && say "a link to the launcher finds its installation"
rm /usr/local/bin/linked-run
dpkg -i release.deb >/dev/null
profile /usr/bin ".deb"
dpkg -r graphsignal >/dev/null
[ ! -e /usr/lib/graphsignal ] && say "the package leaves nothing behind"
INNER
try() { # NAME
	system=$cache/$1
	rm -rf "$system/srv/test" && mkdir -p "$system/srv/test"
	cp "$tarball" "$system/srv/test/release.tar.gz"
	cp "$dist"/graphsignal-*.deb "$system/srv/test/release.deb"
	cp "$cache/run.sh" "$system/srv/test"
	unshare -mpf --kill-child chroot "$system" sh /srv/test/run.sh || {
		cat "$system/srv/test/log" >&2 2>/dev/null || true
		exit 1
	}
}

bare debian-11 bullseye "$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -i debian | head -1)" || {
	tail "$cache/debian-11.log" >&2
	exit 1
}
try debian-11
if bare ubuntu-20.04 focal http://archive.ubuntu.com/ubuntu; then
	try ubuntu-20.04
else
	echo "test-dist: Ubuntu 20.04 was NOT tried: $(tail -1 "$cache/ubuntu-20.04.log")"
fi

if command -v rpm >/dev/null; then
	rpm -qlp "$dist"/graphsignal-*.rpm | grep -qx /usr/bin/graphsignal-run && echo "test-dist: the .rpm lists its files"
else
	echo "test-dist: no rpm here: the .rpm was NOT looked at"
fi
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT INT TERM
packaging/dist.sh "$again" >/dev/null
cmp "$dist/SHA256SUMS" "$again/SHA256SUMS"
echo "test-dist: made twice, the same bytes"
