package kinds

import (
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// ops are by number of their bit (enum op_bit).
var ops = []rules.Op{rules.Read, rules.Write, rules.Flush, rules.Discard, rules.Other}

// inOp: classes are by number of the operation; some are not used.
func inOp(class int, m *rules.Match) bool { return class < len(ops) && Admits(m.Op, nil, ops[class]) }

func decodeBlock(o *events.Outlier, m *Message) {
	o.Key = map[string]uint64{"dev": uint64(m.Dev), "sector": m.Sector}
	o.Block = &events.BlockInfo{
		Device: Text(m.Disk[:]), Sector: m.Sector, Bytes: m.Bytes,
		Op: linux.BlockOpClass(m.CmdFlags), Flags: linux.RWBS(m.CmdFlags),
		QueueNS: int64(m.QueueNs), Requeues: m.Requeues, Error: int32(m.Ret),
	}
}
