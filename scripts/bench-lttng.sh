#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Compares the recorder with LTTng's kernel tracer in a virtual machine with
# Debian's kernel 6.1: builds LTTng's modules out of Debian's source, and boots.
# Emulated: what counts are the ratios. Takes some ten minutes; needs root for apt.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/out/lttng
mkdir -p "$work"

kernel=$(apt-cache pkgnames linux-image-6.1.0- | grep -E '^linux-image-6\.1\.0-[0-9]+-cloud-amd64$' | sort -V | tail -1)
release=${kernel#linux-image-}
scripts/apt.sh "linux-headers-$release"='builds modules for the guest' gcc='builds them' make='builds them' kmod='lists what they need' \
	rt-tests='hackbench, load' qemu-system-x86='boots the kernel' libkmod2='for the daemon of LTTng' libxml2='for it, too' \
	babeltrace2='counts events'
modules=$work/modules/lib/modules/$release
if ! [ -e "$modules/modules.dep" ]; then
	(
		cd "$work"
		rm -rf tree && mkdir tree
		apt-get download -q lttng-modules-dkms lttng-tools liblttng-ctl0 liblttng-ust-ctl5 liblttng-ust-common1 liburcu8 libpopt0
		for deb in *.deb; do
			dpkg -x "$deb" tree
			rm "$deb"
		done
	)
	source=$(echo "$work"/tree/usr/src/lttng-modules-*)
	sed -i '/lttng-probe-timer.o/d' "$source/src/probes/Kbuild" # does not build for newer 6.1
	echo "building LTTng's modules for $release"
	make -s -j"$(nproc)" -C "/usr/src/linux-headers-$release" M="$source" modules CONFIG_LTTNG=m >"$work/make.log" 2>&1 ||
		{ tail -20 "$work/make.log"; exit 1; }

	rm -rf "$work/modules" && mkdir -p "$modules/extra"
	find "$source" -name '*.ko' -exec cp {} "$modules/extra" \;
	touch "$modules/modules.builtin" "$modules/modules.order"
	depmod -b "$work/modules" "$release" 2>/dev/null
fi

files=()
add() { files+=(-file "$1=$2"); }
for f in "$modules"/extra/*.ko "$modules"/modules.*; do
	add "/lib/modules/$release/${f#"$modules"/}" "$f"
done
export LD_LIBRARY_PATH=$work/tree/usr/lib/x86_64-linux-gnu
libraries() { ldd "$@" | awk '/=> \// {print $3} $1 ~ /^\/lib64/ {print $1}' | sort -u; }
add /bin/hackbench "$(command -v hackbench)"
add /bin/babeltrace2 "$(command -v babeltrace2)"
plugins=/usr/lib/x86_64-linux-gnu/babeltrace2/plugins
for f in "$plugins"/*.so; do add "$f" "$f"; done
add /bin/lttng "$work/tree/usr/bin/lttng"
add /bin/lttng-sessiond "$work/tree/usr/bin/lttng-sessiond"
consumer=/usr/lib/x86_64-linux-gnu/lttng/libexec/lttng-consumerd
add $consumer "$work/tree$consumer"
add /usr/share/xml/lttng/session.xsd "$work/tree/usr/share/xml/lttng/session.xsd"
while read -r lib; do
	case $lib in
	/lib64/*) add "$lib" "$lib" ;;
	*) add "/lib/x86_64-linux-gnu/$(basename "$lib")" "$lib" ;;
	esac
done < <(libraries "$(command -v hackbench)" "$(command -v babeltrace2)" "$plugins"/*.so "$work/tree/usr/bin/lttng" "$work/tree/usr/bin/lttng-sessiond" \
	"$work/tree$consumer")
unset LD_LIBRARY_PATH
go run ./test/vm -kernels 6.1 -packages ./test/bench/lttng -memory 1536 -timeout 15m -v "${files[@]}"
