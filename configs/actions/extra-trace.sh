#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Trace the slow process and the culprit for 2 s with the kernel's own tracer: switches, wake-ups,
# system calls, disk and interrupts, in an instance of tracefs of its own, which goes with it.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/extra-trace.sh]
#       user: root
#       every: 10m
#
# Usage: extra-trace.sh [-a] [SECONDS [EVENT...]]. With -a all tasks are traced, as they are if
# neither process is known, or both have exited; then without system calls, unless events are named
# (sched:sched_switch ...). At most 60 s, 32 events, 16 MiB of memory, and 64 MiB of text, which is
# trace.txt.gz in a directory of the snapshot. Needs root and tracefs.
#
# The instance is removed when the script ends, also by SIGTERM. After SIGKILL it stays, as a ring of
# that size that the traced tasks write to, until the script runs the next time.
set -eu
umask 027

die() {
	echo "extra-trace.sh: $*" >&2
	exit 1
}

# process prints the process of a thread, if both exist.
process() {
	case $1 in
	'' | 0 | *[!0-9]*) return 0 ;;
	esac
	sed -n 's/^Tgid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null || true
}

# threads prints the threads of a process.
threads() {
	[ -z "$1" ] || find "/proc/$1/task" -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | head -n 1000
}

all=
for arg; do
	case $arg in
	*[!a-zA-Z0-9_:-]* | '') die "invalid argument \"$arg\": must be -a, a number of seconds, or EVENT as in sched:sched_switch" ;;
	esac
done
if [ "${1:-}" = -a ]; then
	all=y
	shift
fi
seconds=${1:-2}
[ $# = 0 ] || shift
case $seconds in
[1-9] | [1-5][0-9] | 60) ;;
*) die "invalid SECONDS \"$seconds\": must be a number from 1 to 60" ;;
esac
[ $# -le 32 ] || die "too many events: at most 32"
for event; do
	case $event in
	*:*:* | :* | *: | -*) die "invalid EVENT \"$event\": must be as in sched:sched_switch" ;;
	*:*) ;;
	*) die "invalid EVENT \"$event\": must be as in sched:sched_switch" ;;
	esac
done
[ -n "${TAILCAM_SNAPSHOT:-}" ] || die "no snapshot: use this action with on: snapshot or on: trigger"
[ "$(id -u)" = 0 ] || die "it needs root: set user: root"

tracing=/sys/kernel/tracing
if [ ! -d $tracing/events ]; then
	[ -z "${EXTRA_TRACE_MOUNTED:-}" ] || die "no tracefs, although it could be mounted"
	export EXTRA_TRACE_MOUNTED=y
	# In a mount namespace that ends with the script.
	# shellcheck disable=SC2016 # the inner shell expands it
	exec unshare --mount sh -c 'mount -t tracefs nodev /sys/kernel/tracing || {
		echo "extra-trace.sh: mount tracefs on /sys/kernel/tracing first" >&2
		exit 1
	}
	exec "$@"' sh "$0" ${all:+-a} "$seconds" "$@"
fi
[ -d $tracing/instances ] || die "this kernel has no instances of tracefs (CONFIG_TRACING)"

instance=
remove() {
	[ -n "$instance" ] || return 0
	echo 0 >"$instance/tracing_on" || true
	echo 0 >"$instance/events/enable" || true
	for _ in 1 2 3 4 5; do # busy while somebody reads it
		! rmdir "$instance" 2>/dev/null || return 0
		sleep 0.2
	done
	echo "extra-trace.sh: cannot remove $instance: is it being read?" >&2
}
trap remove EXIT
trap 'exit 1' HUP INT TERM

for old in "$tracing"/instances/tailcam-*; do # of a script that was killed
	pid=${old##*-}
	[ ! -d "$old" ] || [ -d "/proc/$pid" ] || rmdir "$old" || true
done
mkdir "$tracing/instances/tailcam-$$"
instance=$tracing/instances/tailcam-$$
echo 0 >"$instance/tracing_on"
cpus=$(getconf _NPROCESSORS_CONF)
kb=$((16384 / cpus))
echo $((kb < 4096 ? (kb > 16 ? kb : 16) : 4096)) >"$instance/buffer_size_kb"

pids=
if [ -z "$all" ]; then
	culprit=
	[ "${TAILCAM_BY_KIND:-}" != task ] || culprit=${TAILCAM_BY##* } # the name of a task ends with its number
	pids=$(threads "$(process "${TAILCAM_PID:-}")" && threads "$(process "$culprit")")
fi
if [ -n "$pids" ]; then
	echo 1 >"$instance/options/event-fork" # and what they start
	echo "$pids" | tr '\n' ' ' >"$instance/set_event_pid"
fi
if [ $# = 0 ]; then
	set -- sched:sched_switch sched:sched_waking sched:sched_migrate_task sched:sched_process_exec \
		irq:irq_handler_entry irq:irq_handler_exit irq:softirq_entry irq:softirq_exit \
		block:block_rq_issue block:block_rq_complete
	[ -z "$pids" ] || set -- "$@" raw_syscalls:sys_enter raw_syscalls:sys_exit
fi
for event; do
	file=$instance/events/$(echo "$event" | tr : /)/enable
	if [ -f "$file" ]; then
		echo 1 >"$file"
	else
		echo "# this kernel has no event $event"
	fi
done
echo 1 >"$instance/tracing_on"
sleep "$seconds" &
wait $!
echo 0 >"$instance/tracing_on"

# A directory of its own: nobody else can have put a link there.
dir=$(mktemp -d ./extra-trace.XXXXXX)
head -c 67108864 "$instance/trace" | gzip >"$dir/trace.txt.gz"
of="all tasks"
[ -z "$pids" ] || of="$(echo "$pids" | wc -l) threads and what they started"
echo "wrote $dir/trace.txt.gz, of $of"
