package api

import (
	"os"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"gotest.tools/v3/assert"
)

// TestTriggerRates: each user has a rate, root one of its own, and those without one share one;
// none takes anything of another's.
func TestTriggerRates(t *testing.T) {
	never := func(l *rate.Limiter) { l.SetLimit(rate.Every(time.Hour)) } // as the test takes time
	r := newRates()
	never(r.root)
	me := uint32(os.Geteuid())
	for uid, of := range map[uint32]triggerRate{me: rootTriggers, me + 1: userTriggers, me + 2: userTriggers} {
		for n := range of.burst {
			_, ok := r.allow(uid)
			assert.Assert(t, ok, "user %d, trigger %d", uid, n)
			if l, known := r.users.Load(uid); known {
				never(l)
			}
		}
		got, ok := r.allow(uid)
		assert.Check(t, !ok && got == of, "user %d", uid)
	}
	assert.Check(t, r.refused.Value() == 3, "%d refused", r.refused.Value())
	for uid := range uint32(2 * maxLimiters) {
		r.allow(me + 10 + uid)
	}
	assert.Check(t, r.users.Size() <= maxLimiters+1, "%d limiters", r.users.Size())
}

// TestTriggerOften: also root is refused, and told why.
func TestTriggerOften(t *testing.T) {
	backend := newFake()
	backend.took = make(chan string, 10*rootTriggers.burst)
	s := newServer(backend, nil)
	s.triggers.root.SetLimit(rate.Every(time.Hour))
	socket, err := Listen(&ListenOptions{Path: socketPath(t)})
	assert.NilError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.serve(t.Context(), socket, s.handler()) }()
	t.Cleanup(func() { assert.Check(t, socket.Close()) })
	c := NewClient(socket.Path)
	defer c.Close()
	for range rootTriggers.burst {
		_, err := c.Trigger(t.Context(), &TriggerRequest{NoWait: true})
		assert.NilError(t, err)
	}
	_, err = c.Trigger(t.Context(), &TriggerRequest{NoWait: true})
	assert.Error(t, err, "too many triggers: root has 500, and one more every 20ms")
	assert.Check(t, len(backend.took) == rootTriggers.burst && s.losses()[2].Count == 1)
}
