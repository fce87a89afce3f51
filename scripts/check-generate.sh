#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the committed generated files are what the sources give: deletes
# them, generates them again, and wants no difference from the last commit.
# Then the same in another directory, as no path may get into the objects. In
# objects, the order of types that are only declared may differ: see bpf/abi/same.
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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/same" ./bpf/abi/same

# shellcheck disable=SC2086 # a list of paths without blanks
rm -f -- $files
go generate ./...

# What differs in the order of declared types alone is as committed.
for file in $(git diff --name-only -- '*_bpfel.o'); do
	git show "HEAD:$file" >"$work/committed.o"
	if "$work/same" "$work/committed.o" "$file"; then
		git checkout -q -- "$file"
	fi
done

# shellcheck disable=SC2086
changed=$(git status --porcelain -- $files bpf)
if [ -n "$changed" ]; then
	echo 'check-generate: generating again changed files; run make generate and commit:' >&2
	echo "$changed" >&2
	git --no-pager diff --stat >&2
	exit 1
fi

elsewhere=$work/elsewhere
mkdir "$elsewhere"
git archive HEAD | tar -x -C "$elsewhere"
# shellcheck disable=SC2086
(cd "$elsewhere" && rm -f -- $files && go generate ./...)
for file in $files; do
	cmp -s -- "$file" "$elsewhere/$file" || "$work/same" "$file" "$elsewhere/$file" || {
		echo "check-generate: $file depends on the directory it is generated in" >&2
		exit 1
	}
done
echo 'check-generate: the same, in any directory:'
echo "$files"
