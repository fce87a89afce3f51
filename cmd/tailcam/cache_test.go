package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/pagecache"
)

// counted is a report as internal/pagecache returns it. It claims nothing about what one finds.
func counted() *pagecache.Report {
	hits, lookups, dirtied := uint64(12345), uint64(20000), uint64(0)
	of := pagecache.Counts{Hits: &hits, Lookups: &lookups, Misses: 7655, Written: &dirtied, Dirtied: &dirtied, Evicted: 12, Removed: 3}
	by := []pagecache.Remover{
		{How: "cgroup-reclaim", PID: 42, Comm: "cat\x1b[2J", Cgroup: "/a", Owner: "/b\u202e", Pages: 12},
		{How: "unlink", PID: 43, Comm: "rm", Pages: 3, ErrorPages: 9},
	}
	return &pagecache.Report{
		Start: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC), DurationNS: 1e9, PageBytes: 4096, Counters: 4096, Total: of, Missing: []pagecache.Missing{},
		Files: []pagecache.File{
			{Path: "/var/lib/a\x1b]0;x\a\xff", Here: true, Device: "254:0", Inode: 1, Counts: of, CachedPages: 256, CachedBytes: 1 << 20, RemovedBy: by},
			{Path: "/same", Here: true, Device: "254:0", Inode: 2, RemovedBy: []pagecache.Remover{}},
			{Path: "/same", Here: true, Device: "254:0", Inode: 3, RemovedBy: []pagecache.Remover{}, ErrorPages: 1234},
			{Path: "/other", Device: "8:1", Inode: 4, RemovedBy: []pagecache.Remover{}},
			{Device: "8:1", Inode: 5, RemovedBy: []pagecache.Remover{}},
			{Disk: "vda", Device: "0:3", Inode: 6, RemovedBy: []pagecache.Remover{}},
		},
	}
}

const cachePrinted = `FILE                          HITS  MISSES  DIRTIED  EVICTED  REMOVED  CACHED
/var/lib/a\x1b]0;x\x07\xff  12,345   7,655        0       12        3  1.0MiB
/same (254:0 inode 2)            -       0        -        0        0      0B
/same (254:0 inode 3)            -       0        -        0        0      0B  up to 1,234 more
8:1:/other                       -       0        -        0        0      0B
(no name) 8:1 inode 5            -       0        -        0        0      0B
block device vda                 -       0        -        0        0      0B
all files                   12,345   7,655        0       12        3

PAGES OF                    PAGES  REMOVED BY     HOW             IN  OWNER
/var/lib/a\x1b]0;x\x07\xff     12  cat\x1b[2J 42  cgroup-reclaim  /a  /b\u202e
/var/lib/a\x1b]0;x\x07\xff      3  rm 43          unlink                        up to 9 more
`

func TestCacheCommand(t *testing.T) {
	if _, err := checkPrivileges(); err != nil {
		t.Skipf("run refuses without the capabilities that it needs: %v", err)
	}
	report := counted()
	var asked *cacheFlags
	run := func(args ...string) (int, string, string) {
		p := testDeps()
		p.cache = func(_ context.Context, f *cacheFlags, _ *api.Client) (*pagecache.Report, error) {
			asked = f
			return report, nil
		}
		var stdout, stderr bytes.Buffer
		status := execute(t.Context(), newCLI(&stdout, &stderr, p), append([]string{"cache"}, args...))
		return status, stdout.String(), stderr.String()
	}
	status, stdout, stderr := run("--file", "*.ibd", "--for", "3s", "-n", "7", "--sort", "evicted")
	assert.Check(t, status == exitOK && stderr == "counting for 3s…\n", "%d %q", status, stderr)
	assert.Check(t, is.Equal(strings.ReplaceAll(stdout, " \n", "\n"), cachePrinted))
	assert.DeepEqual(t, *asked, cacheFlags{"*.ibd", "evicted", 3 * time.Second, 7}, cmp.AllowUnexported(cacheFlags{}))

	// With a daemon's activities there is one column more.
	by := &report.Files[0].RemovedBy[0]
	by.Requests = []pagecache.Request{{Token: "3.17.5", Name: "report", Text: "a\x1bb", Pages: 11}, {Token: "3.18.5", Pages: 1}}
	_, stdout, _ = run()
	for _, row := range []string{"OWNER     FOR\n", `  /b\u202e  report, a\x1bb, token 3.17.5 (11 pages), and 1 more` + "\n", "unlink"} {
		assert.Check(t, is.Contains(strings.ReplaceAll(stdout, "  \n", "\n"), row))
	}
	by.Requests = nil

	status, stdout, stderr = run("-o", "json", "--for", "0s")
	assert.Check(t, status == exitOK && stderr == "", "%d %q", status, stderr)
	var got pagecache.Report
	assert.NilError(t, json.Unmarshal([]byte(stdout), &got))
	assert.Check(t, isJSONLines(t, stdout) == 1 && got.Files[0].RemovedBy[0].Comm == "cat\x1b[2J" && got.Files[1].Hits == nil)
	status, stdout, _ = run("-o", "yaml")
	assert.Check(t, status == exitOK && strings.HasPrefix(stdout, "---\nschema: tailcam/cache/v1\n"), "%d %q", status, stdout)

	report = &pagecache.Report{Missing: []pagecache.Missing{{Column: "hits", Reason: "this kernel has no tracepoint x"}}, LostPages: 1000}
	status, stdout, stderr = run()
	assert.Check(t, status == exitOK && strings.HasSuffix(stderr, "\nno file was used\n"), "%d %q", status, stderr)
	assert.Check(t, is.Equal(stdout, "note: hits: this kernel has no tracepoint x\nnote: 1,000 pages of unknown files: too many files at once\n"))

	for args, want := range map[string]string{
		"--for -1s": "invalid --for -1s: must not be negative (0s: until SIGINT)",
		"-n 0":      "invalid --count 0: must be a positive number",
		"--sort x":  "invalid --sort x: must be one of total, hits, misses, dirtied, evicted, removed, cached",
		"file":      `"tailcam cache" takes no arguments, got "file": see "tailcam cache --help"`,
	} {
		status, _, stderr := run(strings.Fields(args)...)
		assert.Check(t, status == exitUsage && stderr == "tailcam: "+want+"\n", "%s: %d %q", args, status, stderr)
	}
}
