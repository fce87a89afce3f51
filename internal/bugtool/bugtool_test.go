package bugtool

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/redact"
)

// TestItemHangs: what hangs is given up, and so is what ends with its context.
func TestItemHangs(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	for _, collect := range []func(context.Context, *source) ([]file, error){
		func(context.Context, *source) ([]file, error) { <-never; return nil, nil },
		func(ctx context.Context, _ *source) ([]file, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		i := item{name: "x", limit: time.Millisecond, collect: collect}
		files, err := i.within(t.Context(), nil)
		assert.Check(t, len(files) == 0)
		assert.Check(t, is.ErrorContains(err, "no answer within 1ms"))
	}
}

// TestLogLines: lines about outliers are left out, as is what cannot be told from them;
// a crash is not.
func TestLogLines(t *testing.T) {
	var r redact.Redactor
	r.Add("s3cret")
	got := string(logLines([]byte(`{"level":"info","message":"watching","rules":8,"socket":"/home/anna/s.sock"}
{"level":"info","message":"nginx was slow","rule":"a","delay_ns":5,"comm":"nginx"}
12:00:00.000Z  INFO  nginx was slow
{"level":"error","message":"x s3cret","headers":"y","output":"anything","run":["/bin/x","-y","z"],"changes":[{"after":"[{\"run\":[\"a\",\"b\"]}]"}]}
panic: oops s3cret

goroutine 1 [running]:
main.main()`+"\n\t/home/anna/main.go:1 +0x1\x1b[2J\n"+`{"level":"info","message":"again"}
nginx
`), &r))
	assert.Check(t, is.Equal(got, `{"level":"info","message":"watching","rules":8,"socket":"/home/<user>/s.sock"}
{"changes":[{"after":"[{\"run\":[\"a\",\"<argument>\"]}]"}],"headers":"<redacted>","level":"error","message":"x <redacted>","output":"<left out>","run":["/bin/x","<argument>","<argument>"]}
panic: oops <redacted>

goroutine 1 [running]:
main.main()
\x09/home/<user>/main.go:1 +0x1\x1b[2J
{"level":"info","message":"again"}
(3 lines about outliers, or of unknown form, left out)
`))
}

func TestJournalText(t *testing.T) {
	var r redact.Redactor
	got := string(journalText([]byte(`{"__REALTIME_TIMESTAMP":"1767225600000000","PRIORITY":"6","MESSAGE":"watching token=abc"}
{"__REALTIME_TIMESTAMP":"1767225600000000","PRIORITY":"6","MESSAGE":"nginx","MESSAGE_ID":"7a5c1d0e9b3f4c68a2e4d1f06b8c9355"}
{"__REALTIME_TIMESTAMP":"x","PRIORITY":"6","MESSAGE":[1,2]}
not json
`), &r))
	assert.Check(t, is.Equal(got, "2026-01-01T00:00:00.000Z <6> watching token= <redacted>\n(3 entries about outliers, or of unknown form, left out)\n"))
	long := strings.Repeat(`{"MESSAGE":"`+strings.Repeat("x", 10000)+"\"}\n", 200)
	assert.Check(t, is.Len(journalText([]byte(long), &r), maxFile))
}

func TestLimited(t *testing.T) {
	var l limited
	for range 10 {
		n, err := l.Write(make([]byte, maxJournal/4))
		assert.Check(t, n == maxJournal/4 && err == nil)
	}
	assert.Check(t, is.Equal(l.Len(), maxJournal))
}

// TestLogTail: only the end of a regular file is read, in whole lines.
func TestLogTail(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	assert.NilError(t, os.WriteFile(path, []byte(strings.Repeat("0123456789\n", maxLog/10)), 0o600))
	text, err := logTail(path)
	assert.NilError(t, err)
	assert.Check(t, len(text) <= maxLog && strings.HasPrefix(string(text), "0123456789\n"))
	fifo := filepath.Join(dir, "fifo")
	assert.NilError(t, unix.Mkfifo(fifo, 0o600))
	for _, bad := range []string{dir, fifo, "/dev/null", filepath.Join(dir, "none")} {
		_, err := logTail(bad)
		assert.Check(t, err != nil, bad)
	}
}

func TestShown(t *testing.T) {
	var r redact.Redactor
	args := []string{"tailcam", "run", "--otlp-headers", "authorization=x", "--otlp-headers=a=b", "--rules", "/home/anna/r.yaml", "--otlp-headers"}
	assert.Check(t, is.Equal(shown(args, &r), "tailcam\nrun\n--otlp-headers\n<redacted>\n--otlp-headers\n<redacted>\n--rules\n/home/<user>/r.yaml\n--otlp-headers"))
	arguments([]string{"--otlp-headers", "authorization=first-value", "--otlp-headers=x=other-value", "--otlp-headers"}, &r)
	assert.Check(t, is.Equal(r.Known("first-value other-value"), "<redacted> <redacted>"))
}

func TestEnviron(t *testing.T) {
	var r redact.Redactor
	environ([]string{"PWD=/srv/app", "API_TOKEN=abcdefgh", "DEBUG_AUTH=true", "odd", "TAILCAM_OTLP_HEADERS=a=Bearer one-value,b=two-value"}, &r)
	assert.Check(t, is.Equal(r.Known("/srv/app abcdefgh true one-value two-value"), "/srv/app <redacted> true <redacted> <redacted>"))
}

func TestFDProgram(t *testing.T) {
	assert.Check(t, fdProgram("pos:\t0\nlink_type:\ttracing\nprog_tag:\tabc\nprog_id:\t5\n") == nil, "a link")
	assert.Check(t, fdProgram("") == nil && fdProgram(":\n:::\nprog_id:\t-1") == nil)
	assert.Check(t, is.DeepEqual(fdProgram("prog_type:\t26\nprog_jited:\t1\nprog_tag:\tabc\nmemlock:\t4096\nprog_id:\t5\nrun_time_ns:\t9\nrun_cnt:\t3\nrecursion_misses:\t1\nverified_insns:\t77\n"),
		&program{ID: 5, Type: 26, Jited: true, Tag: "abc", Locked: 4096, Runs: 3, RunTimeNS: 9, Missed: 1, Verified: 77}))
}

// TestManifest: large files are cut, failures are told on one line, and the archive has
// no secret that was in a name or an error.
func TestManifest(t *testing.T) {
	var r redact.Redactor
	r.Add("s3cret-value")
	m := &manifest{release: "tailcam v1", now: time.Unix(0, 0)}
	m.take(&item{name: "big.txt", what: "much"}, plain("big.txt", strings.Repeat("x", maxFile+5)), nil, &r)
	m.take(&item{name: "gone.txt"}, nil, errNothing{"two\nlines with s3cret-value"}, &r)
	m.take(&item{name: "bad.json"}, value("bad.json", func() {}), nil, &r)
	assert.Check(t, is.Len(m.entries, 1))
	text := r.Text(m.String())
	for _, want := range []string{"big.txt, 1048576 bytes: much; cut after 1048576 bytes\n", "gone.txt: two; lines with <redacted>\n", "bad.json: encode: "} {
		assert.Check(t, is.Contains(text, want))
	}
	assert.Check(t, is.Contains(r.Text(redacted), redacted), "it says of itself what it removes")

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	assert.NilError(t, err)
	defer full.Close()
	_, err = m.write(full, &r)
	assert.Check(t, is.ErrorIs(err, unix.ENOSPC))
}
