#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Send the verdict to a webhook, as Slack, Mattermost and Teams take it.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/notify.sh, -c, /etc/tailcam/notify.conf]
#       on: [snapshot, trigger]
#       if: {min_delay: 100ms}
#       every: 1h
#       per: [rule, culprit]
#
# Usage: notify.sh [-n] [-c CONFIG] [URL]. The default URL is in CONFIG, by default
# /etc/tailcam/notify.conf, which is a shell script and which the action's user must be able to read:
#
#   URL=https://hooks.slack.example/services/…
#   FORMAT=slack                           # or teams: an adaptive card
#   CURL_CONFIG=/etc/tailcam/curl.conf     # for curl -K: headers, credentials, the URL itself
#
# A URL that is a secret belongs into CONFIG: arguments can be read by all users. With -n, only
# print what would be sent.
set -eu
umask 077

die() {
	echo "notify.sh: $*" >&2
	exit 1
}

dry=
conf=/etc/tailcam/notify.conf
while :; do
	case ${1:-} in
	-n) dry=y ;;
	-c)
		[ $# -ge 2 ] || die "missing argument of -c: CONFIG"
		conf=$2
		shift
		[ -r "$conf" ] || die "cannot read $conf"
		;;
	*) break ;;
	esac
	shift
done
case $conf in
*/*) ;;
*) conf=./$conf ;;
esac

URL=
FORMAT=slack
CURL_CONFIG=
if [ -r "$conf" ]; then
	# shellcheck source=/dev/null
	. "$conf"
fi
[ $# -eq 0 ] || URL=$1

# text makes a JSON string's content of any bytes: what is no printable ASCII becomes "?". Names of
# tasks are theirs to choose: without these three characters they are no links or mentions.
text() {
	printf '%s' "$1" | LC_ALL=C tr -c '[:print:]' '?' | cut -c 1-2000 |
		sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'
}

host=$(text "$(uname -n)")
rule=$(text "${TAILCAM_RULE:-?}")
id=$(text "${TAILCAM_SNAPSHOT_ID:-}")
said=${TAILCAM_VERDICT:-}
[ -n "$said" ] || said="${TAILCAM_REASON:-}"
[ -n "$said" ] || said="${TAILCAM_COMM:-?}: ${TAILCAM_TRACK:-?} of $((${TAILCAM_DELAY_NS:-0} / 1000000)) ms"
said=$(text "$said")
advice=$(text "${TAILCAM_ADVICE:-}")
line="tailcam on $host, rule $rule: $said"
[ -z "$advice" ] || line="$line\\n$advice"
[ -z "$id" ] || line="$line\\n$id"

case $FORMAT in
slack) body="{\"text\":\"$line\"}" ;;
teams)
	card="{\"type\":\"AdaptiveCard\",\"version\":\"1.4\",\"body\":[{\"type\":\"TextBlock\",\"wrap\":true,\"text\":\"$line\"}]}"
	body="{\"type\":\"message\",\"attachments\":[{\"contentType\":\"application/vnd.microsoft.card.adaptive\",\"content\":$card}]}"
	;;
*) die "invalid FORMAT \"$FORMAT\" in $conf: must be slack or teams" ;;
esac
if [ -n "$dry" ]; then
	printf '%s\n' "$body"
	exit 0
fi
[ -n "$URL$CURL_CONFIG" ] || die "missing URL: pass URL, or set URL= in $conf"
command -v curl >/dev/null 2>&1 || die "curl is not installed"
case $URL in
'' | http://* | https://*) ;;
*) die "invalid URL: must begin with https:// or http://" ;;
esac
set -- --fail --silent --show-error --connect-timeout 10 --max-time 20 --retry 2 \
	-H 'Content-Type: application/json' --data-binary @- -o /dev/null
[ -z "$CURL_CONFIG" ] || set -- -K "$CURL_CONFIG" "$@"
# The URL is no argument of curl, which all users could read.
if [ -n "$URL" ]; then
	tmp=$(mktemp "${TMPDIR:-/tmp}/tailcam-notify.XXXXXX")
	trap 'rm -f -- "$tmp"' EXIT
	trap 'exit 143' TERM INT HUP
	printf 'url = "%s"\n' "$(printf '%s' "$URL" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g')" >"$tmp"
	set -- -K "$tmp" "$@"
fi
printf '%s' "$body" | curl "$@"
echo "sent"
