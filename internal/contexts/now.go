package contexts

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/tracker/events"
)

// Thread is a thread that publishes a context.
type Thread struct {
	PID, TID int
	Trace    events.Trace
}

// recordWords are the words of a record, up to its flag.
const recordWords = 4

// Memory reads words of processes, which may be hostile.
type Memory interface {
	// Words is like process.Words.
	Words(pid int, addrs ...uint64) ([]uint64, process.Image, error)
}

// Read reads the contexts that threads publish now, until deadline. A thread may change its own
// meanwhile: what is other when it is read again is not believed.
func Read(from Memory, threads []abi.ContextThread, deadline time.Time) (list []Thread) {
	failed := map[uint32]bool{}
	for i := range threads {
		t := &threads[i]
		if time.Now().After(deadline) {
			break
		}
		if failed[t.Pid] {
			continue
		}
		trace, err := readOne(from, t)
		failed[t.Pid] = errors.Is(err, errExeced)
		if err == nil && trace.IsKnown() {
			list = append(list, Thread{PID: int(t.Pid), TID: int(t.Tid), Trace: trace})
		}
	}
	return list
}

// readOne reads the context of one thread; zeros: it has none.
func readOne(from Memory, t *abi.ContextThread) (trace events.Trace, err error) {
	at, err := variableAt(from, int(t.Pid), &t.Place, t.Pointer)
	if err != nil {
		return trace, err
	}
	words, image, err := from.Words(int(t.Pid), at)
	switch {
	case err != nil:
		return trace, err
	case image != process.Image{StartCode: t.Place.StartCode, StartStack: t.Place.StartStack}:
		return trace, errExeced
	case words[0] == 0 || words[0]&1 != 0:
		return trace, nil
	}
	var addresses [recordWords]uint64
	for i := range addresses {
		addresses[i] = words[0] + uint64(8*i)
	}
	record, _, err := from.Words(int(t.Pid), addresses[:]...)
	if err != nil {
		return trace, err
	}
	again, _, err := from.Words(int(t.Pid), append([]uint64{at}, addresses[:]...)...)
	if err != nil || again[0] != words[0] || [recordWords]uint64(again[1:]) != [recordWords]uint64(record) || record[3]&0xff != 1 {
		return trace, err
	}
	var raw [24]byte
	for i := range 3 {
		binary.NativeEndian.PutUint64(raw[8*i:], record[i])
	}
	copy(trace.ID[:], raw[:16])
	copy(trace.Span[:], raw[16:])
	return trace, nil
}

// variableAt is where the variable of a thread is, found as the kernel side does.
func variableAt(from Memory, pid int, place *abi.ContextPlace, pointer uint64) (uint64, error) {
	if place.Module == 0 {
		return pointer + uint64(place.Offset), nil
	}
	vector, _, err := from.Words(pid, pointer+uint64(int64(place.Vector)))
	if err != nil {
		return 0, err
	}
	words, _, err := from.Words(pid, vector[0]+uint64(int64(place.Length)), vector[0]+place.Module*uint64(place.Entry))
	switch {
	case err != nil:
		return 0, err
	case words[0] < place.Module:
		return 0, errors.New("the vector is too short")
	case words[1] == 0 || words[1] == ^uint64(0): // as in bpf/lib/thread_context.h
		return 0, errors.New("its module has no memory for this thread yet")
	}
	return words[1] + uint64(place.Offset), nil
}
