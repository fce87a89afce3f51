#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Save what BPF programs and maps there are, and what maps with these names hold: of an XDP filter,
# a load balancer, a tracer, at the time of an outlier.
#
#   actions:
#     - run: [/usr/lib/tailcam/actions/bpf-maps.sh, conntrack, lb_backends]
#       user: root
#       every: 10m
#
# Usage: bpf-maps.sh [NAME]... The kernel has the first 15 bytes of a name. Prints at most 1 MiB of
# each map and 16 maps, into the action's log in the snapshot; actions.max_output limits that, too.
# Reading a map of a million entries takes seconds. Needs root with CAP_SYS_ADMIN, which the shipped
# unit does not grant: install the drop-in programs.conf.
set -eu

die() {
	echo "bpf-maps.sh: $*" >&2
	exit 1
}

command -v bpftool >/dev/null 2>&1 || die "bpftool is not installed (Debian: apt install bpftool)"
for name in "$@"; do
	case $name in
	'' | -* | *[!A-Za-z0-9_.]*) die "invalid NAME \"$name\": must be the name of a map" ;;
	esac
done
echo "# programs"
bpftool prog show || die "bpftool may not list programs: needs root and CAP_SYS_ADMIN"
echo "# maps"
maps=$(bpftool map show) || die "bpftool may not list maps: needs root and CAP_SYS_ADMIN"
printf '%s\n' "$maps"
left=16
for name in "$@"; do
	short=$(printf '%.15s' "$name")
	# 12: hash  name conntrack  flags 0x0
	ids=$(printf '%s\n' "$maps" | sed -n "s/^\([0-9][0-9]*\): .*  name $(printf '%s' "$short" | sed 's/\./\\./g')  .*/\1/p")
	[ -n "$ids" ] || echo "# no map has the name $name"
	for id in $ids; do
		[ "$left" -gt 0 ] || die "more than 16 maps have these names: the others are left out"
		left=$((left - 1))
		echo "# map $id, $name"
		bpftool map dump id "$id" 2>&1 | head -c 1048576 || true # it may be gone
		echo
	done
done
