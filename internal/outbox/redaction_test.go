package outbox

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

const secretName = "acme-billing"

// withSecret makes a real snapshot with a name in it.
func withSecret(t *testing.T, dir string, number uint64) (id string) {
	t.Helper()
	id = snapshot.ID{Time: time.Unix(1_800_000_000, 0), Rule: "slow", Number: number}.String()
	dir = filepath.Join(dir, id)
	assert.NilError(t, os.Mkdir(dir, 0o755))
	tr := trace.Trace{
		CPUs: []trace.CPU{{CPU: 0, Records: []trace.Record{trace.MakeRecord(trace.SyscallEntry, 0, 10, 1_000_000_000)}}},
		Env:  trace.Env{KernelRelease: "6.12.0", Machine: "x86_64", Name: id}, SyscallName: func(int) string { return "read" },
		Known: &trace.Known{Tasks: []trace.KnownTask{{TID: 10, PID: 10, Comm: secretName}}},
	}
	assert.NilError(t, trace.Write(filepath.Join(dir, snapshot.TraceDir), tr))
	meta := snapshot.Meta{
		Version: snapshot.Version, ID: id, Rule: "slow", Host: snapshot.HostInfo{Kernel: "6.12.0", Arch: "x86_64"}, Window: snapshot.Window{ToMonoNS: 2_000_000_000},
		Outliers: []events.Outlier{{
			ID: "a-1", Rule: "slow", Track: "syscall", Cause: events.CauseThreshold, DelayNS: 1_000_000, StartMono: 1_000_000_000, EndMono: 1_001_000_000,
			Task: events.Task{PID: 10, TID: 10, Comm: secretName, Cmdline: secretName + " --password=hunter22"},
		}},
	}
	names := snapshot.Names{Version: snapshot.NamesVersion, Tasks: []snapshot.NamedTask{{TID: 10, PID: 10, Comm: secretName}}}
	report, err := catalog.ExplainTrace(filepath.Join(dir, snapshot.TraceDir), &meta, &names)
	assert.NilError(t, err)
	assert.NilError(t, snapshot.WriteDocuments(t.Context(), dir, &meta, &names, catalog.Explanation(report)))
	return id
}

// secretIn unpacks a pack, and reports whether the name is in a file of it.
func secretIn(t *testing.T, data []byte) (secret bool) {
	t.Helper()
	dir, err := pack.Read(bytes.NewReader(data), t.TempDir())
	assert.NilError(t, err)
	assert.NilError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		secret = secret || bytes.Contains(text, []byte(secretName)) || bytes.Contains(text, []byte("hunter22"))
		return err
	}))
	_, err = snapshot.ReadMeta(dir)
	assert.NilError(t, err)
	return secret
}

// TestRedactedUploads: what arrives has no name in it, at each kind of target, and the copy
// leaves nothing behind.
func TestRedactedUploads(t *testing.T) {
	eachTarget(t, func(t *testing.T, opts *Options, to received) {
		id := withSecret(t, opts.Snapshots, 1)
		o, stop := run(t, opts)
		until(t, o, "send", func(s Status) bool { return s.Sent == 1 && s.State == StateIdle })
		stop()
		plain, ok := to.get(t, HostDir(opts.Host)+"/"+id+pack.Ext)
		assert.Assert(t, ok)
		found := secretIn(t, plain)
		assert.Check(t, found, "the search must find the name where it is")

		opts.Redact, opts.Counts = redact.Usual, &Counts{}
		late := withSecret(t, opts.Snapshots, 2)
		o, stop = run(t, opts)
		until(t, o, "send", func(s Status) bool { return s.Sent == 1 && s.State == StateIdle })
		stop()
		redacted, ok := to.get(t, HostDir(opts.Host)+"/"+late+".redacted-usual"+pack.Ext)
		assert.Assert(t, ok)
		found = secretIn(t, redacted)
		assert.Check(t, !found)
		for _, name := range []string{late + pack.Ext, id + ".redacted-usual" + pack.Ext} { // the first was sent before
			_, there := to.get(t, HostDir(opts.Host)+"/"+name)
			assert.Check(t, !there, name)
		}
		left, err := os.ReadDir(filepath.Join(opts.Spool, tmpDir))
		assert.Check(t, err == nil && len(left) == 0, "%v, %v", left, err)
	})
}

// TestRedactionIsSwitchedOn: what was packed with all names, and waits, is not sent any more.
// What is still there is packed anew, and the rest is counted.
func TestRedactionIsSwitchedOn(t *testing.T) {
	w := newWebServer(t)
	w.down = true
	opts := options(t, w.URL)
	there, gone := withSecret(t, opts.Snapshots, 1), withSecret(t, opts.Snapshots, 2)
	o, stop := run(t, opts)
	until(t, o, "pack", func(s Status) bool { return s.Waiting == 2 && s.Failed > 0 })
	stop()
	assert.NilError(t, os.RemoveAll(filepath.Join(opts.Snapshots, gone)))
	assert.NilError(t, os.MkdirAll(filepath.Join(opts.Spool, tmpDir, "redacted-1", there), 0o700)) // left by a crash

	opts.Redact, opts.Counts = []redact.Kind{redact.Arguments, redact.Commands}, &Counts{}
	o, _ = run(t, opts)
	w.set(func() { w.down = false })
	until(t, o, "send", func(s Status) bool { return s.Sent == 1 && s.State == StateIdle })
	assert.Check(t, lost(opts, LostMissed) == 1 && lost(opts, LostRedaction) == 0)
	w.set(func() {
		assert.Check(t, is.Len(w.files, 1))
		data, ok := w.files["/"+HostDir(opts.Host)+"/"+there+".redacted-commands-arguments"+pack.Ext]
		assert.Assert(t, ok, "%v", w.puts)
		found := secretIn(t, data)
		assert.Check(t, !found)
	})
}

// TestNotRedacted: of what cannot be redacted nothing is sent, and it is counted once.
func TestNotRedacted(t *testing.T) {
	w := newWebServer(t)
	opts := options(t, w.URL)
	opts.Redact = redact.Usual
	store(t, opts.Snapshots, 3, 100, "wakeup") // files of this name with other contents
	damaged := withSecret(t, opts.Snapshots, 7)
	streams, err := filepath.Glob(filepath.Join(opts.Snapshots, damaged, snapshot.TraceDir, "kernel", "kernel_*"))
	assert.Assert(t, err == nil && len(streams) > 0)
	data, err := os.ReadFile(streams[0])
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(streams[0], data[:len(data)/2], 0o644))
	fine := withSecret(t, opts.Snapshots, 8)

	o, stop := run(t, opts)
	until(t, o, "give up", func(s Status) bool { return lost(opts, LostRedaction) == 4 && s.Sent == 1 })
	by := opts.Counts.Lost(LostRedaction)
	assert.Check(t, by["wakeup"] == 3 && by["slow"] == 1, "%v", by)
	stop()
	o, _ = run(t, opts)
	until(t, o, "be idle", func(s Status) bool { return s.State == StateIdle && s.Waiting == 0 })
	assert.Check(t, lost(opts, LostRedaction) == 4, "counted once more")
	w.set(func() {
		assert.Check(t, len(w.files) == 1 && w.puts["/"+HostDir(opts.Host)+"/"+fine+".redacted-usual"+pack.Ext] == 1, "%v", w.puts)
	})
}

// TestRedactionNames: a file's name says what was replaced, the same for the same kinds.
func TestRedactionNames(t *testing.T) {
	const id = "20261121T231502.123456789Z-wakeup-000042"
	backwards := slices.Clone(redact.Kinds)
	slices.Reverse(backwards)
	names := map[string]bool{}
	for want, kinds := range map[string][]redact.Kind{
		id + ".tailcam": nil, id + ".redacted-usual.tailcam": redact.Usual, id + ".redacted-all.tailcam": backwards,
		id + ".redacted-users-hosts.tailcam": {redact.Hosts, redact.Users, redact.Hosts},
	} {
		r := newRedaction(kinds, nil)
		assert.Equal(t, r.fileName(id), want)
		names[want] = true
		got, ok := r.idOf(want)
		assert.Check(t, ok && got == id, want)
		for other := range names {
			_, ok := r.idOf(other)
			assert.Check(t, ok == (other == want), "%s for %s", other, want)
		}
	}
	for _, bad := range []string{"", ".tailcam", id, id + ".part", id + ".redacted-usual", "../" + id + ".tailcam", id + ".tailcam.part", strings.ToLower(id) + ".tailcam"} {
		_, _, ok := split(bad)
		assert.Check(t, !ok, bad)
	}
}
