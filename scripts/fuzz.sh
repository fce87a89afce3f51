#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for so many inputs: scripts/fuzz.sh 30000; or every third of them, from
# the first on: scripts/fuzz.sh 30000 0/3
#
# Inputs are counted, not seconds: at the end of a -fuzztime in seconds go test
# may fail with "context deadline exceeded" though nothing was found, up to Go
# 1.26 (https://go.dev/issue/75804).
# What is found is shortened a little only: by default that takes a minute each,
# also for inputs that are merely new.
set -eu
cd "$(dirname "$0")/.."
inputs=${1:?how many inputs for each target}
part=${2:-0/1}

targets=$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort |
	awk -v part="$part" 'split(part, p, "/") && (NR - 1) % p[2] == p[1]')
[ -n "$targets" ] || {
	echo 'fuzz: no fuzz target found' >&2
	exit 1
}
# An input may take 10 s by the clock, also where the machine stands still meanwhile: then
# go test says "hung". Where that input alone is well, the target runs again, once.
fuzz() { # FUNCTION DIRECTORY
	go test -run '^$' -fuzz "^$1\$" -fuzztime "${inputs}x" -fuzzminimizetime 100x -timeout 2h "./$2" </dev/null
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "$targets" | while IFS=: read -r file func; do
	func=${func#func } dir=$(dirname "$file")
	echo "fuzz: $func, $inputs inputs"
	if fuzz "$func" "$dir" >"$log" 2>&1; then
		cat "$log"
		continue
	fi
	cat "$log"
	input=$(sed -n 's|.*Failing input written to testdata/fuzz/||p' "$log")
	grep -q 'fuzzing process hung or terminated unexpectedly' "$log" && [ -n "$input" ] || exit 1
	echo "fuzz: $input, alone"
	go test -run "^$input\$" -timeout 60s "./$dir" </dev/null
	rm "$dir/testdata/fuzz/$input"
	echo "fuzz: $func again, as that input is well"
	fuzz "$func" "$dir"
done
