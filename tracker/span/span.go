// Package span tells tailcam where a piece of a program's work begins and ends,
// so that rules of `track: span` can find those that take too long. It needs no
// daemon, no privilege and no file: each call is one system call that the
// kernel refuses at once, which tailcam sees if it runs, and nobody otherwise.
// It imports nothing but the standard library and
// the constants of package abi, and needs no cgo.
//
//	span.Begin("checkout-42")
//	defer span.End("checkout-42")
//
// A key belongs to the user (as the kernel numbers them, whatever the user
// namespace says) and the pid namespace of its caller: nobody else can begin,
// end or meet it. Any goroutine, thread or process of the same two may end what
// another began. A second Begin before the End restarts the time.
//
// What the calls do not reach: 32-bit programs are not tracked, and a program
// whose seccomp filter refuses faccessat2(2) is not seen, or killed if that is
// what its filter does.
package span

import (
	"errors"
	"strings"
	"syscall"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// MaxKey is the length of the longest key in bytes.
const MaxKey = abi.SpanKeyLen - 1

// ErrKey tells that a key is empty, longer than MaxKey, or holds a NUL.
var ErrKey = errors.New("a key has 1 to 63 bytes, and no NUL")

// Begin says that the work with this key begins now. The only error is ErrKey.
// Safe for concurrent use. It costs one system call, about as much as getppid.
func Begin(key string) error { return say(key, abi.SpanMode|abi.SpanBegin) }

// End says that the work with this key has ended. The only error is ErrKey;
// nobody tells whether the key had begun.
func End(key string) error { return say(key, abi.SpanMode|abi.SpanEnd) }

func say(key string, what uintptr) error {
	if key == "" || len(key) > MaxKey || strings.IndexByte(key, 0) >= 0 {
		return ErrKey
	}
	// A copy on the stack: the kernel side does not wait for memory that is not
	// resident, and wants a NUL at the end.
	var text [MaxKey + 1]byte
	copy(text[:], key)
	// It always fails. Nothing blocks, so the scheduler need not know of it.
	_, _, _ = syscall.RawSyscall6(abi.SpanSyscall, ^uintptr(0), uintptr(unsafe.Pointer(&text[0])), what, 0, 0, 0)
	return nil
}
