package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/pins"
)

// What is pinned, by name: maps and programs of the main object, what is attached to its
// hooks (the program of a Jump and its table, and the link), and three maps that only
// daemons use: these, and pins.Complete, a loadedRecord. Of declared pairs see declaredPin, of
// functions of system calls callPin.
const (
	mapPin     = "map-"
	programPin = "prog-"
	jumpPin    = "jump_" // after mapPin or programPin
	linkPin    = "link-"
	rulesState = "state-rules" // what the daemon knows of the two generations of rules
	aliveState = "state-alive" // an aliveRecord
)

const (
	loadedSize = 16 << 10
	rulesSize  = 256 << 10
)

// loadedRecord says what the pinned objects were made of.
type loadedRecord struct {
	ABI        string // bpf.Fingerprint
	Layout     string // bpf.Layout
	Version    string // of the daemon
	Attached   uint64 // since when the recorder records as it does, in CLOCK_MONOTONIC nanoseconds
	Options    Options
	Groups     map[string]bool   // of the recorder
	SpanSeed   []byte            // constant of the programs: the keys of pending spans have it
	Unrecorded map[string]string // hooks that this kernel has refused, by where they are, and why
}

// aliveRecord is when the daemon was last at work.
type aliveRecord struct {
	Time uint64 // CLOCK_MONOTONIC nanoseconds
	Lost uint64 // outliers that had found the ring buffer full by then
}

// Takeover is how the kernel side of a daemon with pins came about.
type Takeover struct {
	Taken bool
	// Programs is why programs of this daemon took the place of those that were taken over;
	// empty: those are at work.
	Programs string
	// Begun are the maps, by name, that began with nothing, as they have other sizes now.
	Begun []string
	// Reason is why what another daemon had left was not taken over; empty: it was, or
	// there was nothing.
	Reason  string
	Version string        // of that daemon
	Gap     time.Duration // for which nobody read outliers; up to a second too long
	Lost    uint64        // outliers that found the ring buffer full in the gap
}

// pinning keeps a kernel side beyond this process. The zero value keeps nothing.
type pinning struct {
	before   *loadedRecord // of what was taken over; nil: nothing was
	takeover Takeover
	leave    atomic.Bool // Stop and Close leave all as it is
	rules    *ebpf.Map
	alive    *ebpf.Map

	// Of Load, Attach, Replace and Close, of which one is at work at a time.
	since uint64                // loadedRecord.Attached
	put   map[string]descriptor // what is pinned, but links, segments and pins.Complete

	callsTaken bool // all functions of system calls that were attached

	mu      sync.Mutex // guards what follows
	store   pins.Store
	problem error // why nothing is pinned, although store was given
}

// descriptor is a map or a program.
type descriptor interface{ FD() int }

// to is where it is pinned; nil: nowhere.
func (p *pinning) to() pins.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}

// Pinned reports whether the kernel side outlives this process if that dies.
func (o *Objects) Pinned() bool { return o.pinning.to() != nil }

// PinError is why nothing is pinned, although it should be.
func (o *Objects) PinError() error {
	o.pinning.mu.Lock()
	defer o.pinning.mu.Unlock()
	return o.pinning.problem
}

// Takeover tells how this kernel side came about.
func (o *Objects) Takeover() Takeover { return o.pinning.takeover }

// RecordsSince is when, in CLOCK_MONOTONIC nanoseconds, the recorder of a kernel side
// that was taken over began; 0: it was not taken over.
func (o *Objects) RecordsSince() uint64 {
	if o.pinning.before == nil {
		return 0
	}
	return o.pinning.before.Attached
}

// Leave decides whether Stop and Close leave what is pinned to the next daemon, attached,
// or remove it.
func (o *Objects) Leave(leave bool) { o.pinning.leave.Store(leave) }

// Leaves reports whether Stop and Close leave something.
func (o *Objects) Leaves() bool { return o.Pinned() && o.pinning.leave.Load() }

// KeptRing returns the size of the rings of a kernel side that could be taken over, if it
// was chosen for the same reason; 0: there is none.
func KeptRing(store pins.Store, reason string) int {
	if store == nil || reason == "" {
		return 0
	}
	r, err := readLoaded(store)
	if err != nil || r == nil || r.Options.RingReason != reason {
		return 0
	}
	return r.Options.Ring
}

// readLoaded reads what is pinned; nil: nothing is, or it is not complete.
func readLoaded(store pins.Store) (*loadedRecord, error) {
	m, err := openMap(store, pins.Complete)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is there
	}
	if err != nil {
		return nil, err
	}
	defer m.Close() //nolint:errcheck // only read from
	var r loadedRecord
	if err := readRecord(m, 0, &r); err != nil {
		return nil, err
	}
	if r.ABI == bpf.Fingerprint() {
		return &r, nil
	}
	layout, err := bpf.Layout()
	if err != nil {
		return &r, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if r.Layout != layout {
		return &r, fmt.Errorf("it has another ABI (that of tailcam %s)", r.Version)
	}
	return &r, nil
}

// readRecord decodes an element of a map that holds JSON.
func readRecord(m *ebpf.Map, index uint32, into any) error {
	b, err := m.LookupBytes(index)
	if err != nil {
		return fmt.Errorf("read %s: %w", m, err)
	}
	if err := json.Unmarshal(bytes.TrimRight(b, "\x00"), into); err != nil {
		return fmt.Errorf("decode %s: %w", m, err)
	}
	return nil
}

// putRecord writes JSON, at once as far as others can see.
func putRecord(m *ebpf.Map, index uint32, text []byte) error {
	if len(text) > int(m.ValueSize()) {
		return fmt.Errorf("%d bytes do not fit into %s", len(text), m)
	}
	b := make([]byte, m.ValueSize())
	copy(b, text)
	return m.Put(index, b)
}

// pinName is the name of a map in the store.
func pinName(name string) string {
	return mapPin + strings.ReplaceAll(strings.TrimPrefix(name, "."), ".", "_")
}

var errNotPinned = errors.New("it is not complete")

// openMap opens a pinned map.
func openMap(store pins.Store, name string) (*ebpf.Map, error) {
	fd, err := store.Get(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotPinned, err)
	}
	return ebpf.NewMapFromFD(fd)
}

// pinLoaded pins the maps and programs of a kernel side that was loaded anew. If that
// fails, it works on without pins.
func (o *Objects) pinLoaded() {
	if !o.Pinned() {
		return
	}
	if err := o.tryPinLoaded(); err != nil {
		o.unpin(err)
	}
}

func (o *Objects) tryPinLoaded() error {
	p := &o.pinning
	if err := pins.Clear(p.to()); err != nil {
		return err
	}
	p.put = nil
	var err error
	if p.rules, err = newState(2, rulesSize); err != nil {
		return err
	}
	if p.alive, err = newState(1, uint32(binary.Size(aliveRecord{}))); err != nil {
		return err
	}
	return o.putObjects()
}

// objects are what is pinned, but links, segments and pins.Complete, by name.
func (o *Objects) objects() map[string]descriptor {
	list := map[string]descriptor{rulesState: o.pinning.rules, aliveState: o.pinning.alive}
	now := o.loaded.Load()
	for name, m := range now.byName {
		list[pinName(name)] = m
	}
	for name, program := range now.programs {
		list[programPin+name] = program
	}
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	for name, j := range o.hooks {
		list[programPin+jumpPin+name], list[mapPin+jumpPin+name] = j.Program, j.table
	}
	return list
}

// putObjects pins what is loaded now, and nothing else. Without pins.Complete: who is
// interrupted leaves a part.
func (o *Objects) putObjects() error {
	p, store := &o.pinning, o.pinning.to()
	wanted := o.objects()
	for name, object := range wanted {
		if p.put[name] == object {
			continue
		}
		if err := store.Put(name, object.FD()); err != nil {
			return err
		}
	}
	for name := range p.put {
		if wanted[name] != nil {
			continue
		}
		if err := store.Remove(name); err != nil {
			return err
		}
	}
	p.put = wanted
	return nil
}

// pinBegin has what is pinned not be complete while it changes. If that fails, nothing
// may change: another daemon would take over what runs no more.
func (o *Objects) pinBegin() error {
	store := o.pinning.to()
	if store == nil {
		return nil
	}
	if err := store.Remove(pins.Complete); err != nil {
		return fmt.Errorf("change what is pinned: %w", err)
	}
	return nil
}

// pinChanged pins what has taken the place of before.
func (o *Objects) pinChanged(before *loaded) {
	if !o.Pinned() {
		return
	}
	if now := o.loaded.Load(); now.rings != before.rings || !maps.Equal(now.plan.Groups, before.plan.Groups) {
		o.pinning.since = linux.Monotonic()
	}
	if err := o.putObjects(); err != nil {
		o.unpin(err)
	}
	o.pinComplete()
}

// newState makes a map that only daemons use.
func newState(entries, size uint32) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "tailcam_state", Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: entries})
	if err != nil {
		return nil, fmt.Errorf("make a map for the pins: %w", err)
	}
	return m, nil
}

// unpin goes on without pins, as they cannot be had.
func (o *Objects) unpin(why error) {
	p := &o.pinning
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem = why
	_ = pins.Clear(p.store) // what cannot be removed either is removed, or refused, by the next start
	p.store = nil
}

// attachHook attaches what jumps into a program, and pins the link.
func (o *Objects) attachHook(h *kinds.Hook, j *Jump) (Attachment, error) {
	a, err := attach(h, j)
	store := o.pinning.to()
	if err != nil || store == nil {
		return a, err
	}
	if err := putLink(store, h.Program, a.Link); err == nil { // else who takes over attaches it again, as if it had been shed
		a.Link = o.pinnedHook(h.Program, a.Link)
	}
	return a, nil
}

// linkFD is the descriptor of a link.
func linkFD(l link.Link) (int, error) {
	f, ok := l.(interface{ FD() int })
	if !ok {
		return -1, fmt.Errorf("links of type %T have no descriptor", l)
	}
	return f.FD(), nil
}

// closePins ends the use of the store. What is pinned is removed, unless it is left to the
// next daemon.
func (o *Objects) closePins() error {
	p := &o.pinning
	var errs []error
	if store := p.to(); store != nil && !p.leave.Load() {
		errs = append(errs, pins.Clear(store))
	}
	p.mu.Lock()
	p.store = nil
	p.mu.Unlock()
	return errors.Join(append(errs, o.closeStates())...)
}

func (o *Objects) closeStates() error {
	p := &o.pinning
	err := errors.Join(p.rules.Close(), p.alive.Close())
	p.rules, p.alive = nil, nil
	return err
}

// pinnedLink is a link that stays if the process dies.
type pinnedLink struct {
	link.Link
	pinning *pinning
	name    string
}

// Close detaches.
func (l *pinnedLink) Close() error {
	var err error
	if store := l.pinning.to(); store != nil {
		err = store.Remove(l.name)
	}
	return errors.Join(err, l.Link.Close())
}

// endLink detaches at the end of the process, unless the link is left to the next daemon.
func (o *Objects) endLink(l link.Link) error {
	if p, ok := l.(*pinnedLink); ok && o.pinning.leave.Load() {
		return p.Link.Close()
	}
	return l.Close()
}

// pinnedGrace is how long the kernel may take to detach a link whose pin was removed: the
// reference of a pin is dropped after an RCU grace period (bpf_free_inode in
// kernel/bpf/inode.c), that of systemd when it has read the message.
const pinnedGrace = 100 * time.Millisecond

// detachGrace is how long a program may still be at work after it was detached.
func (o *Objects) detachGrace() time.Duration {
	if o.Pinned() {
		return pinnedGrace
	}
	return shedGrace
}

// pinComplete makes what is pinned fit to be taken over: all is attached.
func (o *Objects) pinComplete() {
	if !o.Pinned() {
		return
	}
	if err := o.pinRecord(); err != nil {
		o.unpin(err)
	}
}

// pinRecord pins the record of what was loaded.
func (o *Objects) pinRecord() error {
	if err := o.checkHooks(); err != nil {
		return err
	}
	now := o.loaded.Load()
	layout, err := bpf.Layout()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	r := loadedRecord{
		ABI: bpf.Fingerprint(), Layout: layout, Version: now.opts.Version, Attached: o.pinning.since, Options: now.opts,
		Groups: now.plan.Groups, SpanSeed: now.constants[spanSeed].Value, Unrecorded: map[string]string{},
	}
	for site, why := range now.plan.Unrecorded {
		text := why.Error()
		r.Unrecorded[site] = text[:min(len(text), 100)]
	}
	text, err := json.Marshal(&r)
	if err != nil {
		return err
	}
	m, err := newState(1, loadedSize)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // its pin stays
	if err := putRecord(m, 0, text); err != nil {
		return err
	}
	return errors.Join(o.NoteAlive(), o.pinning.to().Put(pins.Complete, m.FD()))
}

// NoteAlive notes that this daemon is at work, for the next one, which tells how long
// nobody was. Once a second is often enough.
func (o *Objects) NoteAlive() error {
	if !o.Pinned() {
		return nil
	}
	lost, err := o.ringFull()
	if err != nil {
		return err
	}
	return o.pinning.alive.Put(uint32(0), aliveRecord{Time: linux.Monotonic(), Lost: lost})
}

// ringFull counts outliers that have found the ring buffer full.
func (o *Objects) ringFull() (sum uint64, err error) {
	for id := range o.Maps().RuleStates.MaxEntries() {
		var s abi.RuleState
		if err := o.Maps().RuleStates.Lookup(id, &s); err != nil {
			return sum, fmt.Errorf("read the state of rules: %w", err)
		}
		sum += s.RingFull
	}
	return sum, nil
}

// KeepRules keeps what the next daemon needs to know of a generation of rules, before it
// is the current one. What does not fit is not kept: then nothing is taken over.
func (o *Objects) KeepRules(generation uint32, state any) error {
	if !o.Pinned() {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if len(text) > rulesSize {
		text = nil
	}
	return putRecord(o.pinning.rules, generation&1, text)
}

// KeptRules decodes what the daemon before has kept of a generation.
func (o *Objects) KeptRules(generation uint32, into any) error {
	return readRecord(o.pinning.rules, generation&1, into)
}
