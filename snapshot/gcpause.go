package snapshot

import (
	"runtime/debug"
	"runtime/metrics"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// garbage is Go's collector, held while snapshots are under way whose threads
// have a real-time priority: it works on ordinary threads, and who allocates
// meanwhile waits for them. Under Manager.mu.
type garbage struct {
	held    bool
	percent int
	limit   int64
}

// heldGarbage is what may be allocated while the collector is held, but for
// records, before it is needed all the same. Explanations need the most.
const heldGarbage = 256 << 20

// hold stops the collector, until release or until there is too much: records
// is how many the rings of all CPUs hold.
func (g *garbage) hold(records int) {
	if g.held {
		return
	}
	g.held = true
	now := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(now)
	used := int64(now[0].Value.Uint64()-now[1].Value.Uint64()) + heldGarbage + int64(records)*trace.RecordSize*8
	g.limit = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(used, g.limit))
	g.percent = debug.SetGCPercent(-1)
}

// release lets it work again.
func (g *garbage) release() {
	if !g.held {
		return
	}
	g.held = false
	debug.SetGCPercent(g.percent)
	debug.SetMemoryLimit(g.limit)
}
