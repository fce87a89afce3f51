package tracker

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

// reclaimPairs frees the places of begun work whose exit cannot come: its key
// holds a thread that is gone, or it is older than its rule says.
func (t *Tracker) reclaimPairs() (int, error) {
	if !t.plan.tracks[rules.Pair] {
		return 0, nil
	}
	t.mu.Lock()
	ages := map[uint32]time.Duration{}
	for _, r := range t.live.source {
		if n, ok := t.pairs.numbers[r.Name]; ok {
			ages[n] = r.Forget()
		}
	}
	t.mu.Unlock()
	now := int64(linux.Monotonic())
	keys, slots := t.objects.Maps["pair_keys"], t.objects.Maps["pair_slots"]
	reclaimed := 0
	for i := range keys.MaxEntries() {
		var b bpf.TailcamBucket
		if err := keys.Lookup(i, &b); err != nil {
			return reclaimed, fmt.Errorf("read the pending table of pairs: %w", err)
		}
		for k, key := range b.Key {
			if key == 0 {
				continue
			}
			at := i*8 + uint32(k)
			var s bpf.TailcamPairSlot
			if err := slots.Lookup(at, &s); err != nil {
				return reclaimed, fmt.Errorf("read the pending table of pairs: %w", err)
			}
			age := time.Duration(now - int64(s.StartNs))
			limit, live := ages[s.Pair]
			gone := s.OwnTask != 0 && errors.Is(unix.Kill(int(s.Tid), 0), unix.ESRCH)
			if s.StartNs == 0 || live && age < limit && !gone {
				continue
			}
			arg := struct {
				Start uint64
				At, _ uint32
			}{Start: s.StartNs, At: at}
			did, err := t.objects.Programs["forget_pair"].Run(&ebpf.RunOptions{Context: arg})
			if err != nil {
				return reclaimed, fmt.Errorf("forget begun work of a pair: %w", err)
			}
			reclaimed += int(did)
		}
	}
	return reclaimed, nil
}
