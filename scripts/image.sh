#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the OCI image of what is checked out, as one archive with both architectures that podman,
# containerd, skopeo and crane read. Nothing is run or pulled: it has the program, its files, and no
# other. The same commit, version and Go toolchain give the same bytes.
#
#   scripts/image.sh VERSION DIR [ARCH...]
#
# VERSION is as of `git describe`, and the tag of the image. In the environment: MD2MAN (the
# program), GO, IMAGE (default: ghcr.io/tailcam/tailcam), SOURCE_DATE_EPOCH (default: the commit's
# time).
set -euo pipefail
umask 022
version=$1
out=$2
shift 2
[[ $# -gt 0 ]] || set -- amd64 arm64
export GO=${GO:-go}
MD2MAN=$(realpath "$(command -v "${MD2MAN:-go-md2man}")")
mkdir -p "$out"
out=$(realpath "$out")
cd "$(dirname "$0")/.."
export MD2MAN
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
image=${IMAGE:-ghcr.io/tailcam/tailcam}:$version

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
native=$("$GO" env GOHOSTARCH)
scripts/program.sh "$version" "$native" "$work/$native"

# licences copies those of the libraries in a program.
licences() { # PROGRAM DIR
	local path module file modules
	mapfile -t modules < <("$GO" version -m "$1" | awk '$1 == "dep" {print $2}')
	"$GO" list -m -f '{{.Dir}} {{.Path}}' "${modules[@]}" | while read -r path module; do
		for file in "$path"/{LICENSE,LICENCE,License,COPYING,NOTICE}*; do
			[[ ! -f $file ]] || install -D -m 644 -t "$2/$module" "$file"
		done
	done
	install -D -m 644 "$("$GO" env GOROOT)/LICENSE" "$2/go/LICENSE"
}

layers=()
for arch; do
	[[ -e $work/$arch ]] || scripts/program.sh "$version" "$arch" "$work/$arch"
	tree=$work/tree-$arch
	DESTDIR=$tree PREFIX=/usr scripts/install.sh "$work/$arch" "$work/$native"
	# What a container has no use for.
	rm -r "$tree"/usr/{include,lib/systemd,lib/sysusers.d,lib/tmpfiles.d} "$tree"/usr/share/{man,bash-completion,fish,zsh} \
		"$tree"/usr/share/doc/tailcam/*.md "$tree/usr/share/doc/tailcam/examples/systemd"
	install -D -m 644 -t "$tree/usr/share/licenses/tailcam" LICENSE LICENSES/*
	licences "$work/$arch" "$tree/usr/share/licenses/tailcam/libraries"
	# No group tailcam: its number would be another group's on the host.
	printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >"$tree/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
	mkdir -p "$tree"/{tmp,run/tailcam,var/lib/tailcam,proc,sys,dev}
	chmod 1777 "$tree/tmp"
	chmod 711 "$tree/var/lib/tailcam"
	tar -c -C "$tree" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" . >"$work/$arch.tar"
	layers+=("$arch=$work/$arch.tar")
done

"$GO" run ./scripts/image -name "$image" -revision "$(git rev-parse HEAD 2>/dev/null)" -out "$work/layout" "${layers[@]}"
tar -c -C "$work/layout" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" \
	oci-layout index.json blobs >"$out/tailcam-$version-image.tar"
