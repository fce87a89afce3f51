package helper

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/symbols"
)

// KernelNames is like symbols.Resolver.KernelNames.
func (h *Helper) KernelNames(addrs []uint64) ([]string, error) { return h.kernel.KernelNames(addrs) }

// ReloadKernel is like symbols.Resolver.ReloadKernel.
func (h *Helper) ReloadKernel() error { return h.kernel.ReloadKernel() }

// Kernel is like symbols.Resolver.Kernel, with sources from the helper.
func (h *Helper) Kernel(addrs []uint64) (symbols.Stack, error) {
	addrs = addrs[:min(len(addrs), maxAddrs)]
	frames, offsets, err := h.kernel.KernelOffsets(addrs)
	out := symbols.Stack{Frames: frames}
	if err != nil || len(addrs) == 0 || h.opts.NoLines || !h.wantsKernel() {
		return out, err
	}
	m, ok := h.withDeadline(h.opts.Limit, func(deadline time.Time) (message, error) {
		return h.full.ask(&request{kind: reqKernel, addrs: offsets}, nil, deadline, answerTime)
	})
	switch {
	case !ok:
		h.late.Add(1)
	case m.flags&(flagKnown|flagFailed) == 0:
		h.mu.Lock()
		h.noKernel = time.Now().Add(kernelRetry)
		h.mu.Unlock()
	case len(m.sources) == len(frames):
		out.Sources = m.sources
	}
	return out, nil
}

func (h *Helper) wantsKernel() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().After(h.noKernel)
}

// withDeadline runs f and stops waiting for it at the limit.
func (h *Helper) withDeadline(limit time.Duration, f func(deadline time.Time) (message, error)) (message, bool) {
	deadline := time.Now().Add(limit)
	c := make(chan message, 1)
	go func() {
		defer close(c)
		if m, err := f(deadline); err == nil {
			c <- m
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m, ok := <-c:
		return m, ok
	case <-timer.C:
		return message{}, false
	}
}

// payers returns the accounts charged for a process: its own and its user's.
func payers(pid int) []payer {
	who := []payer{{ofProcess, uint64(pid), 0}}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err == nil {
		who = append(who, payer{ofUser, uint64(st.Uid), 0})
	}
	return who
}

// User is like symbols.Resolver.User, limited to Options.Limit. It returns bare
// addresses for processes and users that have exceeded their share or made helpers
// hang.
func (h *Helper) User(pid int, addrs []uint64) symbols.Stack {
	if len(addrs) == 0 {
		return symbols.Stack{}
	}
	n := min(len(addrs), maxAddrs)
	who := payers(pid)
	if pid <= 0 || !h.accounts.allow(time.Now(), who...) {
		h.refused.Add(1)
		return addresses(addrs)
	}
	deadline := time.Now().Add(h.opts.Limit)
	release := h.lockProcess(pid, deadline)
	if release == nil {
		h.late.Add(1)
		return addresses(addrs)
	}
	s, complete := h.user(pid, addrs[:n], who, deadline, release)
	if !complete {
		h.late.Add(1)
	}
	rest := addresses(addrs[n:])
	s.Frames = append(s.Frames, rest.Frames...)
	if s.Sources != nil {
		s.Sources = append(s.Sources, make([]symbols.Source, len(rest.Frames))...)
	}
	return s
}

// lockProcess serializes requests about a process; nil: not available by the deadline.
func (h *Helper) lockProcess(pid int, deadline time.Time) (release func()) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		h.mu.Lock()
		other := h.busy[pid]
		if other == nil {
			mine := make(chan struct{})
			h.busy[pid] = mine
			h.mu.Unlock()
			return func() {
				h.mu.Lock()
				delete(h.busy, pid)
				h.mu.Unlock()
				close(mine)
			}
		}
		h.mu.Unlock()
		select {
		case <-other:
		case <-timer.C:
			return nil
		}
	}
}

// answer is a lane's reply about a stack.
type answer struct {
	from *lane
	message
	err error
}

// user requests names and lines, names only from a second helper if that is slow or
// fails, and files on network file systems from a third one.
func (h *Helper) user(pid int, addrs []uint64, who []payer, deadline time.Time, release func()) (symbols.Stack, bool) {
	answers := make(chan answer, len(h.lanes()))
	var asked sync.WaitGroup
	ask := func(l *lane) {
		asked.Go(func() {
			m, err := l.ask(&request{kind: reqStack, pid: pid, addrs: addrs}, who, deadline, answerTime)
			answers <- answer{l, m, err}
		})
	}
	ask(h.full)
	defer func() {
		go func() { // late replies still belong to this process
			asked.Wait()
			release()
		}()
	}()
	end, hedge := time.NewTimer(time.Until(deadline)), time.NewTimer(hedgeTime)
	defer end.Stop()
	defer hedge.Stop()
	out := addresses(addrs)
	complete := false
	for pending, named, far := 1, false, false; pending > 0; {
		select {
		case <-end.C:
			return out, false
		case <-hedge.C:
			if !named {
				named = true
				pending++
				ask(h.names)
			}
		case a := <-answers:
			pending--
			ok := a.err == nil && a.flags&flagFailed == 0 && merge(&out, &a.message, addrs)
			if ok && (a.from != h.names || h.opts.NoLines) && a.flags&(flagLate|flagStuck) == 0 {
				complete = true
			}
			if a.err == nil && a.flags&flagRemote != 0 && !far {
				far, complete = true, false
				h.remotes.Add(1)
				pending++
				ask(h.remote)
			}
			if !ok && a.from == h.full && !named && !errors.Is(a.err, errBusy) {
				named = true
				pending++
				ask(h.names)
			}
			if complete {
				return out, true
			}
		}
	}
	return out, complete
}

// merge copies results that were not known before.
func merge(out *symbols.Stack, m *message, addrs []uint64) bool {
	if len(m.frames) != len(addrs) || m.sources != nil && len(m.sources) != len(addrs) {
		return false
	}
	for i, f := range m.frames {
		if f == frameTooLong {
			f = unknown(addrs[i])
		}
		if !strings.HasPrefix(f, unknownPrefix) || strings.HasPrefix(out.Frames[i], unknownPrefix) && len(f) >= len(unknownPrefix) {
			out.Frames[i] = f
		}
	}
	if m.sources != nil {
		out.Sources = m.sources
	}
	return true
}

const (
	frameTooLong  = "[unknown]"
	unknownPrefix = "[unknown]"
)

func unknown(addr uint64) string { return fmt.Sprintf("[unknown] 0x%x", addr) }

func addresses(addrs []uint64) symbols.Stack {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = unknown(a)
	}
	return symbols.Stack{Frames: out}
}
