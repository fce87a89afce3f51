package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// diag asks the kernel for the sockets of this process's network namespace by sock_diag(7),
// which takes a twentieth of the time that /proc/net/tcp does: that walks the whole table of
// connections once for each version of IP, bucket by bucket. Its methods may be called
// concurrently.
type diag struct {
	// A question failed: each one may make the kernel look for a module again.
	refused atomic.Bool
}

// ownNamespace is the link of this process's network namespace, or "".
func ownNamespace() string {
	space, _ := os.Readlink("/proc/self/ns/net") // "": no other has it
	return space
}

// States of sockets, as bits and as numbers (include/net/tcp_states.h).
const (
	diagEstablished = 1
	diagCloseWait   = 8
	diagListen      = 10

	diagStates = 1<<diagEstablished | 1<<diagCloseWait | 1<<diagListen
)

// Layouts of include/uapi/linux/inet_diag.h, unix_diag.h and netlink.h.
const (
	inetRequestSize = 56 // inet_diag_req_v2
	inetAnswerSize  = 72 // inet_diag_msg
	unixRequestSize = 24 // unix_diag_req
	unixAnswerSize  = 16 // unix_diag_msg

	unixShowName = 1 // UDIAG_SHOW_NAME
	unixName     = 0 // UNIX_DIAG_NAME

	maxDiagAnswer = 64 << 10 // of one message
)

// each calls add for each socket that listens or is connected, by inode. An error means that
// some are missing.
func (d *diag) each(add func(uint64, socket)) error {
	if d.refused.Load() {
		return unix.ENOENT
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		d.refused.Store(true)
		return fmt.Errorf("open sock_diag: %w", err)
	}
	defer unix.Close(fd) // only read from
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6, unix.AF_UNIX} {
		if err := dump(fd, family, add); err != nil {
			d.refused.Store(true)
			return fmt.Errorf("ask sock_diag for family %d: %w", family, err)
		}
	}
	return nil
}

// dump asks for the sockets of one family.
func dump(fd int, family uint8, add func(uint64, socket)) error {
	parse, size := parseInet, inetRequestSize
	if family == unix.AF_UNIX {
		parse, size = parseUNIX, unixRequestSize
	}
	ne := binary.NativeEndian
	b := make([]byte, unix.NLMSG_HDRLEN+size)
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[unix.NLMSG_HDRLEN] = family
	if family == unix.AF_UNIX {
		ne.PutUint32(b[unix.NLMSG_HDRLEN+12:], unixShowName)
	} else {
		b[unix.NLMSG_HDRLEN+1] = unix.IPPROTO_TCP
	}
	ne.PutUint32(b[unix.NLMSG_HDRLEN+4:], diagStates)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	return answers(fd, func(b []byte) { parse(b, add) })
}

// answers calls parse for each answer to the question that was asked last.
func answers(fd int, parse func([]byte)) error {
	buf := make([]byte, maxDiagAnswer)
	for total := 0; total < maxSocketTable; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		total += n
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for i := range messages {
			switch m := &messages[i]; m.Header.Type {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				return answerError(m.Data)
			case unix.SOCK_DIAG_BY_FAMILY:
				parse(m.Data)
			}
		}
	}
	return errors.New("too many sockets")
}

func answerError(b []byte) error {
	if len(b) < 4 {
		return errors.New("short error")
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(b)))
}

// parseInet parses an inet_diag_msg: family, state, timer, retransmits; ports and addresses of
// both ends, in the network's order, interface and cookie; expires, queues, uid, inode.
func parseInet(b []byte, add func(uint64, socket)) {
	if len(b) < inetAnswerSize {
		return
	}
	address := func(port, at int) netip.AddrPort {
		size := 4
		if b[0] == unix.AF_INET6 {
			size = 16
		}
		a, _ := netip.AddrFromSlice(b[at : at+size]) // it has one of the sizes
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[port:]))
	}
	s := socket{tcp: true, local: address(4, 8)}
	switch b[1] {
	case diagListen:
		s.listens = true
	case diagEstablished, diagCloseWait:
		s.remote = address(6, 24)
	default:
		return
	}
	if inode := binary.NativeEndian.Uint32(b[68:]); inode != 0 { // else nobody has it open
		add(uint64(inode), s)
	}
}

// parseUNIX parses a unix_diag_msg: family, type, state; inode and cookie; and its attributes.
func parseUNIX(b []byte, add func(uint64, socket)) {
	if len(b) < unixAnswerSize || b[1] != unix.SOCK_STREAM && b[1] != unix.SOCK_SEQPACKET {
		return
	}
	inode := binary.NativeEndian.Uint32(b[4:])
	if inode == 0 || b[2] != diagListen && b[2] != diagEstablished {
		return
	}
	s := socket{unx: true, listens: b[2] == diagListen}
	for rest := b[unixAnswerSize:]; len(rest) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofNlAttr || size > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == unixName {
			s.path = string(rest[unix.SizeofNlAttr:size])
		}
		rest = rest[min(len(rest), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	add(uint64(inode), s)
}
