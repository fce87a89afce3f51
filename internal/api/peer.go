package api

import (
	"context"
	"net"
	"syscall"

	"go.uber.org/zap"
)

// peerKey is the context key of the peer's credentials.
type peerKey struct{}

// withPeer adds the peer's credentials, as the kernel reports them.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	c, ok := conn.(*limitedConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, c.peer)
}

// peerFields are the log fields that name the peer.
func peerFields(ctx context.Context) []zap.Field {
	peer, ok := ctx.Value(peerKey{}).(*syscall.Ucred)
	if !ok {
		return nil
	}
	return []zap.Field{zap.Int32("by_pid", peer.Pid), zap.Uint32("by_uid", peer.Uid)}
}

// peerUID is the peer's user; nobody if unknown.
func peerUID(ctx context.Context) uint32 {
	peer, ok := ctx.Value(peerKey{}).(*syscall.Ucred)
	if !ok {
		return 65534
	}
	return peer.Uid
}
