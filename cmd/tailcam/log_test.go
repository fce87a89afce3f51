package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log, err := newLogger(&out, "json", "info", false)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Info("hello", zap.Duration("took", 5*time.Millisecond))
	var line struct {
		Time                 time.Time
		Level, Message, Took string
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line.Level != "info" || line.Message != "hello" || line.Took != "5ms" || line.Time.Location() != time.UTC {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if log, err = newLogger(&out, "console", "warn", false); err != nil {
		t.Fatal(err)
	}
	log.Warn("careful", zap.String("comm", "\x1b[31m"))
	if s := out.String(); !strings.HasSuffix(s, "WARN  careful  {\"comm\": \"\\u001b[31m\"}\n") {
		t.Errorf("%q", s)
	}
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}} {
		if _, err := newLogger(&out, bad[0], bad[1], false); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
