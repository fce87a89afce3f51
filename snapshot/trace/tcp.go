package trace

import (
	"encoding/binary"

	"github.com/tailcam/tailcam/bpf/abi"
)

// tcpTimer decodes what a timer of TCP is for.
func (r *Record) tcpTimer() TCPTimer {
	bits := r.u32(abi.OffTimerTcp)
	t := TCPTimer{Kind: int(bits & abi.TcpTimer)}
	if t.Kind == 0 {
		return TCPTimer{}
	}
	t.State = int(bits >> abi.TcpStateShift & 0xff)
	t.Waiter, t.Port = int(r.s32(abi.OffTimerWaiter)), int(r.u32(abi.OffTimerPort)&0xffff)
	binary.LittleEndian.PutUint32(t.Peer[:], r.u32(abi.OffTimerAddress)) // in memory as in packets
	if bits&abi.TcpListener != 0 {
		t.Listener, t.AcceptQueue = true, [2]uint32{r.u32(abi.OffTimerAcceptQueue), r.u32(abi.OffTimerAcceptLimit)}
	}
	return t
}
