#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Fails if a run left something behind: a changed file here, or of tailcam's a
# process, a mount or a loop device. For a machine that does nothing else.
set -eu
cd "$(dirname "$0")/.."
bad=0
left() {
	[ -z "$2" ] && return
	printf 'left behind, %s:\n%s\n' "$1" "$2" >&2
	bad=1
}
processes() {
	grep -xE 'tailcam|inj-.*' /proc/[0-9]*/comm 2>/dev/null || true
}
# What was killed at the end of the last test may still be giving back what it had.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	[ -z "$(processes)" ] && break
	sleep 1
done
left 'changed files' "$(git status --porcelain)"
left 'processes' "$(processes)"
left 'mounts' "$(grep -i tailcam /proc/self/mounts || true)"
left 'loop devices' "$(grep -il tailcam /sys/block/loop*/loop/backing_file 2>/dev/null || true)"
exit $bad
