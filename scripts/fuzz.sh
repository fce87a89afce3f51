#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for its share of so many seconds: scripts/fuzz.sh 10
# What is found is shortened a little only: by default that takes a minute each,
# also for inputs that are merely new.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:?how many seconds for all targets together}

targets=$(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | wc -l)
[ "$targets" -gt 0 ] || {
	echo 'fuzz: no fuzz target found' >&2
	exit 1
}
each=$((seconds * 1000 / targets))ms
echo "fuzz: $targets targets, $each each"
grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do
	go test -run '^$' -fuzz "^${func#func }\$" -fuzztime "$each" -fuzzminimizetime 100x "./$(dirname "$file")" </dev/null
done
