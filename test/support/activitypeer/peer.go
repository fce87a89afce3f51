// Package activitypeer answers clients of activities in the place of a daemon: with the daemon's
// socket and the real kernel side (StartKernel); or with memory that nobody writes to, for what
// clients make of replies, good and bad, and for the cost of a switch. That says nothing about
// accounts.
package activitypeer

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

const (
	threads = 64
	tokens  = 128
	// attributes are few, so that all are soon taken.
	attributes = 16
)

// Peer answers clients.
type Peer struct {
	Path string // of its socket

	Reply    string // instead of a good one
	Maps     int    // how many descriptors come with a good reply
	Threads  uint32
	Tokens   uint32
	Requests chan string // "METHOD target body"

	accounts, shared atomic.Int64 // descriptors of the last client's
}

// Start starts a peer, which ends with the test. What it answers with may be changed before.
func Start(t testing.TB, changes ...func(*Peer)) *Peer {
	t.Helper()
	p := &Peer{Path: filepath.Join(t.TempDir(), "s"), Maps: 2, Threads: threads, Tokens: tokens, Requests: make(chan string, 100)}
	for _, change := range changes {
		change(p)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Path})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, l.Close()) })
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go p.answer(t, conn)
		}
	}()
	return p
}

func memory(t testing.TB, size int64) int {
	fd, err := unix.MemfdCreate("activitypeer", unix.MFD_CLOEXEC)
	assert.Check(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	assert.Check(t, unix.Ftruncate(fd, (size+65535)&^65535))
	return fd
}

// Header maps the header that the kernel side would write.
func (p *Peer) Header(t testing.TB) *abi.ActivityHeader {
	t.Helper()
	return (*abi.ActivityHeader)(firstPage(t, p.accounts.Load()))
}

// Client maps what the last client writes of itself.
func (p *Peer) Client(t testing.TB) *abi.ActivityClient {
	t.Helper()
	return (*abi.ActivityClient)(firstPage(t, p.shared.Load()))
}

func firstPage(t testing.TB, fd int64) unsafe.Pointer {
	t.Helper()
	b, err := unix.Mmap(int(fd), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, unix.Munmap(b)) })
	return unsafe.Pointer(&b[0])
}

func (p *Peer) answer(t testing.TB, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	body, _ := io.ReadAll(io.LimitReader(req.Body, 1<<16)) // what is missing is noticed
	p.Requests <- strings.TrimSpace(fmt.Sprintf("%s %s %s", req.Method, req.URL, body))
	if p.Reply != "" {
		fmt.Fprint(conn, p.Reply)
		return
	}
	fds := p.memory(t)
	reply := fmt.Sprintf("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tailcam-activities\r\n"+
		"Tailcam-Threads: %d\r\nTailcam-Tokens: %d\r\nTailcam-Attributes: %d\r\nTailcam-Abi: %d\r\n\r\n",
		p.Threads, p.Tokens, attributes, abi.ActivityAbi)
	var rights []byte
	if p.Maps > 0 {
		rights = unix.UnixRights(fds[:p.Maps]...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(reply), rights, nil); err != nil {
		return
	}
	message := make([]byte, 64)
	for {
		n, err := in.Read(message)
		if err != nil {
			return
		}
		p.Requests <- fmt.Sprintf("message of %d bytes", n)
	}
}

// memory makes maps of memory.
func (p *Peer) memory(t testing.TB) []int {
	const size = 1 + threads + tokens
	shared, accounts := memory(t, (size+attributes)*abi.ActivitySharedBytes), memory(t, size*abi.ActivityAccountBytes)
	p.accounts.Store(int64(accounts))
	p.shared.Store(int64(shared))
	return []int{shared, accounts, accounts}
}

// WithReply has a peer answer with bytes.
func WithReply(reply string) func(*Peer) { return func(p *Peer) { p.Reply = reply } }

// WithMaps has a peer send so many descriptors.
func WithMaps(n int) func(*Peer) { return func(p *Peer) { p.Maps = n } }

// Example writes the program of docs/activities.md, in a language, to a file, and returns its path.
func Example(t testing.TB, language, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/activities.md")
	assert.NilError(t, err)
	_, text, _ := strings.Cut(string(page), "\n## Tokens of your own\n")
	_, text, found := strings.Cut(text, "\n```"+language+"\n")
	assert.Assert(t, found)
	text, _, _ = strings.Cut(text, "\n```\n")
	path := filepath.Join(t.TempDir(), name)
	assert.NilError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	return path
}
