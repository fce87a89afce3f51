package tracker

import (
	"fmt"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// RuleCounters are what a rule has done since New.
type RuleCounters struct {
	Seen       uint64 // pairs that its tracker completed
	Outliers   uint64
	WorstNS    int64
	RecordNS   int64  // ratchet: only what is worse fires
	Suppressed uint64 // snapshots that the limiter refused
	RingFull   uint64 // outliers lost: the ring buffer was full
	Undecided  uint64 // outliers that the daemon had to decide
	Limited    uint64 // outliers that the rate limit refused
	HeldBack   uint64 // delays past an adaptive threshold that did not fire: too many at once
}

func (a RuleCounters) plus(b RuleCounters) RuleCounters {
	return RuleCounters{
		Seen: a.Seen + b.Seen, Outliers: a.Outliers + b.Outliers, WorstNS: max(a.WorstNS, b.WorstNS),
		Suppressed: a.Suppressed + b.Suppressed, RingFull: a.RingFull + b.RingFull, Undecided: a.Undecided + b.Undecided,
		HeldBack: a.HeldBack + b.HeldBack, RecordNS: a.RecordNS, Limited: a.Limited + b.Limited,
	}
}

// TrackCounters are what one tracker has seen and lost since New.
type TrackCounters struct {
	Seen      uint64 // pairs completed
	TableFull uint64 // entries lost: no free place in the pending table's window
	Replaced  uint64 // entries that met an older one of their key
}

// Counters is a consistent enough account: each number is read once.
type Counters struct {
	Rules         map[string]RuleCounters
	Trackers      map[rules.Track]TrackCounters
	CPUs          []CPUCounters
	Reclaimed     uint64            // pending work whose task died
	Missed        map[string]uint64 // runs that a program skipped because it interrupted itself, by program
	Unseen        uint64            // context switches and wake-ups that the kernel did not report
	Freezes       uint64            // of the recorder
	Stale         uint64            // outliers that were read so late that their rules had been replaced too often
	HistogramLost uint64            // delays of CPUs that came after the histograms were made
	Chains        ChainCounters
	Spans         SpanCounters
	Messages      uint64 // user stacks, progress and questions that found no room in the ring buffer
}

// Counters reads all counters of the kernel side.
func (t *Tracker) Counters() (*Counters, error) {
	c := &Counters{
		Rules:    map[string]RuleCounters{},
		Trackers: map[rules.Track]TrackCounters{},
		Missed:   map[string]uint64{},
		CPUs:     t.Recorded(),
	}
	err := t.eachCPU(func(_ int, s *bpf.TailcamCpuState) {
		c.Reclaimed += s.Reclaimed
		c.Unseen += s.Unseen
		c.HistogramLost += s.HistogramLost
		c.Chains.add(s)
		c.Spans.add(s)
		for n, track := range rules.Tracks {
			k := c.Trackers[track]
			k.Seen += s.Seen[n]
			k.TableFull += s.TableFull[n]
			k.Replaced += s.Replaced[n]
			c.Trackers[track] = k
		}
	})
	if err != nil {
		return nil, err
	}
	for _, a := range t.attachments() {
		// Programs that interrupt themselves are skipped by the kernel (5.12+ counts them).
		if stats, err := a.prog.Stats(); err == nil && stats.RecursionMisses > 0 {
			c.Missed[a.hook.program] = stats.RecursionMisses
		}
	}
	if c.Freezes, err = t.Freezes(); err != nil {
		return nil, err
	}
	if c.Messages, err = t.messagesRefused(); err != nil {
		return nil, fmt.Errorf("read the use of the ring buffer: %w", err)
	}
	return c, t.ruleCounters(c)
}

func (t *Tracker) eachCPU(visit func(cpu int, s *bpf.TailcamCpuState)) error {
	m := t.objects.Maps["cpus"]
	for i := range m.MaxEntries() {
		var s bpf.TailcamCpuState
		if err := m.Lookup(i, &s); err != nil {
			return fmt.Errorf("read counters of CPU %d: %w", i, err)
		}
		visit(int(i), &s)
	}
	return nil
}

// Trackers lists those that run, in the order of rules.Tracks.
func (t *Tracker) Trackers() []rules.Track {
	var list []rules.Track
	for _, track := range rules.Tracks {
		if t.plan.tracks[track] {
			list = append(list, track)
		}
	}
	return list
}

// Programs lists what is attached: BPF program and hook.
func (t *Tracker) Programs() [][2]string {
	var list [][2]string
	for _, a := range t.attachments() {
		list = append(list, [2]string{a.hook.program, a.name()})
	}
	return list
}

func (t *Tracker) ruleCounters(c *Counters) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Stale = t.stale
	for i, r := range t.live.source {
		k, err := t.counted(t.live.rules[i].Id)
		if err != nil {
			return fmt.Errorf("read counters of rule %s: %w", r.Name, err)
		}
		k = k.plus(t.past[r.Name])
		k.Seen = c.Trackers[r.Track].Seen
		c.Rules[r.Name] = k
	}
	return nil
}

// counted reads the state of the rule with an id.
func (t *Tracker) counted(id uint8) (RuleCounters, error) {
	var s bpf.TailcamRuleState
	if err := t.objects.Maps["rule_states"].Lookup(uint32(id), &s); err != nil {
		return RuleCounters{}, err
	}
	return RuleCounters{
		Outliers: s.Outliers, WorstNS: int64(s.WorstNs), RecordNS: int64(s.RecordNs), Suppressed: s.Suppressed,
		RingFull: s.RingFull, Undecided: s.Undecided, HeldBack: s.HeldBack, Limited: s.Limited,
	}, nil
}

// clearState gives an id to another rule: what the former one has counted is
// kept, and the new one begins with nothing. Under t.mu.
func (t *Tracker) clearState(n newID) error {
	if n.former != "" {
		k, err := t.counted(n.id)
		if err != nil {
			return fmt.Errorf("read counters of rule %s: %w", n.former, err)
		}
		t.past[n.former] = t.past[n.former].plus(k)
	}
	return t.objects.Maps["rule_states"].Put(uint32(n.id), bpf.TailcamRuleState{})
}
