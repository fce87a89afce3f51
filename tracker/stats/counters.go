// Package stats reads the counters and histograms of the kernel side.
package stats

import (
	"fmt"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
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
	CgroupGone uint64 // outliers of cgroups that were removed before the rule's condition could be decided
}

// Plus adds up two accounts of one rule.
func (a RuleCounters) Plus(b RuleCounters) RuleCounters {
	return RuleCounters{
		Seen: a.Seen + b.Seen, Outliers: a.Outliers + b.Outliers, WorstNS: max(a.WorstNS, b.WorstNS),
		Suppressed: a.Suppressed + b.Suppressed, RingFull: a.RingFull + b.RingFull, Undecided: a.Undecided + b.Undecided,
		HeldBack: a.HeldBack + b.HeldBack, RecordNS: a.RecordNS, Limited: a.Limited + b.Limited, CgroupGone: a.CgroupGone + b.CgroupGone,
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
	CPUs          []kernel.CPUCounters
	Reclaimed     uint64 // pending work whose task died
	Missed        kernel.Missed
	Unseen        uint64            // context switches and wake-ups that the kernel did not report
	RunBroken     uint64            // stacks of group run that could not be told from those of the interrupt
	Freezes       uint64            // of the recorder
	Stale         uint64            // outliers that were read so late that their rules had been replaced too often
	HistogramLost uint64            // delays of CPUs that came after the histograms were made
	Lost          map[string]uint64 // what only some trackers can lose, by cause (kinds.Kind.Losses)
	Messages      uint64            // copies of user stacks, progress and questions that found no room in the ring buffer
}

// Read reads all counters but those of rules.
func Read(o *kernel.Objects) (*Counters, error) {
	c := &Counters{
		Rules:    map[string]RuleCounters{},
		Trackers: map[rules.Track]TrackCounters{},
		Missed:   o.Missed(),
		Lost:     map[string]uint64{},
		CPUs:     o.Recorded(),
	}
	err := o.EachCPU(func(s *abi.CpuState) {
		c.Reclaimed += s.Reclaimed
		c.Unseen += s.Unseen
		c.RunBroken += s.Runs.Broken
		c.HistogramLost += s.HistogramLost
		for n := range kinds.All {
			kind := &kinds.All[n]
			k := c.Trackers[kind.Track]
			k.Seen += s.Seen[n]
			k.TableFull += s.TableFull[n]
			k.Replaced += s.Replaced[n]
			c.Trackers[kind.Track] = k
			for _, l := range kind.Losses {
				c.Lost[l.Cause] += l.Count(s)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if c.Freezes, err = o.Freezes(); err != nil {
		return nil, err
	}
	if c.Messages, err = messagesRefused(o); err != nil {
		return nil, fmt.Errorf("read the use of the ring buffer: %w", err)
	}
	return c, nil
}

// Rule reads what the rule with an id has done.
func Rule(o *kernel.Objects, id uint8) (RuleCounters, error) {
	var s abi.RuleState
	if err := o.Maps().RuleStates.Lookup(uint32(id), &s); err != nil {
		return RuleCounters{}, err
	}
	return RuleCounters{
		Outliers: s.Outliers, WorstNS: int64(s.WorstNs), RecordNS: int64(s.RecordNs), Suppressed: s.Suppressed,
		RingFull: s.RingFull, Undecided: s.Undecided, HeldBack: s.HeldBack, Limited: s.Limited,
	}, nil
}

// messagesRefused counts what found no room in the ring buffer and belongs to
// no rule: copies of user stacks, progress, questions.
func messagesRefused(o *kernel.Objects) (n uint64, err error) {
	const size, refused = int(unsafe.Sizeof(abi.RingUse{})), int(unsafe.Offsetof(abi.RingUse{}.Refused))
	for owner := abi.MaxRules; owner < abi.RingOwners; owner++ {
		one, err := kernel.ReadWord(o.Memory().RingUses, owner*size+refused)
		if err != nil {
			return 0, err
		}
		n += one
	}
	return n, nil
}

// Pairs reads the counters of every declared pair, by the name of its rule.
// pairs are their numbers.
func Pairs(o *kernel.Objects, pairs map[string]uint32) (map[string]abi.PairState, error) {
	type words [unsafe.Sizeof(abi.PairState{}) / 8]uint64 // each a count
	all := map[string]abi.PairState{}
	for name, n := range pairs {
		var sum abi.PairState
		for i := n; i < o.Maps().PairStates.MaxEntries(); i += abi.MaxPairs {
			var one abi.PairState
			if err := o.Maps().PairStates.Lookup(i, &one); err != nil {
				return nil, fmt.Errorf("read counters of pair %s: %w", name, err)
			}
			for w, v := range (*words)(unsafe.Pointer(&one)) {
				(*words)(unsafe.Pointer(&sum))[w] += v
			}
		}
		all[name] = sum
	}
	return all, nil
}
