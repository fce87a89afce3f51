package tracker

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

// reclaimSpans frees the places of spans that are older than any rule has use
// for. That the process which began one is gone says nothing: a script's often is.
func (t *Tracker) reclaimSpans() (int, error) {
	if !t.plan.tracks[rules.Span] {
		return 0, nil
	}
	most := t.opts.SpanAge
	t.mu.Lock()
	for _, r := range t.live.source {
		if r.Track != rules.Span {
			continue
		}
		most = max(most, 2*r.Threshold, 2*r.Timeout)
		for i := range r.Overrides {
			most = max(most, 2*r.Overrides[i].Threshold, 2*r.Overrides[i].Timeout)
		}
	}
	t.mu.Unlock()
	return t.expireSpans(most)
}

// expireSpans frees the places of spans older than most.
func (t *Tracker) expireSpans(most time.Duration) (int, error) {
	now := int64(linux.Monotonic())
	memory, err := t.objects.Maps["span_slots"].Memory()
	if err != nil {
		return 0, fmt.Errorf("map the pending table of spans: %w", err)
	}
	const size, at = int(unsafe.Sizeof(bpf.TailcamSpanSlot{})), int(unsafe.Offsetof(bpf.TailcamSpanSlot{}.StartNs))
	expired := 0
	for i := range int(t.objects.Maps["span_slots"].MaxEntries()) {
		var word [8]byte
		if _, err := memory.ReadAt(word[:], int64(i*size+at)); err != nil {
			return expired, fmt.Errorf("read the pending table of spans: %w", err)
		}
		start := binary.LittleEndian.Uint64(word[:])
		if start == 0 || time.Duration(now-int64(start)) < most {
			continue
		}
		// If it has ended by now, or another one stands in its place, nothing happens.
		did, err := t.objects.Programs["expire_span_at"].Run(&ebpf.RunOptions{Context: bpf.TailcamSpanOld{StartNs: start, Index: uint32(i)}})
		if err != nil {
			return expired, fmt.Errorf("expire a span: %w", err)
		}
		expired += int(did)
	}
	return expired, nil
}
