#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the committed generated files are what the sources give: deletes
# them, generates them again, and wants no difference from the last commit.
# Then the same in another directory, as no path may get into the objects.
set -eu
cd "$(dirname "$0")/.."

generated() {
	git ls-files '*_bpfel.go' '*_bpfel.o'
	git grep -l '^// Code generated .* DO NOT EDIT\.$' -- '*.go' || true
}
files=$(generated | sort -u)
[ -n "$files" ] || {
	echo 'check-generate: found no generated file: mend generated() in scripts/check-generate.sh' >&2
	exit 1
}

# shellcheck disable=SC2086 # a list of paths without blanks
rm -f -- $files
go generate ./...

# shellcheck disable=SC2086
changed=$(git status --porcelain -- $files bpf)
if [ -n "$changed" ]; then
	echo 'check-generate: generating again changed files; run make generate and commit:' >&2
	echo "$changed" >&2
	git --no-pager diff --stat >&2
	exit 1
fi

elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
git archive HEAD | tar -x -C "$elsewhere"
# shellcheck disable=SC2086
(cd "$elsewhere" && rm -f -- $files && go generate ./...)
for file in $files; do
	cmp -- "$file" "$elsewhere/$file" || {
		echo "check-generate: $file depends on the directory it is generated in" >&2
		exit 1
	}
done
echo 'check-generate: the same byte for byte, in any directory:'
echo "$files"
