#!/bin/sh
# Makes the release from what `make install` lays out: tarball, .deb, .rpm, bill of materials and checksums. The same
# commit gives the same bytes: times are the commit's (SOURCE_DATE_EPOCH), owners root, names sorted.
# usage: dist.sh OUT (from the module's root, after `make build`)
set -eu
cd "$(dirname "$0")/.."
out=$1
NFPM=${NFPM:-github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2}
: "${MAKE:=make}"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022

version=$(sed -n 's/^var Version = "\(.*\)"$/\1/p' internal/version/version.go)
machine=$(uname -m)
case $machine in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
	echo "dist: no release for $machine" >&2
	exit 1
	;;
esac
name=graphsignal-$version-linux-$arch
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

$MAKE --no-print-directory install-files DESTDIR="$work/tar/$name" PREFIX= >/dev/null
$MAKE --no-print-directory install-files DESTDIR="$work/package" PREFIX=/usr >/dev/null
for program in graphsignal-run graphsignal-collector graphsignal-top; do
	said=$("$work/tar/$name/bin/$program" --version)
	case $said in
	*" $version") ;;
	*)
		echo "dist: $program says it is '$said', not $version" >&2
		exit 1
		;;
	esac
done
find "$work/tar" "$work/package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

rm -f "$out/$name".* "$out/SHA256SUMS"
tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$SOURCE_DATE_EPOCH" \
	-C "$work/tar" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"

doc=$work/package/usr/share/doc/graphsignal
mkdir -p "$doc"
mv "$work/package/usr/share/graphsignal/LICENSE" "$doc/copyright"
find "$work/package" -type d -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
# The packager is a program of its own with its own modules, and built without ours.
GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN="$work/bin" go install "$NFPM"
for format in deb rpm; do
	VERSION=$version ARCH=$arch STAGE=$work/package "$work/bin/nfpm" package --config packaging/nfpm.yaml --packager $format \
		--target "$out/$name.$format" >"$work/nfpm.log" || {
		cat "$work/nfpm.log" >&2
		exit 1
	}
done
go run ./internal/tools/sbom -name graphsignal -version "$version" "$work/tar/$name" >"$out/$name.cdx.json"
(cd "$out" && sha256sum "$name".* >SHA256SUMS)
ls -l "$out"
