#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles each header of bpf/ by itself, and wants every program (SEC) in a .bpf.c file.
set -eu
cd "$(dirname "$0")/../bpf"

failed=0
headers=$(find . -name '*.h' | sort)
for header in $headers; do
	clang-19 -target bpfel -mcpu=v3 -O2 -fsyntax-only -Wall -Werror -Wno-unused-function -x c \
		-I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu "$header" || {
		echo "check-headers: bpf/${header#./} does not compile alone" >&2
		failed=1
	}
done
# shellcheck disable=SC2086 # a list of paths without blanks
if grep -n 'SEC("' $headers | grep -v 'SEC("\.maps")'; then
	echo 'check-headers: programs belong into bpf/*.bpf.c' >&2
	failed=1
fi
exit $failed
