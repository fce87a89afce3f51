#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prints Debian's copyright file.
set -eu
cd "$(dirname "$0")/.."

# indented prints a licence as a field.
indented() { sed -e 's/^$/./' -e 's/^/ /' "$1"; }

cat <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tailcam
Source: https://github.com/tailcam/tailcam

Files: *
Copyright: the authors of tailcam
License: Apache-2.0

Files: bpf/*
Copyright: the authors of tailcam
License: GPL-2.0-only or BSD-2-Clause

License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

License: GPL-2.0-only
 On Debian systems, the text is in /usr/share/common-licenses/GPL-2.

License: BSD-2-Clause
END
indented LICENSES/BSD-2-Clause.txt
