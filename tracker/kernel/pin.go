package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
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

// What is pinned, by name: maps and programs of the main object, links of its hooks, and
// three maps that only daemons use: these, and pins.Complete, a loadedRecord. Hooks of declared pairs and functions of system calls
// are not: they end with the process.
const (
	mapPin     = "map-"
	programPin = "prog-"
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
	Version    string // of the daemon
	Attached   uint64 // when, in CLOCK_MONOTONIC nanoseconds, by whichever daemon
	Options    Options
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
	// Reason is why what another daemon had left was not taken over; empty: it was, or
	// there was nothing.
	Reason  string
	Version string        // of that daemon
	Gap     time.Duration // for which nobody read outliers; up to a second too long
	Lost    uint64        // outliers that found the ring buffer full in the gap
}

// pinning keeps a kernel side beyond this process. The zero value keeps nothing.
type pinning struct {
	store    pins.Store
	before   *loadedRecord // of what was taken over; nil: nothing was
	takeover Takeover
	problem  error       // why nothing is pinned, although store was given
	leave    atomic.Bool // Stop and Close leave all as it is
	rules    *ebpf.Map
	alive    *ebpf.Map
}

// Pinned reports whether the kernel side outlives this process if that dies.
func (o *Objects) Pinned() bool { return o.pinning.store != nil }

// PinError is why nothing is pinned, although it should be.
func (o *Objects) PinError() error { return o.pinning.problem }

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
	if r.ABI != bpf.Fingerprint() {
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
	p := &o.pinning
	if p.store == nil {
		return
	}
	if err := o.tryPinLoaded(); err != nil {
		o.unpin(err)
	}
}

func (o *Objects) tryPinLoaded() error {
	p := &o.pinning
	if err := pins.Clear(p.store); err != nil {
		return err
	}
	var err error
	if p.rules, err = newState(2, rulesSize); err != nil {
		return err
	}
	if p.alive, err = newState(1, uint32(binary.Size(aliveRecord{}))); err != nil {
		return err
	}
	fds := map[string]int{rulesState: p.rules.FD(), aliveState: p.alive.FD()}
	for name, m := range o.maps {
		fds[pinName(name)] = m.FD()
	}
	for name, program := range o.programs {
		fds[programPin+name] = program.FD()
	}
	for name, fd := range fds {
		if err := p.store.Put(name, fd); err != nil {
			return err
		}
	}
	return nil
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
	p.problem = why
	_ = pins.Clear(p.store) // what cannot be removed either is removed, or refused, by the next start
	p.store = nil
}

// attachHook attaches a program, and pins the link.
func (o *Objects) attachHook(h *kinds.Hook, program *ebpf.Program) (link.Link, error) {
	l, err := attach(h, program)
	p := &o.pinning
	if err != nil || p.store == nil {
		return l, err
	}
	fd, err := linkFD(l)
	if err == nil {
		err = p.store.Put(linkPin+h.Program, fd)
	}
	if err != nil { // who takes over attaches it again, as if it had been shed
		return l, nil //nolint:nilerr // it is attached
	}
	return &pinnedLink{Link: l, pinning: p, name: linkPin + h.Program}, nil
}

// linkFD is the descriptor of a link.
func linkFD(l link.Link) (int, error) {
	f, ok := l.(interface{ FD() int })
	if !ok {
		return -1, fmt.Errorf("links of type %T have no descriptor", l)
	}
	return f.FD(), nil
}

// closePins removes what is pinned, unless it is left to the next daemon.
func (o *Objects) closePins() error {
	p := &o.pinning
	var errs []error
	if p.store != nil && !p.leave.Load() {
		errs = append(errs, pins.Clear(p.store))
	}
	for _, m := range []*ebpf.Map{p.rules, p.alive} {
		errs = append(errs, m.Close())
	}
	p.rules, p.alive = nil, nil
	return errors.Join(errs...)
}

// pinnedLink is a link that stays if the process dies.
type pinnedLink struct {
	link.Link
	pinning *pinning
	name    string
}

// Close detaches, unless the link is left to the next daemon.
func (l *pinnedLink) Close() error {
	var err error
	if l.pinning.store != nil && !l.pinning.leave.Load() {
		err = l.pinning.store.Remove(l.name)
	}
	return errors.Join(err, l.Link.Close())
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
	if o.pinning.store == nil {
		return
	}
	if err := o.pinRecord(); err != nil {
		o.unpin(err)
	}
}

// pinRecord pins the record of what was loaded.
func (o *Objects) pinRecord() error {
	r := loadedRecord{ABI: bpf.Fingerprint(), Version: o.opts.Version, Attached: linux.Monotonic(), Options: o.opts, Unrecorded: map[string]string{}}
	if before := o.pinning.before; before != nil {
		r.Attached = before.Attached
	}
	for site, why := range o.Plan.Unrecorded {
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
	return errors.Join(o.NoteAlive(), o.pinning.store.Put(pins.Complete, m.FD()))
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
	for id := range o.Maps.RuleStates.MaxEntries() {
		var s abi.RuleState
		if err := o.Maps.RuleStates.Lookup(id, &s); err != nil {
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
