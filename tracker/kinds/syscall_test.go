package kinds

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

func TestNarrowNumbers(t *testing.T) {
	assert.Check(t, rules.Syscalls32 == abi.Syscalls32 && abi.Syscalls == 2*abi.Syscalls32)
}

// TestCallsWanted: what the hooks of all calls look at is what a rule wants of either
// table, and wherever execve may end.
func TestCallsWanted(t *testing.T) {
	number := func(of func(string) (int, bool), name string) int {
		nr, ok := of(name)
		assert.Assert(t, ok, "no call %s", name)
		return nr
	}
	floors := slices.Repeat([]uint64{abi.Never}, abi.Syscalls)
	assert.Check(t, is.DeepEqual(CallsWanted(floors), [abi.Syscalls32]uint8{}))

	native, narrow := number(rules.SyscallNumber, "fsync"), number(rules.SyscallNumber32, "futex")
	floors[native], floors[narrow] = 5, 5
	wanted := CallsWanted(floors)
	assert.Check(t, is.Equal(wanted[native], uint8(abi.CallEntry|abi.CallExit)))
	assert.Check(t, is.Equal(wanted[rules.SyscallNR(narrow)], uint8(abi.CallEntry32|abi.CallExit32)))

	floors[number(rules.SyscallNumber, "execveat")] = 5
	wanted = CallsWanted(floors)
	for _, c := range []struct {
		nr          int
		exit, entry uint8
	}{
		{number(rules.SyscallNumber, "execve"), abi.CallExec | abi.CallExit, abi.CallEntry},
		{number(rules.SyscallNumber32, "execve"), abi.CallExec32 | abi.CallExit32, abi.CallEntry32},
	} {
		got := wanted[rules.SyscallNR(c.nr)]
		assert.Check(t, got&c.exit == c.exit && got&c.entry == 0, "%d: %b", c.nr, got)
	}
}

func TestSyscallInfo(t *testing.T) {
	nr, _ := rules.SyscallNumber32("nanosleep")
	info := SyscallInfo(nr)
	assert.Check(t, info.NR < rules.Syscalls32 && info.ABI != "" && info.Label() == "nanosleep ("+info.ABI+")", "%+v", info)
	info = SyscallInfo(nr - rules.Syscalls32)
	assert.Check(t, info.ABI == "" && info.Label() == info.Name, "%+v", info)
}
