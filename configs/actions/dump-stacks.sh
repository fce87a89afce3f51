#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Print the stacks of all threads of the slow process, in the words of its runtime: jstack for
# Java, py-spy for Python, else gdb. The output is in the action's log in the snapshot.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/dump-stacks.sh]
#       user: root
#       every: 10m
#       per: culprit
#
# Usage: dump-stacks.sh [-b]. With -b, dump the process of the culprit instead of the slow one. gdb
# stops the process for as long as it reads, often a second; py-spy and jstack stop it for
# milliseconds. As root, the tool runs as the user of the process:
# what it reads of the process can do no more than that user. If kernel.yama.ptrace_scope is not 0,
# only processes of root can be dumped.
set -eu

die() {
	echo "dump-stacks.sh: $*" >&2
	exit 1
}

have() {
	command -v "$1" >/dev/null 2>&1
}

pid=${TAILCAM_PID:-}
if [ "${1:-}" = -b ]; then
	[ "${TAILCAM_BY_KIND:-}" = task ] || die "the culprit is no task"
	# The name of a task ends with the number of the thread.
	tid=${TAILCAM_BY:-}
	tid=${tid##* }
	case $tid in
	'' | *[!0-9]*) die "the culprit is not known" ;;
	esac
	pid=$(sed -n 's/^Tgid:[[:space:]]*//p' "/proc/$tid/status") || die "the culprit has exited"
fi
case $pid in
'' | 0 | *[!0-9]*) die "the process is not known" ;;
esac
exe=$(readlink "/proc/$pid/exe") || die "process $pid has exited, is a kernel thread, or belongs to another user"

uid=$(stat -c %u "/proc/$pid")
gid=$(stat -c %g "/proc/$pid")

# as_owner runs a tool as the user of the process.
as_owner() {
	if [ "$(id -u)" = 0 ] && [ "$uid" != 0 ]; then
		have setpriv || die "setpriv is not installed (Debian: apt install util-linux)"
		exec setpriv --reuid "$uid" --regid "$gid" --clear-groups -- "$@"
	fi
	exec "$@"
}

case ${exe##*/} in
java*)
	if have jstack; then
		as_owner jstack -l "$pid"
	fi
	;;
python*)
	if have py-spy; then
		as_owner py-spy dump --pid "$pid"
	fi
	;;
esac
have gdb || die "gdb is not installed (Debian: apt install gdb)"
# Nothing of the process is executed: no auto-load, no debuginfod.
as_owner gdb -nx -batch -iex 'set auto-load off' -iex 'set debuginfod enabled off' -iex 'set pagination off' \
	-p "$pid" -ex 'thread apply all backtrace 64' -ex detach
