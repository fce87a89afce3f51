//go:build tools

// Package loki pins the Loki of the fleet's tests, with the replacements that its own module has:
// without these, `go install` refuses it. It is built as github.com/grafana/loki/v3/cmd/loki.
package loki

import _ "github.com/grafana/loki/v3/cmd/loki"
