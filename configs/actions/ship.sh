#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Ships a snapshot elsewhere.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/ship.sh, "backup@logs:/srv/tailcam"]
#       timeout: 5m
#
# ship.sh [TARGET]. Without one, TARGET comes from /etc/tailcam/ship.conf (or
# the file that $1 names after -c), which is sh:
#
#   TARGET=https://objects.example/tailcam
#   CURL_CONFIG=/etc/tailcam/curl.conf     # for curl -K: headers, credentials
#   SSH_OPTIONS='-i /etc/tailcam/id_ed25519'
#
# TARGET is one of
#   user@host:/dir       rsync over ssh, or scp if rsync is not installed
#   scp:user@host:/dir   scp, whatever is installed
#   rsync://host/module  an rsync daemon
#   https://…, http://…  one PUT of ID.tar.gz below that address, by curl
#   /dir                 a directory of this machine: a mounted share
#
# The target directory must exist. snapshot.json arrives last: a copy that has
# it is whole (but for the log of this action, which is still being written).
# Put this action after those that add files to the snapshot.
set -eu
umask 027

die() {
	echo "ship.sh: $*" >&2
	exit 1
}

need() {
	command -v "$1" >/dev/null 2>&1 || die "$1 is not installed"
}

conf=/etc/tailcam/ship.conf
if [ "${1:-}" = -c ]; then
	[ $# -ge 2 ] || die "-c needs a file"
	conf=$2
	shift 2
	[ -r "$conf" ] || die "cannot read $conf"
fi
case $conf in
*/*) ;;
*) conf=./$conf ;;
esac

TARGET=
CURL_CONFIG=
SSH_OPTIONS=
if [ -r "$conf" ]; then
	# shellcheck source=/dev/null
	. "$conf"
fi
[ $# -eq 0 ] || TARGET=$1

[ -n "$TARGET" ] || die "no target: give one as argument, or TARGET= in $conf"
[ -n "${TAILCAM_SNAPSHOT:-}" ] || die "there is no snapshot to ship: use it with on: snapshot"
id=${TAILCAM_SNAPSHOT_ID:-}
case $id in
'' | .* | *[!A-Za-z0-9.-]*) die "\"$id\" is not a snapshot's id" ;;
esac
case $TARGET in
-*) die "a target cannot begin with a dash" ;;
esac

# Never ask anything: nobody is there.
SSH_OPTIONS="-o BatchMode=yes -o ConnectTimeout=20 $SSH_OPTIONS"

by_rsync() {
	need rsync
	RSYNC_RSH="ssh $SSH_OPTIONS"
	export RSYNC_RSH
	rsync -rt --exclude=/snapshot.json -- ./ "$1/$id/"
	rsync -rt -- ./snapshot.json "$1/$id/"
}

by_scp() {
	need scp
	need ssh
	case $1 in
	*:*) ;;
	*) die "\"$1\" is not a target: give scp:user@host:/dir" ;;
	esac
	host=${1%%:*}
	dir=${1#*:}
	dir=${dir:-.}
	# The options are several words on purpose.
	# shellcheck disable=SC2086
	scp -q -B -r $SSH_OPTIONS -- "$TAILCAM_SNAPSHOT" "$host:$dir/.$id.$$.part"
	# The remote shell sees one quoted word.
	dir=$(printf '%s' "$dir" | sed "s/'/'\\\\''/g")
	# shellcheck disable=SC2086,SC2029
	ssh $SSH_OPTIONS -- "$host" "test ! -e '$dir/$id' && mv -- '$dir/.$id.$$.part' '$dir/$id'"
}

by_curl() {
	need curl
	need tar
	set -- --fail --silent --show-error --connect-timeout 20 --retry 3 -H 'Content-Type: application/gzip' "$1/$id.tar.gz"
	[ -z "$CURL_CONFIG" ] || set -- -K "$CURL_CONFIG" "$@"
	# A file, so that its length is known and a retry can begin again.
	tmp=$(mktemp "${TMPDIR:-/tmp}/tailcam-ship.XXXXXX")
	trap 'rm -f -- "$tmp"' EXIT
	trap 'exit 143' TERM INT HUP
	# Named after the snapshot, though only its own directory may be read here.
	# tar says 1 when a file grew meanwhile: the log of this very action.
	tar -C "$TAILCAM_SNAPSHOT" --transform "s,^\.,$id," -czf "$tmp" . || [ $? -eq 1 ]
	curl -T "$tmp" "$@" >/dev/null
}

by_copy() {
	[ -d "$1" ] || die "$1 is not a directory"
	[ ! -e "$1/$id" ] || die "$1/$id is there already"
	part=$1/.$id.part
	rm -rf -- "$part"
	mkdir -- "$part"
	cp -R -- . "$part"
	mv -- "$part" "$1/$id"
}

case $TARGET in
http://* | https://*) by_curl "${TARGET%/}" ;;
rsync://*) by_rsync "${TARGET%/}" ;;
scp:*) by_scp "${TARGET#scp:}" ;;
/*) by_copy "${TARGET%/}" ;;
*:*)
	if command -v rsync >/dev/null 2>&1; then
		by_rsync "${TARGET%/}"
	else
		by_scp "${TARGET%/}"
	fi
	;;
*) die "\"$TARGET\" is not a target: give user@host:/dir, rsync://…, https://… or /dir" ;;
esac
echo "shipped $id to $TARGET"
