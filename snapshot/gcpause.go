package snapshot

import (
	"runtime/debug"
	"runtime/metrics"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// gcPause suspends Go's garbage collector while real-time snapshots are in progress:
// its workers run at normal priority, and allocating threads may have to wait for them.
// Protected by Manager.mu.
type gcPause struct {
	active  bool
	percent int
	limit   int64 // of before
	paused  int64 // the limit meanwhile
}

// gcHeadroom is how much may be allocated, besides records, before the collector runs
// nevertheless. Explanations need the most.
const gcHeadroom = 256 << 20

// start suspends the collector until end, or until the heap exceeds gcHeadroom plus the
// given number of records.
func (g *gcPause) start(records int) {
	if g.active {
		return
	}
	g.active = true
	now := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(now)
	used := int64(now[0].Value.Uint64()-now[1].Value.Uint64()) + gcHeadroom + int64(records)*trace.RecordSize*8
	g.limit = debug.SetMemoryLimit(-1)
	g.paused = min(used, g.limit)
	debug.SetMemoryLimit(g.paused)
	g.percent = debug.SetGCPercent(-1)
}

// end restores the collector's settings, but a limit that somebody has changed meanwhile.
func (g *gcPause) end() {
	if !g.active {
		return
	}
	g.active = false
	debug.SetGCPercent(g.percent)
	if debug.SetMemoryLimit(-1) == g.paused {
		debug.SetMemoryLimit(g.limit)
	}
}
