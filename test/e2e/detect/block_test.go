package detect

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	program "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	blockThreshold = 6 * time.Millisecond
	blockOver      = 2 * blockThreshold
	blockUnder     = blockThreshold * 8 / 10
	slowDisks      = 6 // each serves one request at a time
)

// Slow disks, each with a thread that reads it, all at once.
func TestBlock(t *testing.T) {
	needRoot(t)
	var disks []*program.SlowDisk
	for range slowDisks {
		disk, err := program.Slow(t.Context())
		assert.NilError(t, err)
		t.Cleanup(func() {
			assert.Check(t, disk.Close())
		})
		disks = append(disks, disk)
	}
	c := watch(t, []rules.Rule{{
		Name: "block", Track: rules.Block, Threshold: blockThreshold,
		When: rules.Match{Comm: []string{program.CommReader}, Op: []rules.Op{rules.Read}},
	}, neverSlow}, nil)

	var mu sync.Mutex
	var injected []inject.Event
	truths := map[uint64]program.Truth{} // by start of the event
	var wg sync.WaitGroup
	for _, disk := range disks {
		wg.Go(func() {
			// A busy machine makes some longer than asked: until enough are not.
			const n, overs, enough = (askOver + askUnder) / slowDisks, askOver/slowDisks + 1, wantUnder/slowDisks + 1
			for i, short := 0, 0; i < n || short < enough && i < 2*n; i++ {
				kind, delay := inject.Under, blockUnder
				if i < n && (i+1)*overs/n != i*overs/n {
					kind, delay = inject.Over, blockOver
				}
				truth, err := disk.Read(t.Context(), delay)
				if err != nil {
					t.Error(err)
					return
				}
				if truth.Delay() < blockThreshold {
					short++
				}
				mu.Lock()
				injected = append(injected, inject.Event{
					Track: "block", Kind: kind, Comm: truth.Comm, PID: truth.PID, TID: truth.TID,
					Start: truth.StartMono, End: truth.EndMono,
				})
				truths[truth.StartMono] = truth
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	found := c.balance(t, blockThreshold, injected, c.settle(), "block").check(wantOver, wantUnder)
	for _, p := range found {
		o, truth := p.reports[0], truths[p.Start]
		want := events.BlockInfo{
			Device: truth.Device, Sector: truth.Sector, Bytes: 4096, Op: "read",
			Flags: o.Block.Flags, QueueNS: o.Block.QueueNS,
		}
		assert.Check(t, *o.Block == want && o.Block.QueueNS >= 0 && o.Block.QueueNS <= int64(p.Delay()),
			"reported %+v, want %+v", *o.Block, want)
	}
	c.noRequestsLeft()
}

// noRequestsLeft demands that requests do not stay behind. Other programs have
// some under way, but not the same ones all the time.
func (c *camera) noRequestsLeft() {
	c.t.Helper()
	var stuck []uint64
	first := true
	c.eventually("no request stays pending", func() error {
		keys := c.pending(rules.Block)
		if first {
			stuck, first = keys, false
		}
		stuck = slices.DeleteFunc(stuck, func(k uint64) bool { return !slices.Contains(keys, k) })
		if len(stuck) > c.unseen() {
			return fmt.Errorf("%d requests", len(stuck))
		}
		return nil
	})
}

// Every request of an ordinary disk, many at once: each is reported once by a
// rule that wants all, with where and how much, and none by one that wants slow ones.
func TestBlockEveryRequest(t *testing.T) {
	needRoot(t)
	const requests, size, workers = 10000, 4096, 32
	file := newOrdinary(t, 8<<20)
	here := []string{file.device}
	ours := func(device, notDevice []string) rules.Match {
		return rules.Match{Comm: []string{"inj-block"}, Device: device, NotDevice: notDevice}
	}
	half := rules.Sectors{First: file.sector, Last: file.sector + 4<<20/512 - 1}
	c := watch(t, []rules.Rule{
		{Name: "whoever", Track: rules.Block, Threshold: time.Nanosecond, When: rules.Match{Device: here}},
		{Name: "ours", Track: rules.Block, Threshold: time.Nanosecond, When: ours([]string{"nothing", file.device}, nil)},
		{Name: "slow", Track: rules.Block, Threshold: blockThreshold, When: ours(here, nil)},
		{Name: "other", Track: rules.Block, Threshold: time.Nanosecond, When: ours(nil, here)},
		{Name: "half", Track: rules.Block, Threshold: time.Hour, When: rules.Match{Device: here}, Overrides: []rules.Override{
			{When: rules.Match{Sector: &half}, Threshold: time.Nanosecond},
		}},
		lastRequest(time.Nanosecond, rules.Match{}),
		neverSlow,
	}, &tracker.Options{Buffer: 256 << 20})
	for _, op := range []string{"read", "write"} {
		t.Run(op, func(t *testing.T) {
			before := len(c.settle())
			injected := inject.Run(t, "block", file.path, op, fmt.Sprint(size), fmt.Sprint(requests), fmt.Sprint(workers))
			reports := c.since(before)
			owe := map[uint64]int{} // by sector: injected less reported
			for _, e := range injected {
				owe[file.sector+uint64(e.Offset)/512]++
			}
			merged, halves := 0, 0
			for _, o := range only("whoever", reports) {
				if o.Block.Sector >= half.First && o.Block.Sector <= half.Last {
					halves++
				}
				if !file.holds(o) {
					continue // of other programs
				}
				// A busy device gives some back, and those that wait may be merged.
				blocks := max(1, o.Block.Bytes/size)
				merged += int(blocks) - 1
				for i := range uint64(blocks) {
					owe[o.Block.Sector+i*size/512]--
				}
				want := events.BlockInfo{
					Device: file.device, Sector: o.Block.Sector, Bytes: blocks * size, Op: op,
					Flags: map[string]string{"read": "RS", "write": "WS"}[op], QueueNS: o.Block.QueueNS,
					Requeues: o.Block.Requeues,
				}
				assert.Assert(t, *o.Block == want && o.Block.QueueNS >= 0, "reported %+v, want %+v", *o.Block, want)
			}
			got := len(only("half", reports))
			assert.Check(t, got == halves && halves >= requests/4,
				"a rule for half of the sectors reported %d of %d requests there", got, halves)
			missed := 0
			for sector, n := range owe {
				assert.Check(t, n >= 0, "sector %d: reported %d times more than it was asked for", sector, -n)
				missed += max(0, n)
			}
			unseen := c.unseen()
			assert.Check(t, missed <= unseen,
				"%d requests were not reported; the kernel has left out %d", missed, unseen)
			c.asked(t, file, injected, reports, missed+merged)
			c.balance(t, blockThreshold, injected, reports, "slow").check(0, requests*9/10)
			for _, o := range only("other", reports) {
				t.Errorf("a rule of other disks reported %+v", *o.Block)
			}
		})
	}
	c.noRequestsLeft()
}

// asked demands that every request is reported of the thread that asked for it,
// even of a busy disk, where the memory of one soon serves the next.
func (c *camera) asked(t *testing.T, file *ordinary, injected []inject.Event, reports []*events.Outlier, missing int) {
	t.Helper()
	l := c.balance(t, time.Nanosecond, injected, reports, "ours")
	var found []*pair
	for _, p := range l.pairs {
		if len(p.reports) == 0 {
			continue
		}
		found = append(found, p)
		sector := file.sector + uint64(p.Offset)/512
		if o := p.reports[0]; len(p.reports) > 1 || o.Block.Sector > sector || o.Block.Sector+uint64(o.Block.Bytes)/512 <= sector {
			t.Errorf("reported %d times, first %+v of %+v: %+v", len(p.reports), *o.Block, o.Task, p.Event)
		}
	}
	for _, o := range l.strays {
		t.Errorf("reported but not injected: %+v of %+v", *o.Block, o.Task)
	}
	t.Logf("%d of %d requests reported, %d missed or merged", len(found), len(injected), missing)
	assert.Check(t, len(found)+missing == len(injected),
		"%d of %d requests reported of the thread that asked, %d missed or merged", len(found), len(injected), missing)
	l.who(found) // how long it waited for the disk is not in the delay
}

// only returns the reports of one rule.
func only(rule string, reports []*events.Outlier) []*events.Outlier {
	return slices.DeleteFunc(slices.Clone(reports), func(o *events.Outlier) bool { return o.Rule != rule })
}

// One call that becomes several requests, and several that become one: the
// reports cover what was asked for, each sector once.
func TestBlockSplitsAndMerges(t *testing.T) {
	needRoot(t)
	file := newOrdinary(t, 16<<20)
	c := watch(t, []rules.Rule{{
		Name: "mine", Track: rules.Block, Threshold: time.Nanosecond,
		When: rules.Match{PID: []uint32{uint32(os.Getpid())}, Device: []string{file.device}, Op: []rules.Op{rules.Read}},
	}, lastRequest(time.Nanosecond, rules.Match{PID: []uint32{uint32(os.Getpid())}, Op: []rules.Op{rules.Read}}), neverSlow}, &tracker.Options{TrackSelf: true})
	fd := direct(t, file.path, unix.O_RDONLY)
	buf := aligned(t, 16<<20)

	covers := func(reports []*events.Outlier, sectors uint64) {
		t.Helper()
		slices.SortFunc(reports, func(a, b *events.Outlier) int { return int(a.Block.Sector) - int(b.Block.Sector) })
		next := file.sector
		for _, o := range reports {
			assert.Check(t, o.Block.Sector == next || o.Block.Sector >= next && c.unseen() != 0,
				"a request for sector %d, want %d", o.Block.Sector, next)
			next = o.Block.Sector + uint64(o.Block.Bytes)/512
		}
		assert.Check(t, next == file.sector+sectors || c.unseen() != 0,
			"%d requests for %d sectors, want %d", len(reports), next-file.sector, sectors)
		t.Logf("%d sectors in %d requests", sectors, len(reports))
	}

	n, err := unix.Pread(fd, buf, 0)
	assert.Assert(t, err == nil && n == len(buf), "read %d bytes: %v", n, err)
	split := only("mine", c.settle())
	assert.Check(t, len(split) >= 2, "%d requests for 16 MiB", len(split))
	covers(slices.Clone(split), file.sectors)

	before := len(c.settle())
	const batch = 64
	submit(t, fd, buf, batch)
	merged := only("mine", c.since(before))
	assert.Check(t, len(merged) <= batch, "%d requests for %d blocks", len(merged), batch)
	covers(slices.Clone(merged), batch*8)
	c.noRequestsLeft()
}

// Writes that must be on the disk when they return bring flushes along: each
// write is still reported once.
func TestBlockFlushes(t *testing.T) {
	needRoot(t)
	file := newOrdinary(t, 1<<20)
	c := watch(t, []rules.Rule{
		{
			Name: "writes", Track: rules.Block, Threshold: time.Nanosecond,
			When: rules.Match{Device: []string{file.device}, Op: []rules.Op{rules.Write}},
		},
		{
			Name: "flushes", Track: rules.Block, Threshold: time.Nanosecond,
			When: rules.Match{Device: []string{file.device}, Op: []rules.Op{rules.Flush}},
		},
		lastRequest(time.Nanosecond, rules.Match{}),
		neverSlow,
	}, &tracker.Options{TrackSelf: true, Buffer: 16 << 20})
	fd := direct(t, file.path, unix.O_WRONLY|unix.O_DSYNC)
	buf := aligned(t, 4096)
	const rounds = 200
	for i := range rounds {
		n, err := unix.Pwrite(fd, buf, int64(i)*4096)
		assert.Assert(t, err == nil && n == len(buf), "wrote %d bytes: %v", n, err)
	}
	writes, flushes := map[uint64]int{}, 0
	for _, o := range c.settle() {
		switch {
		case o.Rule == "flushes":
			flushes++
			assert.Check(t, o.Block.Op == "flush", "a flush: %+v", *o.Block)
		case o.Rule == "writes" && o.Block.Sector >= file.sector && o.Block.Sector < file.sector+file.sectors:
			writes[o.Block.Sector]++
			assert.Check(t, o.Block.Bytes == 4096 && o.Task.PID == os.Getpid(), "a write: %+v by %+v", *o.Block, o.Task)
		}
	}
	t.Logf("%d writes, %d flushes", len(writes), flushes)
	for i := range uint64(rounds) {
		n := writes[file.sector+i*8]
		assert.Check(t, n == 1 || n <= 1 && c.unseen() != 0, "write %d was reported %d times", i, n)
	}
	c.noRequestsLeft()
}
