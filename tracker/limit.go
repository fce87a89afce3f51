package tracker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

// Owners of bytes in the ring buffer beside the rules (bpf/abi/outlier.h).
const (
	ringStacks   = maxRules
	ringProgress = maxRules + 1
	ringMessages = maxRules + 2
	ringOwners   = maxRules + 3
	ringHeader   = 8
)

// limits is what keeps one rule from taking what others need.
type limits struct {
	uses   *ebpf.Memory // of the ring buffer; read is written by Read alone
	read   [ringOwners]uint64
	states *ebpf.Memory
	ring   uint64          // bytes
	held   map[string]bool // rules that are paused by Hold; under Tracker.mu
}

// openLimits maps what both sides count.
func (t *Tracker) openLimits() (err error) {
	t.limits.ring = uint64(t.objects.Maps["outliers"].MaxEntries())
	if t.limits.uses, err = t.objects.Maps["ring_uses"].Memory(); err != nil {
		return fmt.Errorf("map the use of the outliers' ring buffer: %w", err)
	}
	if t.limits.states, err = t.objects.Maps["rule_states"].Memory(); err != nil {
		return fmt.Errorf("map the states of rules: %w", err)
	}
	return nil
}

// rateKnobs sets the rate limit: at most burst outliers of a rule at once.
func (t *Tracker) rateKnobs(knobs map[string]any) {
	knobs["outlier_each_ns"], knobs["outlier_room_ns"] = t.rate()
}

// rate is the time of one outlier, and of a burst; 0: no limit.
func (t *Tracker) rate() (each, room uint64) {
	if t.opts.Rate <= 0 {
		return 0, 0
	}
	each = uint64(time.Second) / uint64(t.opts.Rate)
	return each, each * uint64(max(t.opts.Burst, 1))
}

// writeShares divides the ring buffer: half of it belongs to all, the other
// half is divided among the rules and the messages that belong to none.
func (t *Tracker) writeShares(n int) error {
	const record = uint64(unsafe.Sizeof(bpf.TailcamOutlier{})) + ringHeader
	half := t.limits.ring / 2
	// As many CPUs may look at what is free at once, and all find it so.
	slack := min(uint64(runtime.NumCPU())*record, half/2)
	share := half / uint64(n+ringOwners-maxRules)
	v := t.objects.Variables
	return errors.Join(v["ring_share"].Set(share), v["ring_common"].Set(half-slack))
}

// acknowledge gives back the bytes of a sample that has been read.
func (t *Tracker) acknowledge(sample []byte) error {
	owner := ringMessages
	switch binary.LittleEndian.Uint16(sample) {
	case typeOutlier:
		const at = unsafe.Offsetof(bpf.TailcamOutlier{}.Owner)
		if len(sample) >= int(at)+4 {
			owner = int(binary.LittleEndian.Uint32(sample[at:])) % maxRules
		}
	case typeUserStack:
		owner = ringStacks
	case typeProgress:
		owner = ringProgress
	}
	t.limits.read[owner] += uint64(len(sample)) + ringHeader
	const size, at = int(unsafe.Sizeof(bpf.TailcamRingUse{})), int(unsafe.Offsetof(bpf.TailcamRingUse{}.Read))
	return writeWord(t.limits.uses, owner*size+at, t.limits.read[owner])
}

// messagesRefused counts what found no room in the ring buffer and belongs to
// no rule: user stacks, progress, questions.
func (t *Tracker) messagesRefused() (n uint64, err error) {
	const size, at = int(unsafe.Sizeof(bpf.TailcamRingUse{})), int(unsafe.Offsetof(bpf.TailcamRingUse{}.Refused))
	for owner := maxRules; owner < ringOwners; owner++ {
		one, err := readWord(t.limits.uses, owner*size+at)
		if err != nil {
			return 0, err
		}
		n += one
	}
	return n, nil
}

func readWord(m *ebpf.Memory, at int) (uint64, error) {
	var word [8]byte
	_, err := m.ReadAt(word[:], int64(at))
	return binary.LittleEndian.Uint64(word[:]), err
}

// Pressure is what the rate limit has done to a rule since New.
type Pressure struct {
	Limited  uint64 // outliers that it refused
	Outliers uint64 // that it let through
}

// Pressures reads that of every rule that runs, by name, without a system call:
// it may be asked for often.
func (t *Tracker) Pressures() (map[string]Pressure, error) {
	const size = int(unsafe.Sizeof(bpf.TailcamRuleState{}))
	const limited, outliers = int(unsafe.Offsetof(bpf.TailcamRuleState{}.Limited)), int(unsafe.Offsetof(bpf.TailcamRuleState{}.Outliers))
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make(map[string]Pressure, len(t.live.source))
	for i, r := range t.live.source {
		id := int(t.live.rules[i].Id)
		n, err := readWord(t.limits.states, id*size+limited)
		m, more := readWord(t.limits.states, id*size+outliers)
		if err = errors.Join(err, more); err != nil {
			return nil, fmt.Errorf("read the state of rule %s: %w", r.Name, err)
		}
		list[r.Name] = Pressure{Limited: n, Outliers: m}
	}
	return list, nil
}

// Hold pauses the rules with these names, and no others that it paused before,
// beside those whose Paused is set. It holds them over Swap, too.
// Pausing takes effect at once, and in place: their delays end at the floor.
func (t *Tracker) Hold(names []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := make(map[string]bool, len(names))
	for _, n := range names {
		held[n] = true
	}
	before := t.limits.held
	resumed := ""
	for name := range before {
		if !held[name] {
			resumed = name
			if err := t.allowFew(name); err != nil {
				return fmt.Errorf("resume rule %s: %w", name, err)
			}
		}
	}
	t.limits.held = held
	if resumed == "" {
		return t.pauseHeld()
	}
	// Timeouts must be looked for in what is pending already: a new generation makes it so.
	if err := t.install(t.list); err != nil {
		t.limits.held = before
		return fmt.Errorf("resume rule %s: %w", resumed, err)
	}
	return nil
}

// few outliers show whether a rule that was held still fires all the time.
const few = 20

// allowFew takes what is more than a few out of the buckets of a rule that is
// held, so that no program is at them. Under t.mu.
func (t *Tracker) allowFew(name string) error {
	i := slices.IndexFunc(t.live.source, func(r *rules.Rule) bool { return r.Name == name })
	if i < 0 || t.opts.Rate <= 0 {
		return nil
	}
	each, room := t.rate()
	full := linux.Monotonic() + room - min(few*each, room)
	const size = int(unsafe.Sizeof(bpf.TailcamRuleState{}))
	const bucket, asked = int(unsafe.Offsetof(bpf.TailcamRuleState{}.BucketNs)), int(unsafe.Offsetof(bpf.TailcamRuleState{}.AskedNs))
	at := int(t.live.rules[i].Id) * size
	return errors.Join(writeWord(t.limits.states, at+bucket, full), writeWord(t.limits.states, at+asked, full))
}

// pauseHeld pauses rules of the live generation. Under t.mu.
func (t *Tracker) pauseHeld() error {
	c := t.live
	sources := slices.Clone(c.source)
	plain := make([]rules.Rule, len(sources))
	var paused []int
	for i, r := range sources {
		if t.limits.held[r.Name] && !r.Paused {
			own := *r
			own.Paused = true
			sources[i] = &own
			paused = append(paused, i)
		}
		plain[i] = *sources[i]
	}
	half := int(c.generation & 1)
	const size, at = int(unsafe.Sizeof(bpf.TailcamRule{})), int(unsafe.Offsetof(bpf.TailcamRule{}.Paused))
	for _, i := range paused {
		c.rules[i].Paused = 1
		if _, err := t.ruleMemory.WriteAt([]byte{1}, int64((half*maxRules+i)*size+at)); err != nil {
			return fmt.Errorf("pause rule %s: %w", sources[i].Name, err)
		}
	}
	c.source, c.floors, c.timeouts = sources, newFloors(plain), newTimeoutFloors(plain)
	if err := errors.Join(t.writeFloors(&c.floors), t.writeTimeouts(&c.timeouts)); err != nil {
		return fmt.Errorf("pause rules: %w", err)
	}
	return nil
}

// withHeld sets Paused of the rules that are held. Under t.mu.
func (t *Tracker) withHeld(list []rules.Rule) []rules.Rule {
	list = slices.Clone(list)
	for i := range list {
		list[i].Paused = list[i].Paused || t.limits.held[list[i].Name]
	}
	return list
}
