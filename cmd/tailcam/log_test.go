package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log, err := newLogger(&out, "json", "info", false)
	assert.NilError(t, err)
	log.Debug("hidden")
	log.Info("hello", zap.Duration("took", 5*time.Millisecond))
	var line struct {
		Time                 time.Time
		Level, Message, Took string
	}
	assert.NilError(t, json.Unmarshal(out.Bytes(), &line))
	assert.Check(t, line.Level == "info" && line.Message == "hello" && line.Took == "5ms" &&
		line.Time.Location() == time.UTC, "%s", out.String())
	out.Reset()
	log, err = newLogger(&out, "console", "warn", false)
	assert.NilError(t, err)
	log.Warn("careful", zap.String("comm", "\x1b[31m"))
	s := out.String()
	assert.Check(t, strings.HasSuffix(s, "WARN  careful  {\"comm\": \"\\u001b[31m\"}\n"), "%q", s)
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}} {
		_, err := newLogger(&out, bad[0], bad[1], false)
		assert.Check(t, is.ErrorContains(err, "must be"), "%q", bad)
	}
}
