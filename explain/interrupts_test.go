package explain

import (
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// simFrame is something that runs on top of a task.
type simFrame struct {
	enter, exit trace.Type
	body, end   any
	key         key
	ns          uint64
	begun, do   func()
	within      []simFrame
}

// interrupt runs frames on top of whatever a CPU does.
func (m *machine) interrupt(c *simCPU, frames ...simFrame) {
	if c.busy {
		c.pending = append(c.pending, frames)
		return
	}
	m.pause(c)
	c.busy = true
	m.frames(c, frames, func() { m.leave(c) })
}

// leave ends the interrupts of a CPU.
func (m *machine) leave(c *simCPU) {
	c.busy = false
	if len(c.pending) > 0 {
		frames := c.pending[0]
		c.pending = c.pending[1:]
		m.interrupt(c, frames...)
		return
	}
	resched := c.reschedule || c.current == nil
	c.reschedule = false
	m.proceed(c)
	if resched {
		m.preempt(c)
	}
}

// frames runs one after the other.
func (m *machine) frames(c *simCPU, list []simFrame, done func()) {
	if len(list) == 0 {
		done()
		return
	}
	f := list[0]
	note := func(kind trace.Type, body any, k *key) {
		if m.hooks || f.enter == trace.TimerEntry {
			if kind != 0 {
				m.emit(c, kind, body)
			}
			m.mark(c, k)
		}
	}
	note(f.enter, f.body, &f.key)
	if f.begun != nil {
		f.begun()
	}
	m.at(f.ns/2, func() {
		if f.do != nil {
			f.do()
		}
		m.frames(c, f.within, func() {
			note(0, nil, &f.key)
			m.at(f.ns/2+1, func() {
				note(f.exit, f.end, nil)
				m.frames(c, list[1:], done)
			})
		})
	})
}

// Frames that interrupts are made of.
func (m *machine) irq(number int, do func()) simFrame {
	x := trace.IRQ{IRQ: number, Name: irqNames[number]}
	return simFrame{enter: trace.IRQEntry, exit: trace.IRQExit, body: x, end: trace.IRQ{IRQ: number}, key: key{cause: IRQ, name: irqNames[number]}, ns: m.us(1, 30), do: do}
}

func (m *machine) softirq(vec uint32, do func()) simFrame {
	x := trace.Softirq{Vec: vec}
	return simFrame{enter: trace.SoftirqEntry, exit: trace.SoftirqExit, body: x, end: x, key: key{cause: Softirq, name: softirqNames[vec]}, ns: m.us(1, 60), do: do}
}

func (m *machine) hrtimer(function uint64, do func()) simFrame {
	m.serial++
	x := trace.Hrtimer{Hrtimer: m.serial, Function: function}
	return simFrame{enter: trace.HrtimerEntry, exit: trace.HrtimerExit, body: x, end: trace.Hrtimer{Hrtimer: m.serial}, key: key{cause: IRQ, name: machineNames.Function(function)}, ns: m.us(1, 10), do: do}
}

func (m *machine) timer(function uint64, tcp trace.TCPTimer, do func()) simFrame {
	m.serial++
	x := trace.Timer{Timer: m.serial, Function: function, TCP: tcp}
	f := simFrame{enter: trace.TimerEntry, exit: trace.TimerExit, body: x, end: trace.Timer{Timer: m.serial}, key: key{cause: IRQ, name: machineNames.Function(function)}, ns: m.us(1, 10), do: do}
	whole := m.softirq(softirqTimer, nil)
	whole.within = []simFrame{f}
	return whole
}

var (
	irqNames     = map[int]string{24: "nvme0q1", 25: "virtio1-req", 30: "eth0-rx", 4: "ttyS0"}
	softirqNames = map[uint32]string{softirqTimer: "TIMER", softirqNetRX: "NET_RX", softirqBlock: "BLOCK"}
)

// Contexts of wake-ups.
const (
	inHrtimer = abi.WakerHrtimer
	inTimer   = abi.WakerSoftirq | softirqTimer
	inBlock   = abi.WakerSoftirq | softirqBlock
	inRemote  = abi.WakerSoftirq | softirqNetRX | abi.WakerRemote
	inLocal   = abi.WakerSoftirq | softirqNetRX | abi.WakerLocal
)

// anyCPU is where a device interrupts.
func (m *machine) anyCPU() *simCPU { return m.cpus[m.rnd.IntN(len(m.cpus))] }

// noise has interrupts come that have nothing to do with anybody.
func (m *machine) noise() {
	c := m.anyCPU()
	switch m.rnd.IntN(3) {
	case 0:
		m.interrupt(c, m.irq(30, nil), m.softirq(softirqNetRX, nil))
	case 1:
		m.interrupt(c, m.hrtimer(fnSleep, nil))
	case 2:
		m.interrupt(c, m.irq(24, nil))
	}
	m.at(m.us(50, 2000), m.noise)
}
