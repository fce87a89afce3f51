package snapshot

import (
	"runtime/debug"
	"runtime/metrics"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// gcPause is Go's collector, held while snapshots are under way whose threads
// have a real-time priority: it works on ordinary threads, and who allocates
// meanwhile waits for them. Under Manager.mu.
type gcPause struct {
	active  bool
	percent int
	limit   int64
}

// gcHeadroom is what may be allocated while the collector is held, but for
// records, before it is needed all the same. Explanations need the most.
const gcHeadroom = 256 << 20

// start stops the collector, until release or until there is too much: records
// is how many the rings of all CPUs hold.
func (g *gcPause) start(records int) {
	if g.active {
		return
	}
	g.active = true
	now := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(now)
	used := int64(now[0].Value.Uint64()-now[1].Value.Uint64()) + gcHeadroom + int64(records)*trace.RecordSize*8
	g.limit = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(used, g.limit))
	g.percent = debug.SetGCPercent(-1)
}

// end lets it work again.
func (g *gcPause) end() {
	if !g.active {
		return
	}
	g.active = false
	debug.SetGCPercent(g.percent)
	debug.SetMemoryLimit(g.limit)
}
