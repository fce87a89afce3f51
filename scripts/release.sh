#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds a release of what is checked out, into dist/: for each architecture an
# archive, its bill of materials, a .deb and an .rpm; an image for both architectures, and the
# checksums of all. The same commit and Go toolchain give the same bytes on any machine.
#
#   scripts/release.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1
go=${GO:-go}
if [[ -z ${SNAPSHOT:-} ]]; then
	if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] ||
		[[ $(git describe --tags --exact-match 2>/dev/null) != "$version" ]]; then
		echo "release: ${version:-this commit} is not a release: tag a commit without changes, such as v0.2.0 (SNAPSHOT=1 builds anyway)" >&2
		exit 1
	fi
	if ! grep -qF "## [${version#v}]" CHANGELOG.md; then
		echo "release: CHANGELOG.md has no section for ${version#v}" >&2
		exit 1
	fi
fi

# Everything in the archives gets the time of the commit.
epoch=$(git log -1 --format=%ct)
rm -rf dist
mkdir -p dist/tree
work=$PWD/dist/tree
trap 'rm -rf "$work"' EXIT

for arch in amd64 arm64; do
	name=tailcam-$version-linux-$arch
	mkdir "$work/$name"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS='' "$go" build -trimpath -buildvcs=true \
		-ldflags "-X github.com/tailcam/tailcam/internal/version.version=$version" -o "$work/$name/tailcam" ./cmd/tailcam
	git archive --format=tar HEAD README.md CHANGELOG.md SECURITY.md LICENSE LICENSES configs docs | tar -x -C "$work/$name"
	sed -i "s/newTag: latest/newTag: $version/" "$work/$name/configs/kubernetes/kustomization.yaml"
	tar -c -C "$work" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w,u+w --mtime="@$epoch" "$name" |
		gzip -9n >"dist/$name.tar.gz"
	"$go" run ./scripts/sbom "$work/$name/tailcam" "$version" >"dist/$name.cdx.json"
done
scripts/packages.sh "$version" dist
scripts/image.sh "$version" dist
(cd dist && sha256sum -- *.tar.gz *.cdx.json *.deb *.rpm *-image.tar >SHA256SUMS)
rm -rf "$work"
ls -l dist
