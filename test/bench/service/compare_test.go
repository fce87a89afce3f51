package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/bench/hooked"
	"github.com/tailcam/tailcam/test/bench/peer"
)

// paid is a client that takes 10 us for a request, and more for each part that is in.
type paid struct {
	more  map[string]float64
	in    map[string]bool
	marks []float64 // what a request takes from then on
	fails int       // which mark does; 0: none
}

func (p *paid) goOn(context.Context) (steady, error) { return p, nil }

func (p *paid) mark() error {
	ns := 10_000.0
	for name, is := range p.in {
		if is {
			ns += p.more[name]
		}
	}
	p.marks = append(p.marks, ns)
	if len(p.marks) == p.fails {
		return errors.New("it has ended")
	}
	return nil
}

func (p *paid) end() (list []window, err error) {
	for _, ns := range p.marks {
		list = append(list, window{ns, []float64{ns, 2 * ns}})
	}
	return list, nil
}

func (p *paid) part(name string) part {
	set := func(in bool) func() error { return func() error { p.in[name] = in; return nil } }
	return part{name: name, in: set(true), out: set(false)}
}

// measured are rows of visits whose windows the client has told of.
func measured(t *testing.T, b *bench, p *paid, visits []visit) string {
	t.Helper()
	windows, err := p.end()
	assert.NilError(t, err)
	for i := range visits {
		visits[i].window = windows[2*i]
	}
	var text strings.Builder
	assert.NilError(t, printRows(&text, "a load", b.rows(visits)))
	return strings.Join(strings.Fields(text.String()), " ")
}

// TestCompare has each part in and out as often, the other set's out meanwhile, and all as it was
// after that; a tailcam as a whole is compared with nothing attached in the same block.
func TestCompare(t *testing.T) {
	const all = "x" + withDaemon
	empty := emptyOf("x")
	p := &paid{more: map[string]float64{empty: 1000, "free": 0, all: 500, "left out": 0}, in: map[string]bool{}}
	b := &bench{opts: &options{seconds: 0.001, match: regexp.MustCompile("its own|free|daemon")}, variants: []variant{{name: "x", ours: true}}}
	out, in := &set{parts: []part{p.part(empty), p.part("free"), p.part("left out")}}, &set{parts: []part{p.part(all)}, slots: slots{}}
	visits, err := b.compare(t.Context(), p, 5, out)
	assert.NilError(t, err)
	assert.Check(t, !p.in[empty] && !p.in["free"], "left: %v", p.in)
	for i := range visits {
		visits[i].nothing = !visits[i].in
	}
	p.more["attached"], p.in["attached"] = 2000, true
	more, err := b.compare(t.Context(), p, 5, in)
	assert.NilError(t, err)
	assert.Check(t, p.in[all], "left: %v", p.in)
	printed := measured(t, b, p, append(visits, more...))
	for _, want := range []string{
		empty + " 10.00 us 1.100 (1.100 to 1.100) 1.100 (1.100 to 1.100) 1.100 (1.100 to 1.100)", "free 10.00 us 1.000 (1.000 to 1.000)",
		all + " 12.00 us 1.042 (1.042 to 1.042)", "x: in all, with what empty programs take 12.00 us 1.146 (1.146 to 1.146)",
		"x: as a whole 10.00 us 1.250 (1.250 to 1.250)",
	} {
		assert.Check(t, strings.Contains(printed, want), "no %q in %q", want, printed)
	}

	assert.Check(t, !strings.Contains(printed, "left out"), printed)

	p.fails = len(p.marks) + 6
	_, err = b.compare(t.Context(), p, 5, out, in)
	assert.Check(t, err != nil && !p.in[empty] && !p.in["free"], "%v, left: %v", err, p.in)
}

// TestSlots finds the programs that are jumped to, by their maps, takes them out and puts them back.
func TestSlots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	known := map[ebpf.MapID]bool{}
	before, err := slotsBut(known)
	assert.NilError(t, err)
	assert.NilError(t, before.close())
	arrays := map[string]*ebpf.Map{}
	for _, name := range []string{"one", "two", "empty"} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		assert.NilError(t, err)
		t.Cleanup(func() { assert.Check(t, m.Close()) })
		arrays[name] = m
		if name == "empty" {
			continue
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: hooked.Empty(), License: "GPL"})
		assert.NilError(t, err)
		t.Cleanup(func() { assert.Check(t, p.Close()) })
		assert.NilError(t, m.Put(uint32(0), p))
	}
	found, err := slotsBut(known)
	assert.NilError(t, err)
	defer func() { assert.Check(t, found.close()) }()
	assert.Check(t, len(found) == 2 && found["one"].program != nil && found["two"].program != nil, "found %v", found)
	for _, in := range []bool{false, false, true, true} {
		assert.NilError(t, found.all(in))
		var id uint32
		err := arrays["two"].Lookup(uint32(0), &id)
		assert.Check(t, (err == nil) == in && (in || errors.Is(err, ebpf.ErrKeyNotExist)), "in: %t, %v", in, err)
	}
}

// TestHooks attaches where it is told to, and to nothing if it cannot everywhere.
func TestHooks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches to the kernel")
	}
	before := links(t)
	list := compared()
	for i := range list {
		assert.NilError(t, list[i].set(true), list[i].name)
		assert.Check(t, links(t) > before, "%s attaches nothing", list[i].name)
		assert.NilError(t, list[i].set(false), list[i].name)
		assert.Check(t, links(t) == before, "%s stays attached", list[i].name)
		assert.NilError(t, list[i].end(), list[i].name)
	}
	own := onHooks("own", hooked.Empty(), "sched_switch", "sched_waking")
	assert.NilError(t, own.set(true))
	had, err := peer.FilesOf(os.Getpid())
	assert.NilError(t, err)
	at := had.Tracepoints
	assert.Check(t, slices.Contains(at, "sched_switch") && slices.Contains(at, "sched_waking") && len(at) == 2, "attached to %v", at)
	assert.NilError(t, own.set(false))
	defer func() { assert.Check(t, own.end()) }()
	self := &daemon{name: "this", server: &server{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}}
	_, err = self.empty()
	assert.ErrorContains(t, err, "attached nothing")

	bad := onHooks("bad", asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, "sched_switch", "no_such_tracepoint")
	assert.Check(t, bad.set(true) != nil)
	assert.NilError(t, bad.end())
	assert.Check(t, links(t) == before, "links are left")
}

// links counts those that this process keeps.
func links(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	for _, f := range list {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.Contains(to, "bpf_link") {
			n++
		}
	}
	return n
}

// TestAsker has the latencies of who asks, and says if nobody answers any more.
func TestAsker(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	defer func() { assert.Check(t, l.Close()) }()
	const delay = 2 * time.Millisecond
	end := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		for buf := make([]byte, 64); ; {
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) != "and?" {
				return
			}
			time.Sleep(delay)
			select {
			case <-end:
				return
			default:
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	a, err := ask(port, "and?", place{})
	assert.NilError(t, err)
	from := time.Now()
	time.Sleep(50 * time.Millisecond)
	to := time.Now()
	close(end)
	time.Sleep(20 * time.Millisecond)
	list, err := a.end()
	assert.Check(t, err != nil, "nobody answers, and that is no error")
	took := between([]time.Time{from, to}, list)[1]
	assert.Check(t, len(took) > 3, "asked %d times in 50 ms", len(took))
	for _, ns := range took {
		assert.Check(t, ns >= float64(delay), "an answer after %v ns", ns)
	}
}
