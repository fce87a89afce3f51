package accounts

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// machine is what the machine took on top of the threads of the process.
func (p *process) machine() uint64 {
	return atomic.LoadUint64(&(*abi.ActivityHeader)(unsafe.Pointer(&p.accounts[0])).MachineNs)
}

// machineTime is what the kernel itself has counted of interrupts and softirqs, of all CPUs: in
// ticks, at most of which it looks what runs.
func machineTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	assert.NilError(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	var of [7]uint64
	_, err = fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &of[0], &of[1], &of[2], &of[3], &of[4], &of[5], &of[6])
	assert.NilError(t, err)
	return time.Duration(of[5]+of[6]) * time.Second / 100
}

// TestMachine: under a flood over TCP, interrupts and softirqs on top of the process's threads
// are as long as the kernel's own account says, which is sampled and has those of all others.
func TestMachine(t *testing.T) {
	p := openGroups(t, Interrupts)
	client, server := connection(t)
	sends, receives, spins := p.token(), p.token(), p.token()
	wrong := "not measured"
	for n := 0; wrong != "" && n < 10; n++ {
		took, counted := p.machine(), machineTime(t)
		p.carryAll(
			work{sends, func() { send(t, client, 512*mebibyte) }},
			work{receives, func() { receive(t, server, 512*mebibyte) }},
			work{spins, func() { spin(100 * time.Millisecond) }},
		)
		took, counted = p.machine()-took, machineTime(t)-counted
		wrong = ""
		if have := time.Duration(took); have < counted/2 || have > 2*counted {
			wrong = fmt.Sprintf("%s, and the kernel has counted %s", have, counted)
		}
		t.Logf("%s, and the kernel has counted %s", time.Duration(took), counted)
	}
	assert.Equal(t, wrong, "")
	cpu := p.value(sends, abi.ActivityCpuNs) + p.value(receives, abi.ActivityCpuNs) + p.value(spins, abi.ActivityCpuNs)
	assert.Check(t, p.machine() < cpu, "it is in the time of tokens: %d of %d", p.machine(), cpu)
}

// TestNoMachine: without the group nothing is counted.
func TestNoMachine(t *testing.T) {
	p := openGroups(t, Network)
	client, server := connection(t)
	sends, receives := p.token(), p.token()
	p.carryAll(
		work{sends, func() { send(t, client, 8*mebibyte) }},
		work{receives, func() { receive(t, server, 8*mebibyte) }},
	)
	assert.Check(t, cmp.Equal(p.machine(), uint64(0)))
}
