package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/logs"
)

// run hands the daemon what flags and file say. The daemon is not a real one.
func TestRun(t *testing.T) {
	if _, err := checkPrivileges(); err != nil {
		t.Skipf("run refuses without the capabilities that it needs: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "tailcam.yaml")
	assert.NilError(t, os.WriteFile(file, []byte("recorder:\n  enabled: false\n"), 0o600))
	var got *config.Config
	p := deps{daemon: func(_ context.Context, cfg *config.Config, l *logs.Logs) error {
		got = cfg
		l.Daemon.Info("here")
		l.Outliers.Info("an outlier", zap.String("snapshot", "one"), zap.Int("pid", 7))
		return nil
	}}
	var stdout, stderr bytes.Buffer
	a, b := filepath.Join(dir, "a,1.yaml"), filepath.Join(dir, "b.yaml")
	status := execute(context.Background(), newCLI(&stdout, &stderr, p), []string{
		"run", "--config", file, "--log-format", "console", "--rules", filepath.Join(dir, "0.yaml"), a, b,
	})
	if status != exitOK || got == nil || !strings.HasSuffix(stdout.String(), "  INFO  an outlier  {\"snapshot\": \"one\"}\n") || !strings.Contains(stderr.String(), "INFO  here") {
		t.Fatalf("status %d, stdout %q, stderr %q", status, stdout.String(), stderr.String())
	}
	diff := cmp.Diff([]string{filepath.Join(dir, "0.yaml"), a, b}, got.Rules)
	assert.Check(t, diff == "" && !got.Recorder.Enabled, "rules %s, recorder %v", diff, got.Recorder.Enabled)
}

func TestRunErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tailcam.yaml")
	assert.NilError(t, os.WriteFile(file, []byte("recoder:\n  enabled: false\nlog: {level: loud}\n"), 0o600))
	status, _, stderr := invoke(t, "run", "--config", file)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	assert.Check(t, status == exitError && len(lines) == 2 && strings.HasPrefix(lines[0], file+":1:1: ") &&
		strings.HasPrefix(lines[1], file+":3:"), "status %d, stderr\n%s", status, stderr)
	status, _, stderr = invoke(t, "run", "--log-level", "loud")
	assert.Check(t, status == exitUsage && strings.HasPrefix(stderr, `--log-level: log.level "loud" is unknown`),
		"status %d, stderr %q", status, stderr)
	status, _, _ = invoke(t, "run", "--log-level", "loud", "--config", file)
	assert.Check(t, status == exitError, "errors in flags and in the file: status %d", status)
	status, _, stderr = invoke(t, "run", "rules.d")
	want := "tailcam: \"tailcam run\" takes no arguments, got \"rules.d\": see \"tailcam run --help\"\n"
	assert.Check(t, status == exitUsage && stderr == want, "status %d, stderr %q", status, stderr)
}
