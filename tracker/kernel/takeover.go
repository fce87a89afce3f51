package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/pins"
)

// TakeoverError is an error of a kernel side that was taken over. It can be loaded anew
// instead.
type TakeoverError struct{ Err error }

// Error implements error.
func (e *TakeoverError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *TakeoverError) Unwrap() error { return e.Err }

// prepareTakeover looks at what another daemon has left, and chooses the sizes that it
// chose.
func (o *Objects) prepareTakeover(opts *Options) *Options {
	p := &o.pinning
	p.store = opts.Pins
	if p.store == nil {
		return opts
	}
	if opts.Anew != nil {
		p.takeover.Reason = opts.Anew.Error()
		return opts
	}
	r, err := readLoaded(p.store)
	if r != nil {
		p.takeover.Version = r.Version
	}
	if err != nil {
		p.takeover.Reason = err.Error()
		return opts
	}
	if names, _ := p.store.Names(); r == nil && len(names) > 0 {
		p.takeover.Reason = "it is not complete: that daemon ended while it started, reloaded or stopped"
	}
	p.before = r
	wanted := *opts
	if r != nil && wanted.Histograms > 0 {
		wanted.Histograms = max(wanted.Histograms, r.Options.Histograms)
	}
	return &wanted
}

// collect takes the pinned objects over, at the start, or loads spec.
func (o *Objects) collect(n *build, spec *ebpf.CollectionSpec, kept map[string]*ebpf.Map) (*ebpf.Collection, error) {
	p := &o.pinning
	if o.loaded.Load() != nil {
		return newCollection(spec, kept, n.plan.Unrecorded)
	}
	if p.before != nil {
		c, err := o.takeOver(spec, n.plan)
		if err == nil {
			p.takeover.Taken, n.taken = true, true
			p.since = p.before.Attached
			p.leave.Store(true)
			return c, nil
		}
		p.takeover.Reason, p.before = err.Error(), nil
	}
	if store := p.to(); store != nil { // what it holds must not go on beside
		if err := pins.Clear(store); err != nil {
			o.unpin(err)
		}
	}
	return newCollection(spec, kept, n.plan.Unrecorded)
}

// takeOver opens what is pinned: all of it, if it is what spec would be loaded as, else
// what programs of spec can go on with.
func (o *Objects) takeOver(spec *ebpf.CollectionSpec, plan *Plan) (c *ebpf.Collection, err error) {
	p := &o.pinning
	replace := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range replace {
			err = errors.Join(err, m.Close())
		}
	}()
	for name := range spec.Maps {
		if replace[name], err = openMap(p.to(), pinName(name)); err != nil {
			delete(replace, name)
			return nil, err
		}
	}
	if err := o.openStates(); err != nil {
		_ = o.closeStates()
		return nil, err
	}
	if why := o.others(spec, replace); why != nil {
		p.takeover.Programs = why.Error()
		c, err = o.loadFor(spec, plan, replace)
	} else {
		c, err = o.openAll(spec, plan, replace)
	}
	if err != nil {
		p.takeover.Programs, p.takeover.Begun = "", nil
		_ = o.closeStates()
	}
	return c, err
}

// openAll opens what is pinned.
func (o *Objects) openAll(spec *ebpf.CollectionSpec, plan *Plan, pinned map[string]*ebpf.Map) (*ebpf.Collection, error) {
	bare := spec.Copy()
	bare.Programs = nil
	c, err := ebpf.NewCollectionWithOptions(bare, ebpf.CollectionOptions{MapReplacements: pinned})
	if err != nil {
		return nil, err
	}
	if c.Programs == nil {
		c.Programs = map[string]*ebpf.Program{}
	}
	if err := o.openPrograms(spec, plan, c.Programs); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// others is why what is pinned is not what spec would be loaded as; nil: it is.
func (o *Objects) others(spec *ebpf.CollectionSpec, pinned map[string]*ebpf.Map) error {
	if r := o.pinning.before; r.ABI != bpf.Fingerprint() {
		return fmt.Errorf("those were of tailcam %s", r.Version)
	}
	if err := sameConstants(spec, pinned[constantsMap]); err != nil {
		return err
	}
	for name, m := range spec.Maps {
		if m.MaxEntries != 0 && m.MaxEntries != pinned[name].MaxEntries() {
			return fmt.Errorf("configuration or rules need other sizes (%s)", name)
		}
	}
	return o.onlyWanted(spec)
}

// sameConstants compares the constants of programs, in which all that the configuration
// and the rules want of them is.
func sameConstants(spec *ebpf.CollectionSpec, rodata *ebpf.Map) error {
	have, err := rodata.LookupBytes(uint32(0))
	if err != nil {
		return fmt.Errorf("read its constants: %w", err)
	}
	var other []string
	for name, v := range spec.Variables {
		if v.SectionName != constantsMap {
			continue
		}
		end := int(v.Offset) + len(v.Value)
		if end > len(have) {
			return errors.New("its constants have another size")
		}
		value := have[v.Offset:end]
		if name == spanSeed { // random: that of what runs stays
			v.Value = slices.Clone(value)
		} else if !bytes.Equal(value, v.Value) {
			other = append(other, name)
		}
	}
	if len(other) > 0 {
		slices.Sort(other)
		return fmt.Errorf("configuration or rules need other programs or sizes (%s)", strings.Join(other, ", "))
	}
	return nil
}

// openPrograms opens the pinned programs. What the verifier has refused before is left
// out of spec.
func (o *Objects) openPrograms(spec *ebpf.CollectionSpec, plan *Plan, into map[string]*ebpf.Program) error {
	refused := map[string]bool{}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		if why, ok := o.pinning.before.Unrecorded[h.Site()]; ok && len(h.Trackers()) == 0 {
			refused[h.Program] = true
			if plan.Unrecorded[h.Site()] == nil {
				plan.Unrecorded[h.Site()] = errors.New(why)
			}
		}
	}
	for name := range spec.Programs {
		fd, err := o.pinning.to().Get(programPin + name)
		if err != nil && refused[name] {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errNotPinned, err)
		}
		if into[name], err = ebpf.NewProgramFromFD(fd); err != nil {
			delete(into, name)
			return fmt.Errorf("open program %s: %w", name, err)
		}
	}
	return nil
}

// onlyWanted refuses hooks that spec has no programs for.
func (o *Objects) onlyWanted(spec *ebpf.CollectionSpec) error {
	names, err := o.pinning.to().Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if program, ok := strings.CutPrefix(name, linkPin); ok && spec.Programs[program] == nil && !besideMain(program) {
			return fmt.Errorf("configuration or rules do without its program %s", program)
		}
	}
	return nil
}

// openStates opens the maps of daemons.
func (o *Objects) openStates() error {
	p := &o.pinning
	var bad, worse error
	p.rules, bad = openMap(p.to(), rulesState)
	p.alive, worse = openMap(p.to(), aliveState)
	if err := errors.Join(bad, worse); err != nil {
		return err
	}
	var alive aliveRecord
	if err := p.alive.Lookup(uint32(0), &alive); err != nil {
		return fmt.Errorf("read when it was at work: %w", err)
	}
	p.takeover.Gap, p.takeover.Lost = time.Duration(linux.Monotonic()-alive.Time), alive.Lost
	return nil
}

// countLost completes what is known of the gap.
func (o *Objects) countLost() error {
	lost, err := o.ringFull()
	o.pinning.takeover.Lost = lost - min(o.pinning.takeover.Lost, lost)
	return err
}

// take goes on with what was taken over.
func (o *Objects) take(n *build) error {
	err := o.takeTables(n)
	o.tables.use(n) // which closes them
	if err := errors.Join(err, o.countLost()); err != nil {
		return err
	}
	if o.pinning.takeover.Programs != "" {
		return o.exchange(n)
	}
	if err := o.takeHooks(); err != nil {
		return err
	}
	o.pinning.put = o.objects()
	return nil
}

// takeHooks takes over what is, or was, attached.
func (o *Objects) takeHooks() error {
	store, programs := o.pinning.to(), o.loaded.Load().programs
	for i := range kinds.Hooks {
		name := kinds.Hooks[i].Program
		if programs[name] == nil {
			continue
		}
		j, err := openJump(store, name)
		if err != nil {
			return fmt.Errorf("take over what runs %s: %w", name, err)
		}
		o.hooks[name] = j
	}
	return o.checkHooks()
}

// checkHooks tells whether a hook runs another program than what is loaded.
func (o *Objects) checkHooks() error {
	programs := o.loaded.Load().programs
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	for name, j := range o.hooks {
		runs, err := j.Runs()
		if err != nil {
			return fmt.Errorf("ask which program %s runs: %w", name, err)
		}
		if programs[name] == nil {
			return fmt.Errorf("%s runs program %d, not none", name, runs)
		}
		info, err := programs[name].Info()
		if err != nil {
			return err
		}
		if id, ok := info.ID(); ok && id != runs {
			return fmt.Errorf("%s runs program %d, not %d", name, runs, id)
		}
	}
	return nil
}

// openJump opens a pinned Jump.
func openJump(store pins.Store, name string) (*Jump, error) {
	program, err := openProgram(store, jumpPin+name)
	if err != nil {
		return nil, err
	}
	table, err := openMap(store, mapPin+jumpPin+name)
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	return &Jump{program, table}, nil
}

// segmentPin is the name of one of the maps of a segment of a table.
func segmentPin(table int, segment uint32, what string) string {
	return fmt.Sprintf("%s%s%d_%d_%s", mapPin, segmentInfix, table, segment, what)
}

const segmentInfix = "segment_" // after mapPin

// pinSegment pins the maps of a segment, before the table uses it.
func (o *Objects) pinSegment(table int, segment uint32, keys, slots *ebpf.Map) error {
	store := o.pinning.to()
	if store == nil {
		return nil
	}
	return errors.Join(store.Put(segmentPin(table, segment, "keys"), keys.FD()), store.Put(segmentPin(table, segment, "slots"), slots.FD()))
}

// takeTables finds the segments of the tables that were taken over.
func (o *Objects) takeTables(b *build) error {
	for n := range b.tables {
		p := &b.tables[n]
		keys, _, _ := p.Maps(&b.maps)
		p.parts = []*ebpf.Map{keys}
		var g abi.Growth
		if o.begun(keys) {
			g.Chunks[0] = chunksOf(p.slots)
			if err := errors.Join(o.unpinSegments(n), b.maps.Growths.Put(uint32(n), g)); err != nil {
				return fmt.Errorf("set up the pending table of %s: %w", p.Name, err)
			}
			continue
		}
		if err := b.maps.Growths.Lookup(uint32(n), &g); err != nil {
			return fmt.Errorf("read the growth of the pending table of %s: %w", p.Name, err)
		}
		for segment := uint32(1); segment <= min(g.Segments, abi.Segments-1); segment++ {
			keys, bad := openMap(o.pinning.to(), segmentPin(n, segment, "keys"))
			slots, worse := openMap(o.pinning.to(), segmentPin(n, segment, "slots"))
			if err := errors.Join(bad, worse); err != nil {
				return fmt.Errorf("open the pending table of %s: %w", p.Name, err)
			}
			p.maps, p.parts = append(p.maps, keys, slots), append(p.parts, keys)
			p.slots += int(slots.MaxEntries())
		}
		g.Wanted = 0 // whom it was asked for may not have got round to it
		if err := b.maps.Growths.Put(uint32(n), g); err != nil {
			return fmt.Errorf("read the growth of the pending table of %s: %w", p.Name, err)
		}
	}
	return nil
}

// attachTaken takes the hooks over, and attaches those that the daemon before had shed.
func (o *Objects) attachTaken() error {
	seen := o.Plan().without(&Shedding{})
	missing, err := o.takeLinks(seen)
	if err != nil {
		return err
	}
	o.links.mu.Lock()
	err = o.forgetUnseen(seen, missing)
	o.links.mu.Unlock()
	if err != nil {
		return err
	}
	if err := o.Shed(&Shedding{}); err != nil {
		return err
	}
	if err := o.exchanged(); err != nil {
		return err
	}
	o.pinComplete()
	return nil
}

// takeLinks takes over links, and takes the trackers that miss one out of seen.
func (o *Objects) takeLinks(seen *Plan) (missing bool, err error) {
	p := &o.pinning
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	o.links.shed = map[string]bool{}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		j := o.hooks[h.Program]
		if j == nil || o.Plan().Unrecorded[h.Site()] != nil {
			continue
		}
		fd, err := p.to().Get(linkPin + h.Program)
		if err != nil { // it was shed
			o.links.shed[h.Program], missing = true, true
			maps.DeleteFunc(seen.Tracks, func(t rules.Track, _ bool) bool { return slices.Contains(h.Trackers(), t) })
			continue
		}
		l, err := link.NewFromFD(fd)
		if err != nil {
			return missing, fmt.Errorf("take over the hook %s: %w", h.Site(), err)
		}
		a := Attachment{Program: h.Program, Hook: h.Site(), Link: o.pinnedHook(h.Program, l), Loaded: j.Program}
		o.links.list = append(o.links.list, a)
		if err := ofProgram(l, j.Program); err != nil {
			return missing, fmt.Errorf("take over the hook %s: %w", h.Site(), err)
		}
	}
	return missing, nil
}

// ofProgram tells why a link is not one of a program.
func ofProgram(l link.Link, p *ebpf.Program) error {
	attached, err := l.Info()
	if err != nil {
		return err
	}
	info, err := p.Info()
	if err != nil {
		return err
	}
	if id, ok := info.ID(); ok && id != attached.Program {
		return fmt.Errorf("it runs program %d, not %d", attached.Program, id)
	}
	return nil
}

// forgetUnseen empties the pending tables of work whose exit nobody may have seen: of
// trackers that miss a hook, and of system calls unless all functions that were attached to were
// taken over. Under o.links.mu.
func (o *Objects) forgetUnseen(seen *Plan, missing bool) error {
	if o.Plan().callsByFunction() && !o.pinning.callsTaken {
		delete(seen.Tracks, rules.Syscall)
	}
	err := o.clearTables(seen)
	if missing {
		err = errors.Join(err, o.leaveNotes())
	}
	return err
}
