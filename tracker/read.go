package tracker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// First two bytes of what comes through the ring buffer (bpf/abi/abi.h).
const (
	typeOutlier   = 0x7443
	typeUserStack = 0x7444
	typeQuestion  = 0x7446
	typeProgress  = 0x7445
	typeGrow      = 0x7447
)

// stackGrace is how long an outlier waits for the user stack that the kernel
// side owes it: the task must run on to the end of its system call.
const stackGrace = 20 * time.Millisecond

// ErrSample is what Read returns of a sample that it does not understand. The
// next call goes on with the next one.
var ErrSample = errors.New("unusable sample from the kernel side")

// Read returns the next outlier. It blocks until there is one, and returns
// os.ErrClosed after Close. Outliers come in the order of their exits per CPU;
// one that waits for a user stack may come up to 20 ms late.
func (t *Tracker) Read() (*Outlier, error) {
	for {
		if o := t.owed.next(time.Now()); o != nil {
			return o, nil
		}
		t.reader.SetDeadline(t.owed.deadline())
		rec, err := t.reader.Read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case errors.Is(err, ringbuf.ErrClosed):
			return nil, os.ErrClosed
		case err != nil:
			return nil, fmt.Errorf("read outliers: %w", err)
		}
		if len(rec.RawSample) >= 2 {
			if err := t.acknowledge(rec.RawSample); err != nil {
				return nil, fmt.Errorf("read outliers: %w", err)
			}
		}
		o, err := t.receive(rec.RawSample)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSample, err)
		}
		if o != nil {
			return o, nil
		}
	}
}

// receive handles one sample; nil: nothing to hand out yet.
func (t *Tracker) receive(sample []byte) (*Outlier, error) {
	if len(sample) < 2 {
		return nil, fmt.Errorf("outlier of %d bytes", len(sample))
	}
	switch kind := binary.LittleEndian.Uint16(sample); kind {
	case typeUserStack:
		var u bpf.TailcamUserStack
		if _, err := binary.Decode(sample, binary.LittleEndian, &u); err != nil {
			return nil, fmt.Errorf("decode user stack: %w", err)
		}
		t.owed.settle(u.Tid, u.TimeNs, frames(u.User[:], u.Frames))
		return nil, nil
	case typeQuestion:
		var q bpf.TailcamQuestion
		if _, err := binary.Decode(sample, binary.LittleEndian, &q); err != nil {
			return nil, fmt.Errorf("decode question: %w", err)
		}
		t.answer(&q)
		return nil, nil
	case typeGrow:
		var g bpf.TailcamGrowMessage
		if _, err := binary.Decode(sample, binary.LittleEndian, &g); err != nil {
			return nil, fmt.Errorf("decode the wish to grow: %w", err)
		}
		t.grow(int(g.Table))
		return nil, nil
	case typeProgress:
		var p bpf.TailcamProgress
		if _, err := binary.Decode(sample, binary.LittleEndian, &p); err != nil {
			return nil, fmt.Errorf("decode progress: %w", err)
		}
		t.progress.keep(&p)
		return nil, nil
	case typeOutlier:
		var raw bpf.TailcamOutlier
		if _, err := binary.Decode(sample, binary.LittleEndian, &raw); err != nil {
			return nil, fmt.Errorf("decode outlier: %w", err)
		}
		o := t.decide(&raw)
		t.progress.give(o)
		t.takeStack(o)
		if o == nil && raw.Flags&flagSnapshot != 0 && t.opts.Unwanted != nil {
			t.opts.Unwanted()
		}
		if o != nil && raw.Flags&flagUserLater != 0 {
			t.owed.add(o, time.Now().Add(stackGrace))
			return nil, nil
		}
		return o, nil
	default:
		return nil, fmt.Errorf("sample of unknown type %#x from the kernel side", kind)
	}
}

// generation finds the rules of a generation; nil: it is too old. Under t.mu.
func (t *Tracker) generation(number uint32) *compiled {
	if t.live != nil && t.live.generation == number {
		return t.live
	}
	for _, c := range t.old {
		if c.generation == number {
			return c
		}
	}
	return nil
}

// decide finds the rule, and for what the kernel side could not decide, asks
// the rule itself and teaches the kernel side the answer. nil: not wanted.
func (t *Tracker) decide(raw *bpf.TailcamOutlier) *Outlier {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.generation(raw.Generation)
	at := int(raw.Rule) % maxRules
	if c == nil || at >= len(c.source) {
		t.stale++ // of rules that were replaced too long ago
		return nil
	}
	rule := c.source[at]
	o := newOutlier(raw, rule)
	if rule.Track == rules.Pair {
		o.addPair(raw, t.pairs.labels[rule.Name])
	}
	question := o.Cause == CauseTimeout // asked only to be taught: it fires at the next tick
	if t.opts.Host != nil {
		// A cgroup that is gone by now stays unnamed: its id is no name.
		o.Task.Cgroup, _ = t.opts.Host.CgroupPath(raw.CgroupId)
	}
	if raw.Flags&flagUndecided == 0 {
		return o
	}
	if raw.Undecided&(matchCgroup|matchNotCgroup) != 0 {
		// Without an answer the same question comes again; nothing is lost.
		_ = t.teach(c, verdictCgroup, raw.CgroupId, verdict(c.cgroups, rules.CgroupMatch, o.Task.Cgroup))
	}
	if raw.Undecided&(matchDevice|matchNotDevice) != 0 {
		_ = t.teach(c, verdictDevice, uint64(raw.Dev), verdict(c.devices, rules.GlobMatch, text(raw.Disk[:])))
	}
	if raw.Undecided&(matchHandler|matchNotHandler) != 0 {
		x := irqExtra(raw)
		name := text(x.Name[:])
		_ = t.teach(c, verdictHandler, handlerHash(name), verdict(c.handlers, rules.GlobMatch, name))
	}
	if question {
		return nil
	}
	return t.judge(o, raw, rule, c.rules[at].Id)
}

// judge applies a rule in full to an outlier that the kernel side left open.
func (t *Tracker) judge(o *Outlier, raw *bpf.TailcamOutlier, rule *rules.Rule, id uint8) *Outlier {
	facts := factsOf(raw, o)
	if !rule.When.Matches(&facts) {
		return nil
	}
	limits := rule.LimitsFor(&facts)
	limit := limits.Threshold
	if o.Cause != CauseThreshold {
		limit = limits.Timeout
	}
	if limit == 0 || o.DelayNS < limit.Nanoseconds() {
		return nil
	}
	if rule.Ratchet && o.Cause == CauseThreshold && !t.claimRecord(id, o.DelayNS) {
		return nil
	}
	o.ThresholdNS = limit.Nanoseconds()
	// Decided here, so it is counted here.
	past := t.past[rule.Name]
	past.Outliers++
	past.WorstNS = max(past.WorstNS, o.DelayNS)
	t.past[rule.Name] = past
	return o
}

// owed holds outliers that wait for their user stack.
type owed struct {
	waiting []owedOutlier
}

type owedOutlier struct {
	*Outlier
	until time.Time
}

func (w *owed) add(o *Outlier, until time.Time) {
	w.waiting = append(w.waiting, owedOutlier{o, until})
}

// settle gives a stack to every outlier it belongs to, and ends their wait.
func (w *owed) settle(tid uint32, exit uint64, stack []uint64) {
	for i := range w.waiting {
		o := &w.waiting[i]
		if o.Task.TID == int(tid) && o.EndMono == exit {
			if len(stack) > 0 {
				o.Raw.User = stack
			}
			o.until = time.Time{}
		}
	}
}

// next hands out the first outlier whose wait has ended.
func (w *owed) next(now time.Time) *Outlier {
	for i, o := range w.waiting {
		if now.After(o.until) {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			return o.Outlier
		}
	}
	return nil
}

// deadline is when the next wait ends; zero: none.
func (w *owed) deadline() time.Time {
	var first time.Time
	for _, o := range w.waiting {
		if first.IsZero() || o.until.Before(first) {
			first = o.until
		}
	}
	return first
}
