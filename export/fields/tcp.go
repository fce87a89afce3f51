package fields

import (
	"net/netip"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// tcpTimers are the names of trace.TCPTimer.Kind.
var tcpTimers = map[int]string{
	trace.TCPRetransmit: "retransmit", trace.TCPDelayedACK: "delayed_ack", trace.TCPProbe: "window_probe",
	trace.TCPCork: "cork", trace.TCPLossProbe: "loss_probe", trace.TCPReorder: "reorder", trace.TCPKeepAlive: "keep_alive",
}

// tcpTimer appends what a timer of TCP is for.
func (l *list) tcpTimer(b *trace.TCPTimer) {
	if b.Kind == 0 {
		return
	}
	l.text("tcp", tcpTimers[b.Kind])
	l.int("waiter", b.Waiter)
	if b.Peer != [4]byte{} {
		l.text("peer", netip.AddrFrom4(b.Peer).String())
	}
	l.int("port", b.Port)
	if b.Listener {
		l.uint("accept_queue", uint64(b.AcceptQueue[0]))
		l.uint("accept_limit", uint64(b.AcceptQueue[1]))
	}
}
