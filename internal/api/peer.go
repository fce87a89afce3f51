package api

import (
	"context"
	"net"
	"syscall"

	"go.uber.org/zap"
)

// peerKey is the context key of the process at a connection's other end.
type peerKey struct{}

// withPeer notes who connected, as the kernel vouches for it, for the log.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return ctx
	}
	var peer *syscall.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		peer, optErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || optErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// peerFields are the log fields that name the process at the other end.
func peerFields(ctx context.Context) []zap.Field {
	peer, ok := ctx.Value(peerKey{}).(*syscall.Ucred)
	if !ok {
		return nil
	}
	return []zap.Field{zap.Int32("by_pid", peer.Pid), zap.Uint32("by_uid", peer.Uid)}
}
