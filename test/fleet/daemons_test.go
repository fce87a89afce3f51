package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/otlp"
	"github.com/tailcam/tailcam/internal/outbox"
	"github.com/tailcam/tailcam/tracker/events"
)

// daemons are the exporters of many tailcam daemons, which send to one collector.
type daemons struct {
	list []*otlp.Exporter
	stop func()
}

// sentTo is where a host has sent a snapshot.
func sentTo(host, id string) string { return outbox.Link("s3://snapshots/fleet", host, id, nil) }

// runDaemons starts one exporter for each resource.
func runDaemons(t *testing.T, endpoint string, hosts []map[string]string) *daemons {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	d := &daemons{}
	for _, resource := range hosts {
		e, err := otlp.New(&otlp.Options{Endpoint: "http://" + endpoint, Protocol: otlp.HTTP, Logs: true,
			Version: resource["service.version"], Resource: resource,
			SnapshotURL: func(id string) string { return sentTo(resource["host.name"], id) }})
		assert.NilError(t, err)
		d.list = append(d.list, e)
		all.Go(func() { e.Run(ctx) }) // always nil
	}
	d.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(d.stop)
	return d
}

// dropped are the outliers that no collector took, and that a collector refused.
func (d *daemons) lost() (n int) {
	for _, e := range d.list {
		dropped, rejected := e.Losses()
		for _, by := range []map[string]uint64{dropped, rejected} {
			for _, count := range by {
				n += int(count)
			}
		}
	}
	return n
}

// waiting are those that wait for a collector, but for requests under way.
func (d *daemons) waiting() (n int) {
	for _, e := range d.list {
		waiting, _, _ := e.Waiting()
		n += waiting
	}
	return n
}

// kind is one kind of outlier of the simulated day.
type kind struct {
	rule, track, cause, culprit, culpritKind string
	delay                                    time.Duration
}

var kinds = []kind{
	{"wakeup", "wakeup", "preempted", "rt-hog", "task", 12 * time.Millisecond},
	{"disk", "block", "block_device", "sda", "device", 80 * time.Millisecond},
	{"wakeup", "wakeup", "softirq", "NET_RX", "softirq", 6 * time.Millisecond},
	{"offcpu", "offcpu", "lock", "postgres", "task", 30 * time.Millisecond},
}

// late is what only the newest release causes.
var late = kind{"syscall", "syscall", "lock", "compactor", "task", 150 * time.Millisecond}

// day is one of the simulated fleet.
type day struct {
	begin time.Time
	dice  *rand.Rand
	seq   uint64
}

// outlier makes one, with its verdict but for one in ten.
func (d *day) outlier(host string, k *kind, at time.Time) *events.Outlier {
	d.seq++
	delay := int64(k.delay) + d.dice.Int64N(int64(k.delay))
	start := d.seq*1e6 + uint64(d.dice.IntN(1000))
	o := &events.Outlier{
		ID: fmt.Sprintf("01J%016X", d.seq), Seq: d.seq, Time: at, Rule: k.rule, Track: k.track, Cause: events.CauseThreshold,
		DelayNS: delay, ThresholdNS: int64(k.delay), Key: map[string]uint64{"tid": 7}, StartMono: start, EndMono: start + uint64(delay),
		Task: events.Task{PID: 6, TID: int(d.seq%30000) + 1, Comm: "nginx", Cgroup: "/system.slice/nginx.service"},
		Stacks: events.Stacks{Kernel: []string{"schedule+0x2e", "schedule_hrtimeout_range_clock+0x10a", "ep_poll+0x3b1", "do_epoll_wait+0xbb",
			"__x64_sys_epoll_wait+0x6f", "do_syscall_64+0x82", "entry_SYSCALL_64_after_hwframe+0x76"}},
	}
	if d.dice.IntN(10) == 0 {
		return o
	}
	id := fmt.Sprintf("%s-%s-%06d", at.UTC().Format("20060102T150405.000000000Z"), k.rule, d.seq%1e6)
	o.Snapshot = &id
	o.Explained = &events.Explained{
		Verdict: fmt.Sprintf("%s by %s for most of it", k.cause, k.culprit), Cause: k.cause, By: k.culprit, ByKind: k.culpritKind, NS: delay * 9 / 10,
	}
	return o
}

// publish hands an outlier to a daemon as it does once the snapshot is explained.
func publish(e *otlp.Exporter, o *events.Outlier) {
	e.Publish(o)
	if o.Explained != nil {
		e.Explain([]events.Outlier{*o}, false)
	}
}
