package accuracy

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tailcam/tailcam/test/support/slowirq"
)

// A sample stands for a tick, of which there are 100 a second at least; the first and
// the last one of a softirq may be off.
const ticks = 2 * 10 * time.Millisecond

// TestSampledSoftirqs: where softirqs have no hooks, as on a machine full of packets, what
// they took is known from samples, and who was woken by a packet from the kernel's state.
func TestSampledSoftirqs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs into the kernel")
	}
	alone(t)
	shared := &resources{t: t}
	list := slices.DeleteFunc(scenarios(shared), func(s scenario) bool {
		return !slices.Contains([]string{"rt-hog", "softirq", "softirq-storm", "local-server", "network", "slow-disk"}, s.name)
	})
	c := watch(t, rules(list), "--recorder-events", "sched,timer,block,workqueue,process,reclaim,lock,throttle")
	for i := range list {
		s := &list[i]
		switch s.name {
		case "softirq":
			// Not where hooks would be, but where its packets are dealt with.
			s.prepare = spins("netif_receive_skb", slowirq.Filter{Arg: slowirq.Any}, 40*time.Millisecond, true)
			fallthrough
		case "softirq-storm":
			s.want.within, s.want.says = ticks, "approximate"
		}
		t.Run(s.name, func(t *testing.T) {
			r := row{scenario: s.name}
			s.score(t, c, "", &r)
			for _, w := range r.wrong {
				t.Error(w)
			}
			t.Logf("%v of %v: %s", r.said, r.is, r.verdict)
		})
	}
}
