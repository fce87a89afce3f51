#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mail the verdict, with the explanation of the snapshot, by sendmail.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/mail.sh, ops@example.org]
#       on: [snapshot, trigger]
#       every: 1h
#       per: [rule, culprit]
#
# Usage: mail.sh [-s SENDMAIL] TO…
set -eu

die() {
	echo "mail.sh: $*" >&2
	exit 1
}

sendmail=sendmail
if [ "${1:-}" = -s ]; then
	[ $# -ge 2 ] || die "missing argument of -s: SENDMAIL"
	sendmail=$2
	shift 2
fi
[ $# -gt 0 ] || die "missing argument: TO"
to=
for a; do
	case $a in
	-* | *[!A-Za-z0-9.@_+-]* | '') die "invalid address \"$a\"" ;;
	esac
	to=${to:+$to, }$a
done
PATH=$PATH:/usr/lib
command -v "$sendmail" >/dev/null 2>&1 || die "sendmail is not installed: install a mail server, such as msmtp-mta"

# A line of a header must have no line feed, or others could write headers.
plain() {
	printf '%s' "$1" | LC_ALL=C tr -c '[:print:]' '?' | cut -c "1-$2"
}

{
	printf 'To: %s\n' "$to"
	printf 'Subject: tailcam on %s: rule %s, %s ms\n' "$(plain "$(uname -n)" 64)" \
		"$(plain "${TAILCAM_RULE:-?}" 48)" "$((${TAILCAM_DELAY_NS:-0} / 1000000))"
	printf 'MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nAuto-Submitted: auto-generated\n\n'
	printf '%s\n' "$(plain "${TAILCAM_VERDICT:-${TAILCAM_REASON:-no verdict}}" 900)"
	[ -z "${TAILCAM_ADVICE:-}" ] || printf '%s\n' "$(plain "$TAILCAM_ADVICE" 900)"
	printf '\n%s\n%s\n\n' "${TAILCAM_TIME:-}" "${TAILCAM_SNAPSHOT:-no snapshot}"
	if [ -n "${TAILCAM_SNAPSHOT:-}" ] && [ -f explain.txt ]; then
		head -c 100000 explain.txt | tr -d '\000-\010\013-\037\177' | fold -w 900
	fi
} | "$sendmail" -oi -- "$@"
echo "mailed to $to"
