package detect

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
)

// irqs is how many interrupts wakersByIRQ can tell apart.
const irqs = 4096

// wakersByIRQ counts, by programs of the test's own, the wake-ups of sleeping tasks of
// a name (of which 8 bytes count) by each interrupt: inside its handlers, and in
// the softirq BLOCK that they raise.
func wakersByIRQ(t *testing.T, comm string) func() map[uint32]int {
	t.Helper()
	const ( // in the value of a CPU: interrupts, and 1
		handler = 4 * iota // whose handler runs
		raiser             // whose handler has raised BLOCK
		softirq            // for which BLOCK runs
		size

		block = 4 // enum in linux/interrupt.h
	)
	cpus := newMap(t, ebpf.PerCPUArray, 4, size, 1)
	wakeups := newMap(t, ebpf.Array, 4, 8, irqs)
	// onCPU is a program that keeps its first argument in R6 and has the CPU's value in R0.
	onCPU := func(tracepoint string, program ...asm.Instruction) {
		t.Helper()
		attachTo(t, tracepoint, join(
			asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), asm.Mov.Imm(asm.R1, 0)},
			lookup(cpus, asm.R1, "out"), program,
		))
	}
	onCPU("irq_handler_entry", asm.Add.Imm(asm.R6, 1), asm.StoreMem(asm.R0, handler, asm.R6, asm.Word))
	onCPU("irq_handler_exit", asm.StoreImm(asm.R0, handler, 0, asm.Word))
	onCPU("softirq_raise",
		asm.JNE.Imm(asm.R6, block, "out"),
		asm.LoadMem(asm.R1, asm.R0, handler, asm.Word), asm.StoreMem(asm.R0, raiser, asm.R1, asm.Word))
	onCPU("softirq_entry",
		asm.JNE.Imm(asm.R6, block, "out"),
		asm.LoadMem(asm.R1, asm.R0, raiser, asm.Word), asm.StoreMem(asm.R0, softirq, asm.R1, asm.Word))
	onCPU("softirq_exit", asm.JNE.Imm(asm.R6, block, "out"), asm.StoreImm(asm.R0, softirq, 0, asm.Word))
	onCPU("sched_waking", join(
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R6, field(t, "comm"), asm.DWord),
			asm.LoadImm(asm.R2, int64(binary.NativeEndian.Uint64([]byte(comm))), asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, "out"),
			asm.LoadMem(asm.R1, asm.R6, field(t, "on_rq"), asm.Byte), // it has not left its CPU yet
			asm.JNE.Imm(asm.R1, 0, "out"),
			asm.LoadMem(asm.R6, asm.R0, handler, asm.Word),
			asm.JNE.Imm(asm.R6, 0, "found"),
			asm.LoadMem(asm.R6, asm.R0, softirq, asm.Word),
			asm.JEq.Imm(asm.R6, 0, "out"),
			asm.Sub.Imm(asm.R6, 1).WithSymbol("found"),
		},
		lookup(wakeups, asm.R6, "out"),
		asm.Instructions{asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord)},
	)...)
	return func() map[uint32]int {
		t.Helper()
		counts := map[uint32]int{}
		for irq := range uint32(irqs) {
			var n uint64
			assert.NilError(t, wakeups.Lookup(irq, &n))
			if n > 0 {
				counts[irq] = int(n)
			}
		}
		return counts
	}
}

// A direct read of a real disk comes back by interrupt: to the task in a few
// stages, all of which the chain names. Which interrupt that is, and how often
// it woke the reader, is what another tracer says.
func TestChainDisk(t *testing.T) {
	needRoot(t)
	const requests = 200
	file := newOrdinary(t, 1<<20)
	wakers := wakersByIRQ(t, "inj-block")
	var disk uint32
	for try := 0; wakers()[disk] < requests/4; try++ {
		if try == 5 {
			t.Skipf("%v of %d reads were ended by interrupts: this disk has none of its own, or is polled", wakers(), try*requests)
		}
		inject.Run(t, "block", file.path, "read", "4096", fmt.Sprint(requests), "1")
		for irq, n := range wakers() {
			if n > wakers()[disk] {
				disk = irq
			}
		}
	}
	rule := func(name string, when rules.Match) rules.Rule {
		when.Comm, when.From, when.Ends = []string{"inj-block"}, []rules.Origin{rules.FromIRQ}, []rules.End{rules.ToRun}
		return rules.Rule{Name: name, Track: rules.Chain, Threshold: time.Microsecond, When: when}
	}
	// woken runs reads, and returns them and how many of them the disk's interrupt ended.
	woken := func() ([]inject.Event, int) {
		t.Helper()
		before := wakers()[disk]
		reads := inject.Run(t, "block", file.path, "read", "4096", fmt.Sprint(requests), "1")
		return reads, wakers()[disk] - before
	}
	c := watch(t, []rules.Rule{rule("any", rules.Match{})}, nil)
	reads, want := woken()
	ways, found := map[string]int{}, map[uint32]int{}
	for _, o := range c.settle() {
		way := stagesOf(t, o)
		ways[way]++
		number, name, _ := strings.Cut(strings.TrimPrefix(o.Chain.Origin, "irq "), " ")
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || name == "" || !strings.HasPrefix(way, "irq ") || !strings.HasSuffix(way, "wakeup") {
			t.Errorf("origin %q, way %s", o.Chain.Origin, way)
			continue
		}
		found[uint32(n)]++
	}
	t.Logf("%d reads ended by interrupt %d, chains by interrupt %v: %v", want, disk, found, ways)
	assert.Check(t, found[disk]+c.unseenOf(reads) >= want*9/10, "found %d chains of %d", found[disk], want)

	c = watch(t, []rules.Rule{
		rule("this", rules.Match{IRQ: []uint32{disk}}),
		rule("others", rules.Match{NotIRQ: []uint32{disk}}),
		rule("network", rules.Match{IRQ: []uint32{disk}, Vector: []rules.Vector{"net_rx"}}),
	}, nil)
	reads, want = woken()
	byRule := map[string]int{}
	for _, o := range c.settle() {
		byRule[o.Rule]++
		ours := strings.HasPrefix(o.Chain.Origin, fmt.Sprintf("irq %d ", disk))
		assert.Check(t, ours == (o.Rule == "this"), "rule %s reports %s", o.Rule, o.Chain.Origin)
	}
	t.Logf("interrupt %d: %d reads, %v", disk, want, byRule)
	assert.Check(t, byRule["this"]+c.unseenOf(reads) >= want*9/10, "found %v of %d reads", byRule, want)
	c.carriesNothing()
}
