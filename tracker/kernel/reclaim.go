package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// initPIDNamespace is the inode of the machine's own pid namespace
// (include/linux/proc_ns.h, PROC_PID_INIT_INO).
const initPIDNamespace = 0xEFFFFFFC

// Reclaim frees the slots of threads that are gone without their last switch
// having been seen, of spans older than maxSpan, of cancelled work items, and of
// pairs whose exit cannot come, and returns how many. That the process which
// began a span is gone says nothing: a script's often is. pairs are how old work
// of a declared pair may become, by its number. It reads the whole tables; once
// a minute is often enough. In a pid namespace of its own it knows no threads:
// the kernel side's thread ids mean nothing there.
func (o *Objects) Reclaim(maxSpan time.Duration, pairs map[uint32]time.Duration) (int, error) {
	n := 0
	steps := []func() (int, error){
		func() (int, error) { return o.expireSpans(maxSpan) },
		o.reclaimWork,
		func() (int, error) { return o.ReclaimPairs(pairs) },
		o.reclaimThreads,
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return n, fmt.Errorf("look at the pid namespace: %w", err)
	}
	if st.Ino != initPIDNamespace {
		steps = steps[:2]
	}
	for _, step := range steps {
		more, err := step()
		n += more
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// reclaimThreads forgets what is pending of threads that are gone.
func (o *Objects) reclaimThreads() (n int, err error) {
	for i := range kinds.All {
		kind := &kinds.All[i]
		if !kind.Threads {
			continue
		}
		keys, err := o.PendingKeys(kind.Track)
		if err != nil {
			return n, err
		}
		for _, tid := range keys {
			if !errors.Is(unix.Kill(int(tid), 0), unix.ESRCH) {
				continue
			}
			if _, err := o.Calls().ForgetThread.Run(&ebpf.RunOptions{Context: abi.Forget{Tid: uint32(tid)}}); err != nil {
				return n, fmt.Errorf("forget thread %d: %w", tid, err)
			}
			n++
		}
	}
	return n, nil
}

// ReclaimPairs frees the slots of begun work of declared pairs whose exit cannot come:
// its key holds a thread that is gone, it is older than ages has for its pair, or its
// pair is not there.
func (o *Objects) ReclaimPairs(ages map[uint32]time.Duration) (int, error) {
	if !o.tracks(rules.Pair) {
		return 0, nil
	}
	now := linux.Monotonic()
	keys, slots := o.Maps().PairKeys, o.Maps().PairSlots
	reclaimed := 0
	for i := range keys.MaxEntries() {
		var b abi.Bucket
		if err := keys.Lookup(i, &b); err != nil {
			return reclaimed, fmt.Errorf("read the pending table of pairs: %w", err)
		}
		for k, key := range b.Key {
			if key == 0 {
				continue
			}
			index := i*abi.BucketKeys + uint32(k)
			var s abi.PairSlot
			if err := slots.Lookup(index, &s); err != nil {
				return reclaimed, fmt.Errorf("read the pending table of pairs: %w", err)
			}
			age := time.Duration(now - s.StartNs)
			limit, known := ages[s.Pair]
			gone := s.OwnTask != 0 && errors.Is(unix.Kill(int(s.Tid), 0), unix.ESRCH)
			if s.StartNs == 0 || known && age < limit && !gone {
				continue
			}
			did, err := o.Calls().ForgetPair.Run(&ebpf.RunOptions{Context: abi.StaleSlot{StartNs: s.StartNs, Index: index}})
			if err != nil {
				return reclaimed, fmt.Errorf("forget begun work of a pair: %w", err)
			}
			reclaimed += int(did)
		}
	}
	return reclaimed, nil
}

// expireSpans frees the slots of spans older than most.
func (o *Objects) expireSpans(most time.Duration) (int, error) {
	if !o.Plan().Tracks[rules.Span] {
		return 0, nil
	}
	now := linux.Monotonic()
	memory, err := o.Maps().SpanSlots.Memory()
	if err != nil {
		return 0, fmt.Errorf("map the pending table of spans: %w", err)
	}
	const size, start = int(unsafe.Sizeof(abi.SpanSlot{})), int(unsafe.Offsetof(abi.SpanSlot{}.StartNs))
	expired := 0
	for i := range int(o.Maps().SpanSlots.MaxEntries()) {
		var word [8]byte
		if _, err := memory.ReadAt(word[:], int64(i*size+start)); err != nil {
			return expired, fmt.Errorf("read the pending table of spans: %w", err)
		}
		began := binary.LittleEndian.Uint64(word[:])
		if began == 0 || time.Duration(now-began) < most {
			continue
		}
		// If it has ended by now, or another one stands in its slot, nothing happens.
		did, err := o.Calls().ExpireSpan.Run(&ebpf.RunOptions{Context: abi.StaleSlot{StartNs: began, Index: uint32(i)}})
		if err != nil {
			return expired, fmt.Errorf("expire a span: %w", err)
		}
		expired += int(did)
	}
	return expired, nil
}

// staleWork is how old a waiting work item must be to be asked whether it still waits.
const staleWork = 10 * time.Second

// reclaimWork frees the slots of work items that were cancelled before they ran:
// no tracepoint tells.
func (o *Objects) reclaimWork() (int, error) {
	if !o.Plan().Tracks[rules.Workqueue] {
		return 0, nil
	}
	now := linux.Monotonic()
	o.tables.mu.Lock()
	p := o.tables.list[abi.TableWorks]
	o.tables.mu.Unlock()
	_, slots, _ := p.Maps(o.Maps())
	reclaimed := 0
	for n, keys := range p.parts {
		if n > 0 {
			slots = p.maps[2*n-1]
		}
		for i := range keys.MaxEntries() {
			var b abi.Bucket
			if err := keys.Lookup(i, &b); err != nil {
				return reclaimed, fmt.Errorf("read the pending table of workqueue: %w", err)
			}
			for k, key := range b.Key {
				if key == 0 || key&abi.PhaseRun != 0 {
					continue
				}
				index := i*abi.BucketKeys + uint32(k)
				var s abi.WorkSlot
				if err := slots.Lookup(index, &s); err != nil {
					return reclaimed, fmt.Errorf("read the pending table of workqueue: %w", err)
				}
				if s.StartNs == 0 || time.Duration(now-s.StartNs) < staleWork {
					continue
				}
				arg := abi.StaleSlot{StartNs: s.StartNs, Index: uint32(n)<<abi.SegmentShift | index}
				did, err := o.Calls().ReclaimWork.Run(&ebpf.RunOptions{Context: arg})
				if err != nil {
					return reclaimed, fmt.Errorf("reclaim a work item: %w", err)
				}
				reclaimed += int(did)
			}
		}
	}
	return reclaimed, nil
}
