package activities

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/linux"
)

// attachment has the programs of the kernel side attached while somebody takes part, and for
// some time after the last one has left. Its methods may be called from any goroutine.
type attachment struct {
	kernel *kernelSide
	linger time.Duration
	log    *zap.Logger

	mu       sync.Mutex
	users    int
	attached bool
	closed   bool
	since    uint64 // when users was last 0, by CLOCK_MONOTONIC; 0: it has been since the start
	idle     *time.Timer
	links    []link.Link
	groups   *accounts.Attached
}

// hold is for one more user, who calls release once, also if hold fails.
func (t *attachment) hold() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users++
	if t.idle != nil {
		t.idle.Stop()
	}
	if t.closed {
		return ErrStopped
	}
	if !t.attached {
		if err := t.attach(); err != nil {
			return errors.Join(err, t.detach())
		}
	}
	if t.users == 1 {
		t.since = linux.Monotonic()
	}
	return nil
}

func (t *attachment) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.users == 0 && t.attached {
		t.idle = time.AfterFunc(t.linger, t.detachUnused)
	}
}

func (t *attachment) detachUnused() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users > 0 || !t.attached {
		return
	}
	if err := t.detach(); err != nil {
		t.log.Warn("detach the kernel side of activities, which nobody uses", zap.Error(err))
	}
}

// usedSince is since when somebody has taken part at all times: what the kernel side remembers
// of the time before may have changed unseen. 0: nobody has so far.
func (t *attachment) usedSince() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// try attaches the programs, and detaches them: whether this daemon may is known at its start.
func (t *attachment) try() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.attach(), t.detach())
}

// close detaches them for good.
func (t *attachment) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.idle != nil {
		t.idle.Stop()
	}
	return t.detach()
}

// attach requires t.mu. What it attached before an error is for detach.
func (t *attachment) attach() (err error) {
	if err := t.forgetInterrupts(); err != nil {
		return err
	}
	t.attached = true
	if t.groups, err = accounts.Attach(t.kernel.programs); err != nil {
		return err
	}
	for _, name := range required {
		l, err := link.AttachTracing(link.TracingOptions{Program: t.kernel.loaded[0].Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		t.links = append(t.links, l)
	}
	return nil
}

// detach requires t.mu.
func (t *attachment) detach() error {
	var errs []error
	for _, l := range slices.Backward(t.links) {
		errs = append(errs, l.Close())
	}
	if t.groups != nil {
		errs = append(errs, t.groups.Close())
	}
	t.links, t.groups, t.attached = nil, nil, false
	return errors.Join(errs...)
}

// forgetInterrupts has each CPU begin outside of all interrupts: one whose end was not seen
// would last for ever.
func (t *attachment) forgetInterrupts() error {
	m := t.kernel.shared["interrupt_times"]
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	none := make([][]byte, cpus)
	for i := range none {
		none[i] = make([]byte, m.ValueSize())
	}
	if err := m.Put(uint32(0), none); err != nil {
		return fmt.Errorf("forget interrupts: %w", err)
	}
	return nil
}
