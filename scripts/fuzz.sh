#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for so many inputs: scripts/fuzz.sh 30000
#
# Inputs are counted, not seconds: at the end of a -fuzztime in seconds go test
# may fail with "context deadline exceeded" though nothing was found, up to Go
# 1.26 (https://go.dev/issue/75804).
# What is found is shortened a little only: by default that takes a minute each,
# also for inputs that are merely new.
set -eu
cd "$(dirname "$0")/.."
inputs=${1:?how many inputs for each target}

targets=$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort)
[ -n "$targets" ] || {
	echo 'fuzz: no fuzz target found' >&2
	exit 1
}
echo "$targets" | while IFS=: read -r file func; do
	echo "fuzz: ${func#func }, $inputs inputs"
	go test -run '^$' -fuzz "^${func#func }\$" -fuzztime "${inputs}x" -fuzzminimizetime 100x -timeout 2h "./$(dirname "$file")" </dev/null
done
