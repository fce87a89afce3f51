package api

import (
	"context"
	"net"

	"go.uber.org/zap"
)

// peerKey is the context key of the connection, which has the peer's credentials.
type peerKey struct{}

// withPeer adds the peer's credentials, as the kernel reports them.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	c, ok := conn.(*limitedConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, c)
}

// peerFields are the log fields that name the peer.
func peerFields(ctx context.Context) []zap.Field {
	c, ok := ctx.Value(peerKey{}).(*limitedConn)
	if !ok {
		return nil
	}
	return []zap.Field{zap.Int32("by_pid", c.peer.Pid), zap.Uint32("by_uid", c.peer.Uid)}
}

// peerUID is the peer's user; nobody if unknown.
func peerUID(ctx context.Context) uint32 {
	c, ok := ctx.Value(peerKey{}).(*limitedConn)
	if !ok {
		return 65534
	}
	return c.peer.Uid
}

// peerPID is the peer's process, as this pid namespace numbers it; 0 if it is not in it, or unknown.
func peerPID(ctx context.Context) int {
	c, ok := ctx.Value(peerKey{}).(*limitedConn)
	if !ok {
		return 0
	}
	return int(c.peer.Pid)
}
