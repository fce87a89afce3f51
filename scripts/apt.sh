#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that are not there yet, and says which and why:
#
#   scripts/apt.sh gcc='builds the latency injectors' fio='loads the disk'
#
# Does nothing, and needs no network, if all of them are there. Where it may
# not install (no apt, not root) it lists them and goes on: what needs them
# says so, or is skipped.
set -eu

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

list() {
	for arg; do
		printf '  %-18s %s\n' "${arg%%=*}" "${arg#*=}"
	done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
	echo 'This is no Debian system: nothing is installed. What follows needs:'
	list "$@"
	exit 0
fi

for arg; do # rotates: what is missing goes to the end, the rest drops out
	shift
	installed "${arg%%=*}" || set -- "$@" "$arg"
done
[ $# -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo 'Not root: these Debian packages are missing, and some of what follows needs them:'
	list "$@"
	exit 0
fi

echo 'Installing Debian packages that are missing:'
list "$@"
for arg; do
	shift
	set -- "$@" "${arg%%=*}"
done
# No service is started for a test: at runlevel 1, invoke-rc.d(8) starts none.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"
