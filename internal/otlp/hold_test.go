package otlp

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

func TestHold(t *testing.T) {
	var sent []string
	now := time.Unix(0, 0)
	h := newHold(func(o *events.Outlier) {
		s := o.ID
		if o.Partial {
			s += " partial"
		}
		if o.Completed {
			s += " again"
		}
		if o.Snapshot != nil {
			s += " " + *o.Snapshot
		}
		if o.Explained != nil {
			s += " " + o.Explained.Verdict
		}
		sent = append(sent, s)
	}, func() {}, func() time.Time { return now })
	is := func(want ...string) {
		t.Helper()
		assert.Check(t, is.DeepEqual(want, sent))
		sent = nil
	}
	plain := func(id string) *events.Outlier { return &events.Outlier{ID: id} }
	with := func(id string) *events.Outlier { return &events.Outlier{ID: id, Snapshot: new("snap")} }
	explained := func(id string) []events.Outlier {
		o := with(id)
		o.Explained = &events.Explained{Verdict: "because"}
		return []events.Outlier{*o}
	}
	after := func(d time.Duration) {
		now = now.Add(d)
		h.expire(false)
	}

	h.publish(plain("1"))
	is("1") // nothing more is to come

	p := plain("2")
	p.Partial = true
	h.publish(p)
	is()
	c := plain("2")
	c.Completed = true
	h.complete(c)
	is("2")

	h.publish(with("3"))
	after(verdictTime / 2)
	is()
	h.explain(explained("3"), false)
	is("3 snap because")

	h.publish(with("4"))
	h.explain([]events.Outlier{*with("4")}, true)
	is("4") // the snapshot failed

	h.publish(with("5"))
	after(verdictTime)
	is("5 snap")
	h.explain(explained("5"), false)
	after(verdictTime)
	is("5 again snap because")

	h.explain(explained("6"), false) // before it is published
	h.publish(with("6"))
	is("6 snap because")
	after(verdictTime)
	is()

	late := *p
	late.ID = "7"
	h.publish(&late)
	after(verdictTime)
	is("7 partial")
	c = plain("7")
	c.Completed = true
	h.complete(c)
	is("7 again")

	for i := range maxHeld + 2 {
		h.publish(with(fmt.Sprint("n", i)))
	}
	is("n0 snap", "n1 snap")
	h.expire(true)
	assert.Check(t, len(sent) == maxHeld && h.len() == 0 && len(h.order) == 0)
}

func TestQueue(t *testing.T) {
	q := newQueue(4, &ruleCounts{})
	push := func(rule, id string) { q.push(item{Outlier: &events.Outlier{Rule: rule, ID: id}}) }
	push("rare", "r1")
	for i := range 10 {
		push("noisy", fmt.Sprint("n", i))
	}
	push("other", "o1")
	var got []string
	for it, ok := q.pop(); ok; it, ok = q.pop() {
		got = append(got, it.ID)
	}
	assert.Check(t, is.DeepEqual([]string{"n8", "o1", "r1", "n9"}, got)) // the oldest of the noisy rule went, and each has its turn
	assert.Check(t, is.DeepEqual(map[string]uint64{"noisy": 8}, q.dropped.all()))
	push("noisy", "n10")
	q.dropAll()
	assert.Check(t, q.len() == 0 && q.dropped.all()["noisy"] == 9)
}
