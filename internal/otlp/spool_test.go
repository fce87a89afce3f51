package otlp

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/test/support/collector"
	"github.com/tailcam/tailcam/test/support/stuckfs"
	"github.com/tailcam/tailcam/tracker/events"
)

// record is a log record of some size that no compression makes smaller.
func record(id string, size int) *logspb.LogRecord {
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(rand.N(256))
	}
	return &logspb.LogRecord{SeverityText: id, Body: &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: noise}}}
}

func opened(t *testing.T, dir string, quota int64) (*spool, *ruleCounts) {
	t.Helper()
	dropped := &ruleCounts{}
	s, err := openSpool(dir, quota, &atomic.Int64{}, dropped, make(chan struct{}, 1))
	assert.NilError(t, err)
	t.Cleanup(func() { s.close() })
	return s, dropped
}

// taken takes all that waits.
func taken(t *testing.T, s *spool) (ids []string) {
	t.Helper()
	for b := s.take(func(error) {}); b != nil; b = s.take(func(error) {}) {
		for _, r := range b.records {
			ids = append(ids, r.GetSeverityText())
		}
		assert.NilError(t, s.settle(b.files))
	}
	return ids
}

// TestSpool: what was added waits, also for the next one that opens the directory, until it is
// settled; rules take turns; nobody else may use the directory meanwhile.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	s, _ := opened(t, dir, 1<<20)
	_, err := openSpool(dir, 1<<20, &atomic.Int64{}, &ruleCounts{}, make(chan struct{}, 1))
	assert.Check(t, err != nil, "it is used twice")
	for i := range 3 {
		assert.NilError(t, s.add("noisy", []*logspb.LogRecord{record(fmt.Sprint("n", i), 10)}))
	}
	assert.NilError(t, s.add("a/../b", []*logspb.LogRecord{record("odd", 10), record("odd2", 10)}))
	assert.NilError(t, s.close())

	s, _ = opened(t, dir, 1<<20)
	n, bytes := s.size()
	assert.Check(t, n == 5 && bytes == 4*blockSize, "%d outliers, %d bytes", n, bytes)
	b := s.take(func(err error) { t.Error(err) })
	assert.Check(t, len(b.records) == 5 && b.records[0].GetSeverityText() == "odd" && b.records[2].GetSeverityText() == "n0", "%v", b.rules)
	assert.Check(t, is.DeepEqual(b.rules, []string{"a/../b", "a/../b", "noisy", "noisy", "noisy"}))
	assert.Check(t, s.take(func(error) {}) == nil, "taken twice")
	assert.NilError(t, s.close()) // killed, as it were: there was no answer

	s, _ = opened(t, dir, 1<<20)
	assert.Check(t, is.Len(taken(t, s), 5))
	n, bytes = s.size()
	assert.Check(t, n == 0 && bytes == 0, "%d outliers, %d bytes", n, bytes)
	assert.NilError(t, s.close())
	s, _ = opened(t, dir, 1<<20)
	assert.Check(t, is.Len(taken(t, s), 0))
}

// TestSpoolQuota: the rule that takes most loses its oldest, and each loss is counted for it;
// what is being sent stays.
func TestSpoolQuota(t *testing.T) {
	s, dropped := opened(t, t.TempDir(), 1<<20)
	assert.NilError(t, s.add("rare", []*logspb.LogRecord{record("r", 10)}))
	sending := s.take(func(err error) { t.Error(err) })
	assert.NilError(t, s.add("rare", []*logspb.LogRecord{record("r2", 10)}))
	const n = 40
	for i := range n {
		assert.NilError(t, s.add("noisy", []*logspb.LogRecord{record(fmt.Sprint("n", i), 50_000), record("", 0)}))
	}
	_, bytes := s.size()
	assert.Check(t, bytes <= 1<<20, "%d bytes", bytes)
	lost := dropped.all()
	assert.Check(t, lost["noisy"] > 2*n/2-20 && lost["rare"] == 0, "%v", lost)
	assert.NilError(t, s.settle(sending.files))
	got := taken(t, s)
	assert.Check(t, is.Contains(got, "r2"))
	assert.Check(t, is.Contains(got, fmt.Sprint("n", n-1)))
	assert.Check(t, uint64(len(got)-1)+lost["noisy"] == 2*n, "%d arrived, %d lost", len(got), lost["noisy"])

	s.minFree.Store(1 << 60)
	assert.Check(t, is.ErrorIs(s.add("rare", []*logspb.LogRecord{record("r3", 10)}), errNoRoom))
}

// TestSpoolDamaged: files that are not whole cost what they had, which is counted; others are
// left alone.
func TestSpoolDamaged(t *testing.T) {
	dir := t.TempDir()
	s, _ := opened(t, dir, 1<<20)
	for i := range 6 {
		assert.NilError(t, s.add("a", []*logspb.LogRecord{record(fmt.Sprint(i), 1000), record("", 1000)}))
	}
	assert.NilError(t, s.close())
	files, err := filepath.Glob(filepath.Join(dir, "*"+spoolExt))
	assert.NilError(t, err)
	damage := []func(name string, data []byte) error{
		func(name string, _ []byte) error { return os.WriteFile(name, nil, 0o600) },
		func(name string, data []byte) error { return os.WriteFile(name, data[:len(data)/2], 0o600) },
		func(name string, data []byte) error {
			data[len(data)/2] ^= 1
			return os.WriteFile(name, data, 0o600)
		},
		func(name string, _ []byte) error { // more than it says
			return os.Rename(name, strings.Replace(name, "-2-a", "-1-a", 1))
		},
	}
	for i, change := range damage {
		data, err := os.ReadFile(files[i])
		assert.NilError(t, err)
		assert.NilError(t, change(files[i], data))
	}
	for _, name := range []string{"notes.txt", "7-70000-a.otlp", "x-1-a.otlp", "8-1-%zz.otlp", "9-0-a.otlp"} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	assert.NilError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "00000000000000000099-1-a.otlp")))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, journalName), []byte("no JSON\n{\"id\":\"x\",\"record\":\"AAAA\"}\n{\"id\""), 0o600))

	s, dropped := opened(t, dir, 1<<20)
	var warnings []string
	var got []string
	for b := s.take(func(err error) { warnings = append(warnings, err.Error()) }); b != nil; b = s.take(func(error) {}) {
		for _, r := range b.records {
			got = append(got, r.GetSeverityText())
		}
	}
	assert.Check(t, is.DeepEqual(got, []string{"4", "", "5", ""}))
	assert.Check(t, is.Len(warnings, 4))
	assert.Check(t, is.DeepEqual(dropped.all(), map[string]uint64{"a": 7}))
	_, err = os.Stat(filepath.Join(dir, "notes.txt"))
	assert.Check(t, err)
}

// TestSpooledWhileDown: a collector that is down for longer than memory has room loses
// nothing; once it is back, each outlier arrives once, also those of a daemon that has ended.
func TestSpooledWhileDown(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		var down atomic.Bool
		down.Store(true)
		c.Answer = func() error {
			if down.Load() {
				return status.Error(codes.Unavailable, "later")
			}
			return nil
		}
		opts := &Options{Endpoint: c.URL, Protocol: protocol, Spool: t.TempDir(), Quota: 64 << 20}
		n := 3 * queueCapacity
		if testing.Short() { // the race detector takes 5 ms for each
			n = queueCapacity + queueCapacity/4
		}
		publish := func(e *Exporter, from int) {
			for i := from; i < from+n; i++ {
				if i%64 == 0 { // as fast as the disk takes them, also at the end
					eventually(t, "memory has room", func() bool { return e.queue.len() < 64 })
				}
				e.Publish(outlier("a", i))
			}
			held := outlier("held", from) // it waits for an explanation that never comes
			held.Snapshot = new("snap")
			e.Publish(held)
		}
		e, stop := run(t, opts)
		eventually(t, "the spool is open", func() bool { return e.spool.Load() != nil })
		publish(e, 0)
		stop()
		dropped, _ := e.Losses()
		assert.Check(t, is.Len(dropped, 0))

		e, _ = run(t, opts)
		eventually(t, "what waited is found", func() bool { waiting, bytes, why := e.Waiting(); return waiting == n+1 && bytes > 0 && why == "" })
		publish(e, n)
		down.Store(false)
		eventually(t, "all have arrived", func() bool { waiting, _, _ := e.Waiting(); return waiting == 1 && len(c.Records()) >= 2*n+1 })
		seen := map[any]int{}
		for _, r := range c.Records() {
			seen[r.Attributes["log.record.uid"]]++
		}
		assert.Check(t, len(seen) == 2*n+1 && len(c.Records()) == 2*n+1, "%d arrived, %d different ones", len(c.Records()), len(seen))
		dropped, rejected := e.Losses()
		assert.Check(t, len(dropped) == 0 && len(rejected) == 0, "%v %v", dropped, rejected)
	})
}

// TestSpoolRefuses: without a directory that can be used, outliers wait in memory, are sent,
// and it is said why.
func TestSpoolRefuses(t *testing.T) {
	c := overHTTP(t)
	file := filepath.Join(t.TempDir(), "file")
	assert.NilError(t, os.WriteFile(file, nil, 0o600))
	e, _ := run(t, &Options{Endpoint: c.URL, Protocol: HTTP, Spool: file, Quota: 1 << 20})
	e.Publish(outlier("a", 1))
	eventually(t, "it arrives", func() bool { return len(c.Records()) == 1 })
	_, _, why := e.Waiting()
	assert.Check(t, is.Contains(why, "not a directory"))

	// And one that is full, from some moment on.
	e, _ = run(t, &Options{Endpoint: c.URL, Protocol: HTTP, Spool: t.TempDir(), Quota: 1 << 20})
	eventually(t, "the spool is open", func() bool { return e.spool.Load() != nil })
	e.SetMinFree(1 << 60)
	e.Publish(outlier("a", 2))
	eventually(t, "it arrives", func() bool { return len(c.Records()) == 2 })
	_, _, why = e.Waiting()
	assert.Check(t, is.Contains(why, "no room"))
	e.SetMinFree(0)
	eventually(t, "the disk is used again", func() bool {
		e.Publish(outlier("a", 3))
		_, _, why := e.Waiting()
		return why == ""
	})
}

// TestJournal: what is held at the end is there, as it was last, whatever was written before.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), journalName)
	var got []string
	add := func(rule string, records []*logspb.LogRecord) error {
		for _, r := range records {
			got = append(got, rule+" "+r.GetSeverityText())
		}
		return nil
	}
	convert := func(o *events.Outlier) (*logspb.LogRecord, error) { return record(o.ID+o.Track, 100_000), nil }
	j, err := openJournal(path, add)
	assert.NilError(t, err)
	one, two := &events.Outlier{ID: "1", Rule: "a"}, &events.Outlier{ID: "2", Rule: "b"}
	assert.NilError(t, j.keep([]*events.Outlier{one, two}, convert))
	changed := *two
	changed.Track = " changed"
	assert.NilError(t, j.keep([]*events.Outlier{&changed}, convert))
	for i := range 200 { // it is written anew on the way
		assert.NilError(t, j.keep([]*events.Outlier{&changed, {ID: fmt.Sprint("x", i), Rule: "a"}}, convert))
	}
	info, err := os.Stat(path)
	assert.Check(t, err == nil && info.Size() < 2*maxJournal, "%v", info)
	assert.NilError(t, j.close())
	j, err = openJournal(path, add)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(got, []string{"a x199", "b 2 changed"}))
	got = nil
	assert.NilError(t, j.keep([]*events.Outlier{one}, convert))
	assert.NilError(t, j.keep(nil, convert))
	assert.NilError(t, j.close())
	j, err = openJournal(path, add)
	assert.Check(t, err == nil && len(got) == 0, "%v %v", err, got)
	assert.NilError(t, j.close())
}

// TestSpoolHangs: while the disk does not answer, outliers are sent from memory; those that it
// had been given arrive when it answers.
func TestSpoolHangs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	c := overHTTP(t)
	disk := stuckfs.MountMirror(t, t.TempDir())
	e, _ := run(t, &Options{Endpoint: c.URL, Protocol: HTTP, Spool: filepath.Join(disk.Path(), "spool"), Quota: 1 << 20})
	eventually(t, "the spool is open", func() bool { return e.spool.Load() != nil })
	arrived := func(id string) func() bool {
		return func() bool {
			return slices.ContainsFunc(c.Records(), func(r collector.Record) bool { return r.Attributes["log.record.uid"] == id })
		}
	}
	e.Publish(outlier("a", 1))
	eventually(t, "it arrives through the disk", arrived("a-1"))
	disk.Slow(time.Hour, stuckfs.Create, stuckfs.Write, stuckfs.Rename)
	e.Publish(outlier("a", 2))
	eventually(t, "the disk has it", func() bool { return e.queue.len() == 0 })
	e.Publish(outlier("a", 3))
	eventually(t, "the next one arrives", arrived("a-3"))
	assert.Check(t, !arrived("a-2")(), "it did not hang")
	disk.Mend()
	eventually(t, "the first one arrives", arrived("a-2"))
}
