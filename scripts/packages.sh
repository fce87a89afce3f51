#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds a .deb and an .rpm of what is checked out for each architecture. The same commit, version
# and Go toolchain give the same bytes.
#
#   scripts/packages.sh VERSION DIR [ARCH...]
#
# VERSION is as of `git describe`: v1.2.3, v1.2.3-rc.1, v1.2.3-45-gabcdef, or a commit. In the
# environment: NFPM and MD2MAN (the programs), GO, SOURCE_DATE_EPOCH (default: the commit's time).
set -euo pipefail
umask 022
version=$1
out=$2
shift 2
[[ $# -gt 0 ]] || set -- amd64 arm64
export GO=${GO:-go}
nfpm=$(realpath "$(command -v "${NFPM:-nfpm}")")
MD2MAN=$(realpath "$(command -v "${MD2MAN:-go-md2man}")")
mkdir -p "$out"
out=$(realpath "$out")
cd "$(dirname "$0")/.."
export MD2MAN
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export MAINTAINER=${MAINTAINER:-The tailcam authors <tailcam@users.noreply.github.com>}

# What dpkg and rpm sort as we do: a release candidate before its release (~), commits after it (+).
VERSION=${version#v}
[[ $VERSION =~ ^[0-9]+\.[0-9]+ ]] || VERSION=0.0.0+git.${VERSION//-/.}
if [[ $VERSION =~ ^(.*)-([0-9]+)-(g[0-9a-f]+)(-dirty)?$ ]]; then
	VERSION=${BASH_REMATCH[1]}+${BASH_REMATCH[2]}.${BASH_REMATCH[3]}${BASH_REMATCH[4]/-/.}
fi
VERSION=${VERSION/-dirty/+dirty}
export VERSION=${VERSION/-/\~}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
native=$work/native
scripts/program.sh "$version" "$("$GO" env GOHOSTARCH)" "$native"

for ARCH; do
	export ARCH
	program=$work/$ARCH
	if [[ $ARCH = "$("$GO" env GOHOSTARCH)" ]]; then
		program=$native
	else
		scripts/program.sh "$version" "$ARCH" "$program"
	fi
	for kind in deb rpm; do
		export TREE=$work/$kind-$ARCH
		zsh=/usr/share/zsh/site-functions
		[[ $kind = rpm ]] || zsh=/usr/share/zsh/vendor-completions
		DESTDIR=$TREE PREFIX=/usr ZSH_DIR=$zsh scripts/install.sh "$program" "$native"
		doc=$TREE/usr/share/doc/tailcam
		if [[ $kind = deb ]]; then
			scripts/copyright.sh >"$doc/copyright"
			printf 'tailcam (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' "$VERSION" "$MAINTAINER" \
				"$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
			install -D -m 644 configs/packaging/deb/lintian-overrides "$TREE/usr/share/lintian/overrides/tailcam"
		else
			install -D -m 644 -t "$TREE/usr/share/licenses/tailcam" LICENSE LICENSES/*
		fi
		gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
		find "$TREE" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
		"$nfpm" package --config configs/packaging/nfpm.yaml --packager "$kind" --target "$out" >"$work/log" ||
			{ cat "$work/log" >&2; exit 1; }
	done
done
