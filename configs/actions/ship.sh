#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Copy a snapshot to another place.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/ship.sh, "backup@logs:/srv/tailcam"]
#       timeout: 5m
#
# Usage: ship.sh [-c CONFIG] [TARGET]. The default TARGET is in CONFIG, by default
# /etc/tailcam/ship.conf, which is a shell script:
#
#   TARGET=https://objects.example/tailcam
#   CURL_CONFIG=/etc/tailcam/curl.conf     # for curl -K: headers, credentials
#   SSH_OPTIONS='-i /etc/tailcam/id_ed25519'
#
# TARGET is one of
#   user@host:/dir       rsync over ssh, or scp if rsync is not installed
#   scp:user@host:/dir   always scp
#   rsync://host/module  an rsync daemon
#   https://…, http://…  PUT of ID.tar.gz below this URL, with curl
#   /dir                 a local directory, such as a mounted share
#
# The target directory must exist. snapshot.json is copied last: a copy that has it is complete,
# except for the log of this action. List this action after those that add files to the snapshot.
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
	[ $# -ge 2 ] || die "missing argument of -c: CONFIG"
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

[ -n "$TARGET" ] || die "missing target: pass TARGET, or set TARGET= in $conf"
[ -n "${TAILCAM_SNAPSHOT:-}" ] || die "no snapshot: use this action with on: snapshot"
id=${TAILCAM_SNAPSHOT_ID:-}
case $id in
'' | .* | *[!A-Za-z0-9.-]*) die "invalid snapshot id \"$id\"" ;;
esac
case $TARGET in
-*) die "invalid target: begins with a dash" ;;
esac

# Never prompt.
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
	*) die "invalid target \"$1\": must be scp:user@host:/dir" ;;
	esac
	host=${1%%:*}
	dir=${1#*:}
	dir=${dir:-.}
	# The options are split into words on purpose.
	# shellcheck disable=SC2086
	scp -q -B -r $SSH_OPTIONS -- "$TAILCAM_SNAPSHOT" "$host:$dir/.$id.$$.part"
	# Quote the directory for the remote shell.
	dir=$(printf '%s' "$dir" | sed "s/'/'\\\\''/g")
	# shellcheck disable=SC2086,SC2029
	ssh $SSH_OPTIONS -- "$host" "test ! -e '$dir/$id' && mv -- '$dir/.$id.$$.part' '$dir/$id'"
}

by_curl() {
	need curl
	need tar
	set -- --fail --silent --show-error --connect-timeout 20 --retry 3 \
		-H 'Content-Type: application/gzip' "$1/$id.tar.gz"
	[ -z "$CURL_CONFIG" ] || set -- -K "$CURL_CONFIG" "$@"
	# A file, for a known length and retries.
	tmp=$(mktemp "${TMPDIR:-/tmp}/tailcam-ship.XXXXXX")
	trap 'rm -f -- "$tmp"' EXIT
	trap 'exit 143' TERM INT HUP
	# Name the directory in the archive after the snapshot. tar exits with 1 if a file changed
	# while it was read, as the log of this action does.
	tar -C "$TAILCAM_SNAPSHOT" --transform "s,^\.,$id," -czf "$tmp" . || [ $? -eq 1 ]
	curl -T "$tmp" "$@" >/dev/null
}

by_copy() {
	[ -d "$1" ] || die "$1 is not a directory"
	[ ! -e "$1/$id" ] || die "$1/$id already exists"
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
*) die "invalid target \"$TARGET\": must be user@host:/dir, rsync://…, https://… or /dir" ;;
esac
echo "shipped $id to $TARGET"
