#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Add the state of the system to a snapshot: load, pressure, memory, all threads by CPU time, and
# the kernel's information about the slow task.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/save-top.sh]
#       timeout: 30s
#
# Writes process-table.txt into the snapshot, which is the working directory. Without a snapshot
# (on: outlier) it prints instead. Works as any user, but only root can read all files of the task.
set -u
umask 027
LC_ALL=C
export LC_ALL

# plain replaces control characters, such as escape sequences in task names.
plain() {
	printf '%s' "$1" | tr -c '[:print:]' '?'
}

section() {
	printf '\n== %s\n' "$1"
}

# show prints a file, or the error.
show() {
	section "$1"
	cat -- "$1" 2>&1
}

report() {
	printf 'written at %s for rule %s, %s of %s ns\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
		"${TAILCAM_RULE:-?}" "${TAILCAM_TRACK:-?}" "${TAILCAM_DELAY_NS:-?}"
	printf 'task %s, pid %s, thread %s\n' "$(plain "${TAILCAM_COMM:-?}")" \
		"${TAILCAM_PID:-?}" "${TAILCAM_TID:-?}"

	show /proc/loadavg
	for f in /proc/pressure/*; do
		[ -e "$f" ] && show "$f"
	done
	show /proc/meminfo

	# The task may have exited; pid 0 is the idle task.
	case ${TAILCAM_PID:-}/${TAILCAM_TID:-} in
	*[!0-9/]* | /* | */ | 0/*) ;;
	*)
		task=/proc/$TAILCAM_PID/task/$TAILCAM_TID
		if [ -d "$task" ]; then
			for name in status wchan stack sched cgroup limits; do
				show "$task/$name"
			done
		else
			section "the task has exited"
		fi
		;;
	esac

	section "threads by CPU time"
	if command -v ps >/dev/null 2>&1; then
		ps -eLo pid,tid,ppid,user,cls,pri,ni,psr,stat,wchan:24,pcpu,rss,etimes,comm \
			--sort=-pcpu 2>&1
	else
		echo 'ps is not installed (Debian: apt install procps)'
	fi
	if command -v top >/dev/null 2>&1; then
		section "top"
		top -b -H -n 1 -w 200 2>&1 | head -n 60
	fi
}

if [ -z "${TAILCAM_SNAPSHOT:-}" ]; then
	report
	exit 0
fi

# Never overwrite a file or follow a link.
set -C
n=1
out=process-table.txt
while [ -e "$out" ] || [ -L "$out" ]; do
	n=$((n + 1))
	if [ "$n" -gt 100 ]; then
		echo "too many process tables" >&2
		exit 1
	fi
	out=process-table-$n.txt
done
report >"$out" || exit 1
echo "wrote $out"
