package explain

import (
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// submit hands a request to a disk; done is called in the interrupt that it ends with.
func (m *machine) submit(t *actor, d *disk, bytes, flags uint32, done func(c *simCPU, context uint32)) *simIO {
	m.serial++
	r := &simIO{rq: 0xffff8800_0000_0000 + m.serial%97<<8 + uint64(d.dev)<<24, by: t, bytes: bytes, flags: flags, queued: m.now, done: done, requeue: m.rnd.IntN(8) == 0}
	r.sector = 8 * m.serial
	for slices.ContainsFunc(d.all, func(o *simIO) bool { return o.rq == r.rq && o.answers == 0 }) {
		r.rq += 0x10000
	}
	d.all = append(d.all, r)
	if d.depth > 0 {
		m.block1(t.cpu, trace.BlockInsert, d, r)
	}
	if d.depth > 0 && len(d.inside) >= d.depth {
		d.queue = append(d.queue, r)
		return r
	}
	m.issue(t.cpu, d, r)
	return r
}

func (m *machine) block1(c *simCPU, kind trace.Type, d *disk, r *simIO) {
	b := trace.Block{RQ: r.rq, Sector: r.sector, Dev: d.dev, Bytes: r.bytes, Flags: r.flags}
	if c.current != nil {
		b.Comm = c.current.comm()
	}
	m.emit(c, kind, b)
}

// issue lets the device work on a request.
func (m *machine) issue(c *simCPU, d *disk, r *simIO) {
	m.block1(c, trace.BlockIssue, d, r)
	d.inside = append(d.inside, r)
	r.issued = m.now
	if r.requeue { // the device is busy, and an interrupt tries again
		r.requeue = false
		m.at(m.us(20, 400), func() {
			on := m.anyCPU()
			m.interrupt(on, m.irq(d.irq, func() {
				d.inside = slices.DeleteFunc(d.inside, func(o *simIO) bool { return o == r })
				first := r.issued
				m.issue(on, d, r)
				r.issued = first
			}))
		})
		return
	}
	takes := m.us(30, 900) + uint64(r.bytes)*2
	if !d.serial {
		r.served = m.now
		m.at(takes, func() { m.answer(d, r) })
		return
	}
	takes = 30_000 + uint64(r.bytes)*2
	r.served = max(m.now, d.free)
	d.free = r.served + takes
	m.at(d.free-m.now, func() { m.answer(d, r) })
}

// answer ends a request.
func (m *machine) answer(d *disk, r *simIO) {
	c := m.anyCPU()
	end := func(context uint32) {
		m.block1(c, trace.BlockComplete, d, r)
		r.answers = m.now
		d.inside = slices.DeleteFunc(d.inside, func(o *simIO) bool { return o == r })
		if r.done != nil {
			r.done(c, context)
		}
		if len(d.queue) > 0 {
			next := d.queue[0]
			d.queue = d.queue[1:]
			m.issue(c, d, next)
		}
	}
	if m.rnd.IntN(2) == 0 {
		m.interrupt(c, m.irq(d.irq, func() { end(abi.WakerIrq | uint32(d.irq)) }))
		return
	}
	m.interrupt(c, m.irq(d.irq, nil), m.softirq(softirqBlock, func() { end(inBlock) }))
}

func (m *machine) anyDisk() *disk { return m.disks[m.rnd.IntN(len(m.disks))] }

// waitDisk submits a request, and waits for it.
func (m *machine) waitDisk(t *actor, d *disk, bytes, flags uint32, sw trace.Switch, as func(*simIO) reason, then func()) {
	var r *simIO
	r = m.submit(t, d, bytes, flags, func(c *simCPU, context uint32) { m.wake(c, t, context, as(r)) })
	sw.IOWait = true
	m.block(t, sw, then)
}

// ofDisk is why a wait for a request took its time.
func ofDisk(d *disk) func(*simIO) reason {
	return func(r *simIO) reason { return reason{key: diskKey(d), before: d.ahead(r), disk: d} }
}

// ahead returns what was in the way of a request until the device served it.
func (d *disk) ahead(r *simIO) []share {
	var out []share
	at := r.queued
	add := func(to uint64, k key) {
		if to > at {
			out = append(out, share{to: to, key: k})
			at = to
		}
	}
	if !d.serial { // the queue before it may have been full
		if r.issued > r.queued {
			add(r.issued, d.inWay(r, r.queued, r.issued))
		}
		return out
	}
	for _, o := range d.all {
		if o == r || o.served == 0 || o.served >= r.served {
			continue
		}
		end := o.answers
		if end == 0 {
			end = forever
		}
		k := diskKey(d)
		if o.by != nil && o.by != r.by {
			k = taskKey(BlockQueue, o.by)
		}
		if end > at {
			add(min(end, r.served), k)
		}
	}
	return out
}

// inWay is who has used a disk most between two times, other than a request's own task.
func (d *disk) inWay(r *simIO, from, to uint64) key {
	sums := map[*actor]uint64{}
	var best *actor
	for _, o := range d.all {
		lo, hi := max(o.issued, from), min(o.answers, to)
		if o == r || o.by == r.by || o.by == nil || o.issued == 0 || o.answers == 0 || lo >= hi {
			continue
		}
		if sums[o.by] += hi - lo; best == nil || sums[o.by] > sums[best] {
			best = o.by
		}
	}
	if best == nil {
		return diskKey(d)
	}
	return taskKey(BlockQueue, best)
}

func (m *machine) readDisk(t *actor, then func()) {
	d := m.anyDisk()
	m.waitDisk(t, d, 4096<<m.rnd.IntN(6), 0, inKernel(callRead), ofDisk(d), then)
}

// writeAside writes something, and does not wait.
func (m *machine) writeAside(t *actor, then func()) {
	m.submit(t, m.anyDisk(), 4096<<m.rnd.IntN(8), 1, nil)
	m.compute(t, m.us(5, 50), then)
}

// pageFault waits for a page.
func (m *machine) pageFault(t *actor, then func()) {
	d := m.anyDisk()
	m.waitDisk(t, d, 4096, 0, inKernel(trace.CallException), func(r *simIO) reason {
		why := ofDisk(d)(r)
		why.within = PageFault
		return why
	}, then)
}

// reclaim frees memory for itself, and writes to a disk for that.
func (m *machine) reclaim(t *actor, then func()) {
	m.emit(t.cpu, trace.ReclaimBegin, trace.Reclaim{})
	from := m.now
	end := func() {
		m.emit(t.cpu, trace.ReclaimEnd, trace.Reclaim{Reclaimed: 32})
		t.notes = append(t.notes, note{Interval{from, m.now}, key{cause: Reclaim}, nil})
		m.compute(t, m.us(1, 20), then)
	}
	m.compute(t, m.us(20, 800), func() {
		if m.rnd.IntN(2) == 0 {
			end()
			return
		}
		d := m.anyDisk()
		t.hope = &reason{key: key{cause: Reclaim}}
		m.waitDisk(t, d, 64<<10, 1, inKernel(callWrite), func(r *simIO) reason { why := ofDisk(d)(r); why.within = Reclaim; return why }, func() { m.compute(t, m.us(5, 50), end) })
	})
}

// Limits.

func limitKey(w wait) key { return key{cause: Limited, name: waits[w].name} }

func (m *machine) dirty(t *actor, then func()) {
	sw := inKernel(callWrite)
	sw.IOWait = true
	m.until(t, m.us(200, 5000), m.byTimer(fnTimeout, trace.TCPTimer{}), inTimer, reason{key: limitKey(waitDirtyPages)})
	m.block(t, sw, then)
}

func (m *machine) ioCost(t *actor, then func()) {
	m.until(t, m.us(200, 4000), m.byHrtimer(fnIOCost), inHrtimer, reason{key: limitKey(waitIODelay)})
	sw := inKernel(callRead)
	sw.IOWait = true
	m.block(t, sw, then)
}

func (m *machine) memoryHigh(t *actor, then func()) {
	m.emit(t.cpu, trace.ReclaimBegin, trace.Reclaim{Memcg: true})
	from := m.now
	m.compute(t, m.us(10, 100), func() {
		m.emit(t.cpu, trace.ReclaimEnd, trace.Reclaim{Memcg: true})
		t.notes = append(t.notes, note{Interval{from, m.now}, key{cause: Reclaim}, nil})
		m.compute(t, m.us(1, 20), func() {
			m.until(t, m.us(200, 4000), m.byTimer(fnTimeout, trace.TCPTimer{}), inTimer, reason{key: limitKey(waitMemoryHigh)})
			m.block(t, inKernel(trace.CallNone), then)
		})
	})
}

// ioMax waits for a request that a limit holds back: a work item submits it later.
func (m *machine) ioMax(t *actor, then func()) {
	d := m.anyDisk()
	m.at(m.us(200, 3000), func() {
		c := m.anyCPU()
		m.interrupt(c, m.timer(fnTimeout, trace.TCPTimer{}, func() {
			m.enqueueWork(c, inTimer, nil, m.workers[1], fnDispatch, func(w *kworker, then func()) {
				var r *simIO
				r = m.submit(w.t, d, 4096, 0, func(c *simCPU, context uint32) {
					why := ofDisk(d)(r)
					why.before = append([]share{{to: r.queued, key: limitKey(waitIOLimit)}}, why.before...)
					why.issuer = w.t
					m.wake(c, t, context, why)
				})
				m.compute(w.t, m.us(2, 20), then)
			}, nil)
		}))
	})
	sw := inKernel(callRead)
	sw.IOWait = true
	m.block(t, sw, then)
}

// Work.

// enqueueWork queues a work item in a context on a CPU.
func (m *machine) enqueueWork(c *simCPU, context uint32, by *actor, w *kworker, function uint64, run func(*kworker, func()), done func(*kworker)) {
	m.serial++
	x := simWork{address: 0xaaaa0000 + m.serial%5000*64, function: function, queued: m.now, by: by, run: run, done: done}
	m.emit(c, trace.WorkQueued, trace.WorkQueue{Work: x.address, Function: function, Name: w.t.names[0], Context: context})
	w.queue = append(w.queue, x)
	if w.idle {
		w.idle = false
		w.woken(m.now, by)
		m.wake(c, w.t, context, reason{key: key{cause: WorkQueue}, by: by})
	}
}

// woken notes who has woken a worker; nil: it is idle again, or an interrupt has.
func (w *kworker) woken(at uint64, by *actor) {
	w.wakers = append(w.wakers, note{Interval: Interval{at, forever}, by: by})
}

// serve is the life of a worker.
func (m *machine) serve(w *kworker) {
	if len(w.queue) == 0 {
		w.idle = true
		w.woken(m.now, nil)
		m.block(w.t, trace.Switch{PrevState: 0x402, Call: trace.CallNone}, func() { m.serve(w) })
		return
	}
	x := w.queue[0]
	w.queue = w.queue[1:]
	plain := w == m.journal
	if !plain {
		m.emit(w.t.cpu, trace.WorkStart, trace.Work{Work: x.address, Function: x.function})
	}
	from := m.now
	x.run(w, func() {
		w.log = append(w.log, note{Interval{from, m.now}, key{cause: WorkQueue, name: machineNames.Function(x.function)}, x.by})
		if x.done != nil {
			x.done(w)
		}
		if !plain {
			m.emit(w.t.cpu, trace.WorkEnd, trace.Work{Work: x.address, Function: x.function})
		}
		m.compute(w.t, m.us(1, 10), func() { m.serve(w) })
	})
}

func workKey(function uint64) key {
	return key{cause: WorkQueue, name: machineNames.Function(function)}
}

// ahead is what the worker did from a time on until it came to what it does now.
func (w *kworker) ahead(queued uint64, before []share) []share {
	own := w.log[len(w.log)-1].key
	for _, x := range w.log[:len(w.log)-1] {
		if x.To > queued {
			before = append(before, share{to: x.From, key: own}, share{to: x.To, key: x.key})
		}
	}
	return before
}

// effort is what a work item does.
func (m *machine) effort(w *kworker, then func()) {
	if m.rnd.IntN(2) == 0 {
		m.compute(w.t, m.us(5, 1500), then)
		return
	}
	m.compute(w.t, m.us(5, 300), func() { m.readDisk(w.t, then) })
}

// flush queues a work item and waits for it.
func (m *machine) flush(t *actor, then func()) {
	w, queued := m.workers[m.rnd.IntN(2)], m.now
	m.enqueueWork(t.cpu, 0, t, w, fnFlush, m.effort, func(w *kworker) {
		m.wake(w.t.cpu, t, 0, reason{key: workKey(fnFlush), by: w.t, before: w.ahead(queued, nil), worker: w})
	})
	m.block(t, inKernel(callWrite), then)
}

// event waits for a work item that an interrupt queues.
func (m *machine) event(t *actor, then func()) {
	m.at(m.us(100, 3000), func() {
		c := m.anyCPU()
		m.interrupt(c, m.irq(4, func() {
			queued := m.now
			m.enqueueWork(c, abi.WakerIrq|4, nil, m.workers[0], fnEvent, m.effort, func(w *kworker) {
				m.wake(w.t.cpu, t, 0, reason{key: workKey(fnEvent), by: w.t, worker: w,
					before: w.ahead(queued, []share{{to: queued, key: key{cause: IRQ, name: irqNames[4]}}})})
			})
		}))
	})
	m.block(t, asleep(callRead), then)
}

// fsync waits for the commit of the journal.
func (m *machine) fsync(t *actor, then func()) {
	x := simWork{queued: m.now, by: t, run: m.effort, done: func(w *kworker) {
		m.wake(w.t.cpu, t, 0, reason{key: taskKey(Journal, w.t), by: w.t, worker: w})
	}}
	w := m.journal
	w.queue = append(w.queue, x)
	if w.idle {
		w.idle = false
		w.woken(m.now, t)
		m.wake(t.cpu, w.t, 0, reason{key: taskKey(Task, t), by: t})
	}
	m.block(t, inKernel(callFsync), then)
}
