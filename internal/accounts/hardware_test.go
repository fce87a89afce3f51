package accounts

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
)

// TestCounters: what counters of the CPUs count while a thread runs goes to its token. An
// event that every machine has stands for those of hardware: the clock of the CPU.
func TestCounters(t *testing.T) {
	clock := hardware()
	for i := range clock {
		clock[i].kind, clock[i].config = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK
	}
	p := openWith(t, clock, Hardware)
	wrong := "not measured"
	for n := 0; wrong != "" && n < 5; n++ { // some machines keep a switch from every tracer: of such a slice nothing is known
		wrong = p.countClock()
	}
	assert.Equal(t, wrong, "")
}

// countClock tells what is wrong if the group hardware counts the clock of the CPU.
func (p *process) countClock() (wrong string) {
	mine, neighbour := p.token(), p.token()
	var ran uint64
	p.carryAll(work{mine, func() {
		sleep(time.Millisecond) // a slice begins
		begin := threadTime()
		spin(20 * time.Millisecond)
		ran = threadTime() - begin
		sleep(time.Millisecond)
	}}, work{neighbour, func() { sleep(20 * time.Millisecond) }})
	for _, v := range []int{abi.ActivityCycles, abi.ActivityInstructions, abi.ActivityCacheMissesHw} {
		got, other := p.value(mine, v), p.value(neighbour, v)
		// What goes by on the CPU while the thread's own clock stands is in it.
		if got*100 < ran*99 || got > p.value(mine, abi.ActivityCpuNs)*3/2 || other > ran/2 {
			wrong = fmt.Sprintf("%s: %d of %d, the neighbour has %d", values[v].Name, got, ran, other)
		}
	}
	return wrong
}

// TestNoCounters: a machine without them says so, and the rest of the groups goes on.
func TestNoCounters(t *testing.T) {
	p := openGroups(t, Hardware)
	slept := uint64(0)
	for n := 0; slept < 1e6 && n < 5; n++ { // see TestCounters
		token := p.token()
		p.carry(token, func() { sleep(time.Millisecond) })
		slept = p.value(token, abi.ActivityBlockedTimerNs)
	}
	assert.Check(t, slept >= 1e6)
	spec, err := bpf.LoadActivity()
	assert.NilError(t, err)
	m, err := ebpf.NewMap(spec.Maps["hardware_cycles"])
	assert.NilError(t, err)
	defer m.Close()
	none := []counter{{"hardware_cycles", unix.PERF_TYPE_HARDWARE, 1 << 20}}
	err = countAll(map[string]*ebpf.Map{"hardware_cycles": m}, none)
	assert.ErrorContains(t, err, "count hardware_cycles: on CPU 0: ")
	list, err := Values()
	assert.NilError(t, err)
	err = CountHardware(map[string]*ebpf.Map{"hardware_cycles": m, "hardware_instructions": m, "hardware_misses": m})
	for i := range list {
		if v := &list[i]; v.Group == Hardware && !v.Available {
			assert.Check(t, errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP), "%v", err)
			assert.Check(t, cmp.Equal(v.Reason, "this machine shows no hardware counters"))
		}
	}
}
