package linux

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestBlockOps(t *testing.T) {
	for op := range uint32(256) {
		name, class, letters := "", "other", "N"
		switch op {
		case 0:
			name, class, letters = "read", "read", "R"
		case 1:
			name, class, letters = "write", "write", "W"
		case 2:
			name, class, letters = "flush", "flush", "F"
		case 3:
			name, class, letters = "discard", "discard", "D"
		case 5:
			name, class, letters = "secure erase", "discard", "DE"
		case 7:
			name = "zone append"
		case 9:
			name, class = "write zeroes", "discard"
		case 34:
			name = "driver read"
		case 35:
			name = "driver write"
		}
		for _, flags := range []uint32{op, op | ReqSync, op | ReqSync | 1<<31} {
			want := letters
			if flags != op {
				want += "S"
			}
			if n, c, l := BlockOp(flags), BlockOpClass(flags), RWBS(flags); n != name || c != class || l != want {
				t.Errorf("%#x: got %q, %s, %s; want %q, %s, %s", flags, n, c, l, name, class, want)
			}
		}
	}
}

func TestRWBS(t *testing.T) {
	for flags, want := range map[uint32]string{
		OpWrite | ReqSync | ReqPreflush | ReqFUA: "FWFS", // as ext4 writes a commit block
		OpRead | ReqReadAhead | ReqMeta:          "RAM",
		OpFlush | ReqPreflush:                    "FF",
		OpDiscard | ReqSync:                      "DS",
		20 | ReqMeta:                             "NM",
	} {
		assert.Check(t, is.Equal(RWBS(flags), want), "%#x", flags)
	}
}

// The numbers are those of the kernel that runs here.
func TestNumbersAreTheKernels(t *testing.T) {
	kernel, err := btf.LoadKernelSpec()
	assert.NilError(t, err)
	for enum, want := range map[string]map[string]uint64{
		"req_op": {
			"REQ_OP_READ": OpRead, "REQ_OP_WRITE": OpWrite, "REQ_OP_FLUSH": OpFlush, "REQ_OP_DISCARD": OpDiscard,
			"REQ_OP_SECURE_ERASE": OpSecureErase, "REQ_OP_ZONE_APPEND": OpZoneAppend,
			"REQ_OP_WRITE_ZEROES": OpWriteZeroes, "REQ_OP_DRV_IN": OpDriverIn, "REQ_OP_DRV_OUT": OpDriverOut,
		},
		"req_flag_bits": {"__REQ_SYNC": 11, "__REQ_META": 12, "__REQ_FUA": 17, "__REQ_PREFLUSH": 18, "__REQ_RAHEAD": 19},
	} {
		var e *btf.Enum
		assert.NilError(t, kernel.TypeByName(enum, &e))
		for name, number := range want {
			assert.Check(t, slices.Contains(e.Values, btf.EnumValue{Name: name, Value: number}),
				"%s is not %d: %v", name, number, e.Values)
		}
	}
	var unnamed *btf.Enum // enum of include/linux/interrupt.h, without a name
	for typ, err := range kernel.All() {
		assert.NilError(t, err)
		if e, ok := typ.(*btf.Enum); ok && len(e.Values) > 0 && e.Values[0].Name == "HI_SOFTIRQ" {
			unnamed = e
		}
	}
	assert.Assert(t, unnamed != nil, "the kernel's BTF does not list the softirqs")
	for _, v := range unnamed.Values {
		name, _ := strings.CutSuffix(v.Name, "_SOFTIRQ")
		if v.Name != "NR_SOFTIRQS" && Softirq(uint32(v.Value), "") != name {
			t.Errorf("softirq %d is %s, not %s", v.Value, name, Softirq(uint32(v.Value), ""))
		}
	}
}

func TestSoftirq(t *testing.T) {
	assert.Check(t, Softirq(3, "") == "NET_RX" && Softirq(10, "?") == "?" && Softirq(1<<31, "?") == "?",
		"softirqs have wrong names")
}

func TestDisk(t *testing.T) {
	got := Disk(259<<20 | 1<<19)
	assert.Check(t, got == "259:524288", "%v", got)
	got = DiskName(1<<32 - 1)
	assert.Check(t, got == "", "a disk that is not there is %s", got)
}

func TestMonotonic(t *testing.T) {
	before := Monotonic()
	time.Sleep(time.Millisecond)
	took := time.Duration(Monotonic() - before)
	assert.Check(t, before != 0 && took >= time.Millisecond && took <= time.Minute,
		"a millisecond took %v from %d on", took, before)
}

func TestReadSymbols(t *testing.T) {
	var got []string
	err := ReadSymbols(strings.NewReader("0000000000000000 T schedule\nffffffffc0001000 t lo_release\t[loop]\n"), func(s *Symbol) error {
		got = append(got, string(s.Kind)+" "+string(s.Name)+" "+string(s.Module))
		return nil
	})
	assert.Check(t, err == nil && slices.Equal(got, []string{"T schedule ", "t lo_release loop"}),
		"got %q, %v", got, err)
	stop := errors.New("enough")
	err = ReadSymbols(strings.NewReader("1 T a\n2 T b\n"), func(*Symbol) error { return stop })
	assert.Check(t, is.ErrorIs(err, stop))
	for _, bad := range []string{"x T a", "1 T", "1 T \x00", "1", "\n"} {
		assert.Check(t, ReadSymbols(strings.NewReader(bad), func(*Symbol) error { return nil }) != nil,
			"%q is accepted", bad)
	}
}

func TestHasSymbol(t *testing.T) {
	has, err := HasSymbol("schedule")
	assert.Check(t, has && err == nil, "schedule: got %t, %v", has, err)
	has, err = HasSymbol("no_such_symbol_of_a_kernel")
	assert.Check(t, !has && err == nil, "got %t, %v", has, err)
}
