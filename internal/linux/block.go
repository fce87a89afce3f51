package linux

// Operations of block requests: the low eight bits of cmd_flags
// (include/linux/blk_types.h, enum req_op). Those of zones above OpWriteZeroes
// are not listed: their numbers changed after 6.1.
const (
	OpMask        = 0xff
	OpRead        = 0
	OpWrite       = 1
	OpFlush       = 2
	OpDiscard     = 3
	OpSecureErase = 5
	OpZoneAppend  = 7
	OpWriteZeroes = 9
	OpDriverIn    = 34
	OpDriverOut   = 35
)

// Flags of block requests: bits of cmd_flags (enum req_flag_bits). Up to
// ReqReadAhead they are the same from 6.1 to 6.18.
const (
	ReqSync      = 1 << 11
	ReqMeta      = 1 << 12
	ReqFUA       = 1 << 17
	ReqPreflush  = 1 << 18
	ReqReadAhead = 1 << 19
)

var blockOps = map[uint32]struct{ name, class, letters string }{
	OpRead:        {"read", "read", "R"},
	OpWrite:       {"write", "write", "W"},
	OpFlush:       {"flush", "flush", "F"},
	OpDiscard:     {"discard", "discard", "D"},
	OpSecureErase: {"secure erase", "discard", "DE"},
	OpZoneAppend:  {"zone append", "other", "N"},
	OpWriteZeroes: {"write zeroes", "discard", "N"},
	OpDriverIn:    {"driver read", "other", "N"},
	OpDriverOut:   {"driver write", "other", "N"},
}

// BlockOp names what a block request does; "" if it has no fixed number.
func BlockOp(cmdFlags uint32) string { return blockOps[cmdFlags&OpMask].name }

// BlockOpClass is what rules distinguish, as bpf/ does: read, write, flush, discard, other.
func BlockOpClass(cmdFlags uint32) string {
	if op, known := blockOps[cmdFlags&OpMask]; known {
		return op.class
	}
	return "other"
}

// RWBS writes cmd_flags as the kernel's tracepoints do (kernel/trace/blktrace.c,
// blk_fill_rwbs): WS, RA, FF.
func RWBS(cmdFlags uint32) string {
	b := make([]byte, 0, 8)
	if cmdFlags&ReqPreflush != 0 {
		b = append(b, 'F')
	}
	if op, known := blockOps[cmdFlags&OpMask]; known {
		b = append(b, op.letters...)
	} else {
		b = append(b, 'N')
	}
	for _, f := range [...]struct {
		bit    uint32
		letter byte
	}{{ReqFUA, 'F'}, {ReqReadAhead, 'A'}, {ReqSync, 'S'}, {ReqMeta, 'M'}} {
		if cmdFlags&f.bit != 0 {
			b = append(b, f.letter)
		}
	}
	return string(b)
}
