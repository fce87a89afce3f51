package explain

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestFullQueue: who waits until a disk's queue takes another request is woken by the end of
// somebody's, who is the one in its way; the disk may be as fast as it can be.
func TestFullQueue(t *testing.T) {
	functions := map[uint64]string{
		301: "blk_mq_get_tag+0x1", 302: "rq_qos_wait+0x1", 303: "wbt_wait+0x2", 304: "blkcg_iolatency_throttle+0x3", 305: "submit_bio_wait+0x1",
	}
	settings := map[string]string{"vda/queue/nr_requests": "4", "vda/queue/wbt_lat_usec": "75000"}
	for _, c := range []struct {
		stack           []uint64
		owner           int // of the request that ends
		part, advice    string
		says, notAdvice string
	}{
		{[]uint64{301, 305}, other, "block_queue other 2 queue_full 9990000", "Limit what other 2 writes or reads", "the queue of vda was full", "health"},
		{[]uint64{301, 305}, other, "block_queue other 2 queue_full 9990000", "raise nr_requests of vda (now 4)", "in blk_mq_get_tag", "wbt"},
		{[]uint64{302, 303}, other, "block_queue other 2 wbt 9990000", "raise wbt_lat_usec of vda (now 75000)", "writeback throttling of vda", "nr_requests"},
		{[]uint64{302, 304}, other, "block_queue other 2 io_latency 9990000", "check io.latency of the cgroups that use vda", "io.latency of others", "nr_requests"},
		{[]uint64{302}, other, "block_queue other 2 queue_full 9990000", "nr_requests", "was full", "wbt"},
		{[]uint64{301}, victim, "block_queue victim 1 queue_full 9990000", "nr_requests", "was full", "health"}, // its own, submitted before
		{[]uint64{301}, 0, "block_queue vda queue_full 9990000", "Raise nr_requests of vda (now 4)", "was full", "Limit"},
		// Elsewhere, the request that ends is what it waited for.
		{[]uint64{305}, victim, "block_device vda  9990000", "it is the host's", "", "nr_requests"},
	} {
		s := &script{}
		s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0))
		for i := range 3 {
			s.add(600, trace.BlockIssue, 1, c.owner, trace.Block{RQ: uint64(7 + i), Sector: uint64(8 << i), Dev: 1, Bytes: 8 << 20, Flags: 1})
		}
		s.swap(1010, 0, victim, 0, trace.Switch{PrevState: 2, Call: 74, IOWait: true}).
			add(11000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(11000, trace.BlockComplete, 0, 0, trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 8 << 20, Flags: 1}).
			wake(11000, 0, 0, victim, 0).add(11001, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: 4}).swap(11001, 0, 0, victim, sleeps(0)).
			add(11001, trace.WaitStack, 0, victim, stackOf(victim, false, c.stack...))
		names := caseNames
		names.Function = func(a uint64) string { return functions[a] }
		names.Setting = func(name string) string { return settings[name] }
		names.Limit = func(string, string) string { return "" }
		r := explained(t, &s.list, []Outlier{{Rule: "r", Track: "syscall", TID: victim, Start: 1_000_000, End: 11_000_000, Syscall: "fsync"}}, names).Outliers[0]
		b := &r.Blame
		got := fmt.Sprintf("%s %s %s %d", b.Cause, b.By.Name, b.Wait, b.NS)
		assert.Check(t, got == c.part, "%q, want %q: %s", got, c.part, r.Verdict)
		assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
		assert.Check(t, strings.Contains(r.Advice, c.advice) && !strings.Contains(r.Advice, c.notAdvice), "%s", r.Advice)
	}
}
