package perfetto

import (
	"cmp"
	"fmt"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// trackEvents writes what Perfetto does not draw from ftrace events itself.
func (w *Writer) trackEvents(ev *trace.Event) error {
	tid, cpu := uint64(ev.TID), uint64(ev.CPU)
	switch b := ev.Body.(type) {
	case trace.Block:
		return w.block(ev, &b)
	case trace.Lock:
		track := kindLock.track(tid)
		if ev.Type == trace.LockEnd {
			return w.ends(ev.Time, track)
		}
		s := slice{name: fmt.Sprintf("waits for lock %#x", b.Lock), args: message{}.intArg("flags", int64(b.Flags))}
		if b.OwnerTID > 0 {
			s.name += " of " + w.who(b.OwnerTID)
		}
		return w.onThread(ev, track, "locks", &s)
	case trace.Compaction:
		track := kindCompaction.track(tid)
		if ev.Type == trace.CompactionEnd {
			return w.ends(ev.Time, track)
		}
		return w.onThread(ev, track, "compaction", &slice{name: "compacts memory"})
	case trace.Fault:
		s := slice{kind: instant, name: fmt.Sprintf("page fault at %#x", b.Address)}
		return w.onThread(ev, kindFault.track(tid), "page faults", &s)
	case trace.KVM:
		track := kindGuest.track(tid)
		if ev.Type == trace.KVMExit {
			return w.ends(ev.Time, track)
		}
		return w.onThread(ev, track, "guest", &slice{name: fmt.Sprintf("runs the guest's CPU %d", b.VCPU)})
	case trace.Timer:
		track := kindTimer.track(cpu)
		if ev.Type == trace.TimerExit {
			return w.ends(ev.Time, track)
		}
		s := slice{name: fmt.Sprintf("%#x", b.Function)}
		if w.names.Function != nil {
			if name := w.names.Function(b.Function); name != "" {
				s.name = name
			}
		}
		return w.onCPU(ev, track, "timers", &s)
	case trace.Throttle:
		track := kindThrottled.track(b.Cgroup<<16 | uint64(b.CPU)&0xffff)
		if ev.Type == trace.CgroupUnthrottle {
			return w.ends(ev.Time, track)
		}
		s := slice{name: fmt.Sprintf("cgroup %d is out of quota", b.Cgroup)}
		return w.onCPU(ev, track, "throttled", &s)
	case trace.Stolen:
		track := kindStolen.track(cpu)
		s := slice{name: "stolen by the hypervisor", args: message{}.intArg("stolen_ns", int64(b.NS))}
		if err := w.cpuTrack(track, ev.CPU, "stolen"); err != nil {
			return err
		}
		if err := w.begins(min(b.Since, ev.Time), track, &s); err != nil {
			return err
		}
		return w.ends(ev.Time, track)
	}
	return nil
}

func (w *Writer) onThread(ev *trace.Event, track uint64, name string, s *slice) error {
	if ev.TID <= 0 {
		return nil // an idle CPU has no thread in Perfetto
	}
	if err := w.threaded(track, ev.TID, name); err != nil {
		return err
	}
	return w.begins(ev.Time, track, s)
}

func (w *Writer) onCPU(ev *trace.Event, track uint64, name string, s *slice) error {
	if err := w.cpuTrack(track, ev.CPU, name); err != nil {
		return err
	}
	return w.begins(ev.Time, track, s)
}

func (w *Writer) cpuTrack(track uint64, cpu int, name string) error {
	if w.tracks[track] {
		return nil
	}
	return w.grouped(track, groupCPU, fmt.Sprintf("CPU %d: %s", cpu, name))
}

// who writes a task as people know it.
func (w *Writer) who(tid int) string {
	if tid == 0 {
		return "swapper"
	}
	if t, ok := w.tasks[tid]; ok && t.comm != "" {
		return fmt.Sprintf("%s[%d]", t.comm, tid)
	}
	return fmt.Sprintf("task %d", tid)
}

// request is a block request on its way.
type request struct {
	dev  uint32
	lane int
}

// maxRequests bounds the requests that are looked after at a time.
const maxRequests = 1 << 16

// block draws a request from its issue to its completion, on the first lane of
// its device that is free.
func (w *Writer) block(ev *trace.Event, b *trace.Block) error {
	if ev.Type == trace.BlockInsert {
		return nil
	}
	if r, ok := w.requests[b.RQ]; ok {
		delete(w.requests, b.RQ)
		w.lanes[r.dev][r.lane] = false
		if err := w.ends(ev.Time, kindDisk.track(uint64(r.dev)<<16|uint64(r.lane))); err != nil {
			return err
		}
	}
	if ev.Type == trace.BlockComplete || len(w.requests) >= maxRequests {
		return nil
	}
	lanes := w.lanes[b.Dev]
	lane := 0
	for lane < len(lanes) && lanes[lane] {
		lane++
	}
	if lane == len(lanes) {
		lanes = append(lanes, false)
	}
	lanes[lane] = true
	w.lanes[b.Dev] = lanes
	w.requests[b.RQ] = request{b.Dev, lane}

	name := linux.Disk(b.Dev)
	if w.names.Device != nil {
		if s := w.names.Device(b.Dev); s != "" {
			name = s
		}
	}
	track := kindDisk.track(uint64(b.Dev)<<16 | uint64(lane))
	if err := w.grouped(track, groupDisks, name); err != nil {
		return err
	}
	return w.begins(ev.Time, track, &slice{
		name: fmt.Sprintf("%s %d B", cmp.Or(linux.BlockOp(b.Flags), "other"), b.Bytes),
		args: message{}.intArg("sector", int64(b.Sector)).textArg("flags", linux.RWBS(b.Flags)).textArg("task", w.who(ev.TID)),
	})
}
