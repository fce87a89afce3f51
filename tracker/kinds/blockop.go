package kinds

import (
	"strings"

	"github.com/tailcam/tailcam/rules"
)

// opOf names the operation of a request (include/linux/blk_types.h, enum req_op).
func opOf(cmdFlags uint32) rules.Op {
	switch cmdFlags & 0xff {
	case 0:
		return rules.Read
	case 1:
		return rules.Write
	case 2:
		return rules.Flush
	case 3, 5, 9:
		return rules.Discard
	default:
		return rules.Other
	}
}

// rwbs writes request flags as blktrace does (kernel/trace/blktrace.c,
// blk_fill_rwbs; bit numbers of enum req_flag_bits, the same from 6.1 to 6.18).
func rwbs(cmdFlags uint32) string {
	const sync, meta, fua, preflush, rahead = 11, 12, 17, 18, 19
	has := func(bit int) bool { return cmdFlags>>bit&1 != 0 }
	var b strings.Builder
	if has(preflush) {
		b.WriteByte('F')
	}
	switch cmdFlags & 0xff {
	case 0:
		b.WriteByte('R')
	case 1:
		b.WriteByte('W')
	case 2:
		b.WriteByte('F')
	case 3:
		b.WriteByte('D')
	case 5:
		b.WriteString("DE")
	default:
		b.WriteByte('N')
	}
	for _, f := range []struct {
		bit  int
		name byte
	}{{fua, 'F'}, {rahead, 'A'}, {sync, 'S'}, {meta, 'M'}} {
		if has(f.bit) {
			b.WriteByte(f.name)
		}
	}
	return b.String()
}
