#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the program as packages and images have it: static, without symbols of its own. The same
# commit, version and Go toolchain give the same bytes.
#
#   scripts/program.sh VERSION ARCH FILE
#
# In the environment: GO.
set -euo pipefail
file=$(realpath "$3")
cd "$(dirname "$0")/.."
CGO_ENABLED=0 GOOS=linux GOARCH=$2 GOAMD64=v1 GOARM64=v8.0 GOFLAGS='' "${GO:-go}" build -trimpath -buildvcs=false \
	-ldflags "-s -w -X github.com/tailcam/tailcam/internal/version.version=$1" -o "$file" ./cmd/tailcam
