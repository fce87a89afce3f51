package explain

import (
	"fmt"
	"sort"
	"strings"
)

// lateWake is how long after the end of a request it may wake who waits for its place.
const lateWake = 100_000

// tookItsPlace returns the request at whose end a task went on that waited, by its place in the
// kernel, until the disk's queue takes another one; nil: it did not. The request is not its own:
// it had none yet.
func (m *model) tookItsPlace(p *piece, wk *wake) *request {
	if p.site.Site == nil || p.site.Queue == "" {
		return nil
	}
	if wk.request != nil && wk.request.complete > p.from {
		return wk.request
	}
	i := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > wk.at }) - 1
	if i < 0 || m.requests[i].complete <= p.from || wk.at-m.requests[i].complete > lateWake {
		return nil
	}
	return m.requests[i]
}

// fullQueue is the disk of the longest wait for a place in a queue.
type fullQueue struct {
	device string
	ns     uint64
}

// placePiece explains a wait for a place in the queue of a request's disk: by the task that had
// most in it, also if the request is its own.
func (w *walker) placePiece(p piece, r *request) piece {
	device := w.m.whoDevice(r)
	p.cause, p.wait, p.evidence = BlockQueue, waitOf(p.site.Queue), byQueueShare
	p.by = w.m.busiest(r.dev, p.from, p.to, func(*request) bool { return false })
	if p.by == nil {
		p.by, p.evidence = device, byRecords
	}
	switch p.wait {
	case waitWBT:
		aims := ""
		if us := w.m.setting(device.Device + "/queue/wbt_lat_usec"); us != "" {
			aims = ", which aims at wbt_lat_usec " + us + ","
		}
		p.why = "writeback throttling of " + device.Name + aims + " held it back"
	case waitIOLatency:
		p.why = "io.latency of others on " + device.Name + w.m.latencyTargets() + " held it back"
	default:
		p.why = "the queue of " + device.Name + " was full"
	}
	if p.ns() > w.full.ns {
		w.full = fullQueue{device.Device, p.ns()}
	}
	return p
}

// adviseFullQueue advises on who fills the queue of a disk, and on what bounds that.
func (w *walker) adviseFullQueue(a *advised) string {
	limit := ""
	if a.By.Kind == KindTask {
		limit = fmt.Sprintf("Limit what %s writes or reads%s, or ", a.By.Name, w.ioLimit(a.By))
	}
	knob := func(name string) string {
		return fmt.Sprintf("%s of %s%s", name, w.full.device, w.m.now(w.full.device+"/queue/"+name))
	}
	s := "raise " + knob("nr_requests") + ": its queue is full."
	switch waitOf(a.Wait) {
	case waitWBT:
		s = "raise " + knob("wbt_lat_usec") + ", the latency that writeback throttling aims at; 0 turns it off."
	case waitIOLatency:
		s = "check io.latency of the cgroups that use " + w.full.device + w.m.latencyTargets() + "."
	}
	if limit == "" {
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return limit + s
}

// ofQueue reports whether a part is a wait for a place in the queue of a disk.
func (p *Part) ofQueue() bool {
	k := waitOf(p.Wait)
	return p.Cause == BlockQueue && (k == waitQueueFull || k == waitWBT || k == waitIOLatency)
}
