package trace

import (
	"encoding/binary"

	"github.com/tailcam/tailcam/bpf/abi"
)

// TCPTimer is what a timer of TCP that expired is for; zero if it is none, if nothing was
// due, or in older traces.
type TCPTimer struct {
	Kind        int       // TCP…; 0: none
	State       int       // of the socket, as the kernel numbers it
	Waiter      int       // thread that waits for the socket; 0: not known
	Peer        [4]byte   // its IPv4 address; zero: of another family
	Port        int       // of the peer
	Listener    bool      // the peer is a listener of the same network namespace
	AcceptQueue [2]uint32 // with Listener: how many connections wait to be accepted, and may before it is full
}

// Full reports whether the peer is a listener who has no room for another connection.
func (t *TCPTimer) Full() bool { return t.Listener && t.AcceptQueue[0] > t.AcceptQueue[1] }

// Values of TCPTimer.Kind, and a State.
const (
	TCPRetransmit = abi.TcpTimerRetransmit
	TCPDelayedACK = abi.TcpTimerDelack
	TCPProbe      = abi.TcpTimerProbe
	TCPCork       = abi.TcpTimerCork
	TCPLossProbe  = abi.TcpTimerLossProbe
	TCPReorder    = abi.TcpTimerReorder
	TCPKeepAlive  = abi.TcpTimerKeepalive

	TCPSynSent = 2
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
