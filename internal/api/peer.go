package api

import (
	"context"
	"net"
	"syscall"

	"go.uber.org/zap"
)

// peerKey is the context key of the process at a connection's other end.
type peerKey struct{}

// withPeer notes who connected, as the kernel vouches for it.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	c, ok := conn.(*limitedConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, c.peer)
}

// peerFields are the log fields that name the process at the other end.
func peerFields(ctx context.Context) []zap.Field {
	peer, ok := ctx.Value(peerKey{}).(*syscall.Ucred)
	if !ok {
		return nil
	}
	return []zap.Field{zap.Int32("by_pid", peer.Pid), zap.Uint32("by_uid", peer.Uid)}
}

// peerUID is the user at the other end; who is not known is nobody.
func peerUID(ctx context.Context) uint32 {
	peer, ok := ctx.Value(peerKey{}).(*syscall.Ucred)
	if !ok {
		return 65534
	}
	return peer.Uid
}
