#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# C and shell files say in their first lines which licence they are under: the
# BPF C may be used under the GPL, as the kernel wants it, or the BSD licence.
# Everything else, Go included, is under LICENSE.
set -eu
cd "$(dirname "$0")/.."

bad=0
want() { # LICENCE FILE...
	licence=$1
	shift
	for file; do
		head -n 3 "$file" | grep -qF "SPDX-License-Identifier: $licence" && continue
		echo "$file: its first three lines do not say SPDX-License-Identifier: $licence" >&2
		bad=1
	done
}

# shellcheck disable=SC2046 # paths without blanks
want '(GPL-2.0-only OR BSD-2-Clause)' $(git ls-files 'bpf/*.[ch]' '*.bpf.c')
# shellcheck disable=SC2046
want 'Apache-2.0' Makefile .ci/run $(git ls-files '*.c' '*.h' '*.sh' ':!bpf' ':!*.bpf.c')
exit $bad
