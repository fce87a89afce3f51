#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Record what runs after an outlier: perf record of all CPUs, or of the slow process, for 2 s.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/perf-record.sh]
#       user: root
#       every: 10m
#
# Usage: perf-record.sh [-p] [SECONDS]. With -p only the slow process is recorded. Writes perf.data
# into the snapshot, which is the working directory; `perf script -i perf.data` reads it. Needs root
# or CAP_PERFMON: see kernel.perf_event_paranoid.
set -eu
umask 027

die() {
	echo "perf-record.sh: $*" >&2
	exit 1
}

only=
if [ "${1:-}" = -p ]; then
	only=y
	shift
fi
seconds=${1:-2}
case $seconds in
'' | *[!0-9]*) die "invalid SECONDS \"$seconds\": must be a number" ;;
esac
[ -n "${TAILCAM_SNAPSHOT:-}" ] || die "no snapshot: use this action with on: snapshot or on: trigger"
command -v perf >/dev/null 2>&1 || die "perf is not installed (Debian: apt install linux-perf)"

# A directory of its own: perf follows links and renames what is there.
dir=$(mktemp -d ./perf.XXXXXX)
# -N: no copies of programs in a home directory.
set -- -N -F 99 -g -o "$dir/perf.data"
if [ -n "$only" ]; then
	case ${TAILCAM_PID:-} in
	'' | 0 | *[!0-9]*) die "the slow process is not known" ;;
	esac
	[ -d "/proc/$TAILCAM_PID" ] || die "process $TAILCAM_PID has exited"
	set -- "$@" -p "$TAILCAM_PID"
else
	set -- "$@" -a
fi
# Without hardware counters, as in many virtual machines, the clock must do.
perf record -q "$@" -- sleep "$seconds" || perf record -q -e cpu-clock "$@" -- sleep "$seconds"
echo "wrote $dir/perf.data"
