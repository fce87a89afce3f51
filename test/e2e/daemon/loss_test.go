package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
)

// TestRingBufferFull: the daemon stands still while more outliers come than
// the ring buffer holds. What it does not get is counted, exactly.
func TestRingBufferFull(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("a", uid, "snapshot: false"), napRule("b", uid, "stacks: []", "snapshot: false")),
		"--outliers-buffer", "64KiB")
	n := len(naps(t, uid, 5, 2*time.Millisecond, 1)) // before
	d.pause()
	n += len(naps(t, uid, 400, 2*time.Millisecond, 8))
	d.resume()
	n += len(naps(t, uid, 5, 2*time.Millisecond, 1)) // after; there is space again, once it has read
	var lost, received uint64
	for _, name := range []string{"a", "b"} {
		s := d.status()
		r := s.rule(name)
		assert.Check(t, r.Outliers+r.Lost == uint64(n),
			"rule %s: %d received and %d lost are not %d", name, r.Outliers, r.Lost, n)
		sum := s.loss("ring_buffer_full", name) + s.loss("outlier_dropped", name)
		assert.Check(t, sum == r.Lost, "rule %s: the losses tell of %d, the rule of %d", name, sum, r.Lost)
		settled(t, d, name, int(r.Outliers))
		lost, received = lost+r.Lost, received+r.Outliers
	}
	assert.Check(t, lost != 0, "nothing was lost: this test proves nothing")
	t.Logf("%d received, %d lost", received, lost)
}

// TestReaderStopped: a client that does not read loses outliers, the daemon
// does not, and both client and status know how many.
func TestReaderStopped(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: []", "snapshot: false")), "--outliers-rate", "0", "--outliers-buffer", "64MiB")
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	client := api.NewClient(d.socket)
	defer client.Close()
	stream, err := client.Events(ctx, &api.EventsOptions{Follow: true})
	assert.NilError(t, err)
	defer stream.Close() // only read
	const n = 4000
	naps(t, uid, n, 2*time.Millisecond, 16)
	eventually(t, "the reader falls behind", func() bool {
		s := d.status()
		r := s.rule("nap")
		assert.Assert(t, r.Outliers == n && r.Lost == 0,
			"%d received and %d lost are not %d", r.Outliers, r.Lost, n)
		return s.loss("stream_lagged", "") > 0 && len(d.events("nap")) == 1000
	})
	got, lost := uint64(0), uint64(0)
	for got+lost < n {
		e, err := stream.Next()
		assert.NilError(t, err, "after %d outliers and %d lost", got, lost)
		lost += e.Lost
		if e.Outlier != nil && !e.Outlier.Completed {
			got++
		}
	}
	s := d.status()
	assert.Check(t, got+lost == n && lost == s.loss("stream_lagged", ""),
		"%d received and %d lost of %d; status tells of %d", got, lost, n, s.loss("stream_lagged", ""))
	// Now that it reads again, it misses nothing more.
	naps(t, uid, 10, 2*time.Millisecond, 1)
	for i := range 10 {
		e, err := stream.Next()
		for err == nil && e.Outlier != nil && e.Outlier.Completed {
			e, err = stream.Next()
		}
		assert.Assert(t, err == nil && e.Outlier != nil, "outlier %d after it: %+v, %v", i, e, err)
	}
	t.Logf("%d received, %d lost", got, lost)
}

// TestActionQueueFull: actions that find no place in the queue are counted.
func TestActionQueueFull(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	ran := filepath.Join(h.dir, "ran")
	slow := script(t, h, "slow", "echo x >>"+ran+"\nsleep 0.3\n")
	writeFile(t, h.rules, rulesFile(napRule("nap", uid, "snapshot: false",
		"actions: [{run: "+slow+", on: outlier, user: root}, {run: "+slow+", on: outlier, user: root}]")), 0o644)
	d := h.start(t, "--actions-queue", "2", "--actions-concurrency", "1")
	const n = 20
	naps(t, uid, n, 5*time.Millisecond, 4)
	settled(t, d, "nap", n)
	skipped := uint64(0)
	eventually(t, "all actions have run or were skipped", func() bool {
		s := d.status()
		skipped = s.loss("action_skipped", "nap")
		r := s.rule("nap")
		assert.Check(t, r.ActionsSkipped == skipped,
			"the rule tells of %d skipped actions, the losses of %d", r.ActionsSkipped, skipped)
		text, err := os.ReadFile(ran)
		assert.Assert(t, err == nil || os.IsNotExist(err), "%v", err)
		count := uint64(strings.Count(string(text), "x\n"))
		assert.Assert(t, count+skipped <= 2*n, "%d ran and %d were skipped of %d", count, skipped, 2*n)
		return count+skipped == 2*n
	})
	assert.Check(t, skipped != 0, "nothing was skipped: this test proves nothing")
	t.Logf("%d of %d skipped", skipped, 2*n)
}

// script writes an executable shell script that every user may run.
func script(t *testing.T, h *home, name, text string) string {
	t.Helper()
	return writeFile(t, filepath.Join(h.dir, name), "#!/bin/sh\n"+text, 0o755)
}
