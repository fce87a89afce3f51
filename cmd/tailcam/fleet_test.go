package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// Flags that make no sense are usage errors, before anything is sent. What the engine answers is
// tested with real ones, by test/fleet.
func TestFleetFlags(t *testing.T) {
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer s.Close()
	for args, want := range map[string]string{
		"top --where host=a":                            "--where needs --fleet",
		"top --since-release":                           "--since-release needs --fleet",
		"events --snapshot-url https://s/{snapshot}":    "--snapshot-url needs --fleet",
		"top --fleet URL --dir /x":                      "--snapshots-dir is of this machine: not with --fleet",
		"events --fleet URL -f":                         "--follow is of this machine: not with --fleet",
		"events --fleet URL --stacks":                   "--stacks is of this machine: not with --fleet",
		"top --fleet=":                                  "invalid --fleet: has no URL, such as https://reader@clickhouse.example:8443/default",
		"top --fleet http://u:p@h":                      "invalid --fleet: has a password, which others see in the list of processes: set TAILCAM_FLEET_PASSWORD or --fleet-password-file instead",
		"top --fleet clickhouse://h:9000":               "invalid --fleet: port 9000 is ClickHouse's native protocol: use its HTTP interface, usually on port 8123 (or https:// on 8443)",
		"top --fleet URL --by cgroup":                   "invalid --by cgroup: must be one of culprit, cause, rule, host, unit, pod, namespace, container, version, kernel, release, activity, trace with --fleet",
		"top --fleet URL --since-release=host":          "invalid --since-release host: must be one of release, kernel, version",
		"top --fleet URL --where a":                     `invalid --where: "a" is not KEY=VALUE with one of the keys culprit, cause, rule, host, unit, pod, namespace, container, version, kernel, release, activity, trace`,
		"top --fleet URL -n 10001":                      "invalid --count 10001: at most 10000 with --fleet",
		"events --fleet URL --rule a --where rule=b":    "invalid --where: rule is given twice",
		"events --fleet URL --snapshot-url javascript:": "invalid --fleet: --snapshot-url is not a URL, such as https://snapshots.example/{host}/{snapshot}",
	} {
		status, stdout, stderr := invoke(t, strings.Fields(strings.Replace(args, "URL", s.URL, 1))...)
		assert.Check(t, status == exitUsage && stdout == "", "%s: status %d", args, status)
		assert.Check(t, is.Equal("tailcam: "+want+"\n", stderr), "%s", args)
	}
	assert.Check(t, !asked)
}

// The password is sent to the server, and comes from a file before the environment.
func TestFleetPassword(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, got, _ = r.BasicAuth()
		io.WriteString(w, `{"outliers":"0"}`)
	}))
	defer s.Close()
	t.Setenv("TAILCAM_FLEET_PASSWORD", "from the environment")
	url := strings.Replace(s.URL, "//", "//reader@", 1)
	status, _, stderr := invoke(t, "top", "--fleet", url)
	assert.Check(t, status == exitOK && strings.HasPrefix(stderr, "no outliers in the fleet since "), "%d %s", status, stderr)
	assert.Check(t, is.Equal("from the environment", got))
	file := filepath.Join(t.TempDir(), "password")
	assert.NilError(t, os.WriteFile(file, []byte("from a file\n"), 0o600))
	status, _, stderr = invoke(t, "top", "--fleet", url, "--fleet-password-file", file)
	assert.Check(t, status == exitOK, "%d %s", status, stderr)
	assert.Check(t, is.Equal("from a file", got))
	for _, path := range []string{"/no/such", "/dev/zero"} {
		status, _, stderr = invoke(t, "top", "--fleet", url, "--fleet-password-file", path)
		assert.Check(t, status == exitError && strings.HasPrefix(stderr, "tailcam: --fleet-password-file: "), "%d %s", status, stderr)
	}
}
