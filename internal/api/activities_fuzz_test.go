package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities"
)

// memoryOpener hands out memory, of the sizes that the kernel side's would have, and counts. It
// says nothing about accounts.
type memoryOpener struct {
	t             testing.TB
	fds           []int
	opened, ended atomic.Int64
	messages      atomic.Int64
}

func newMemoryOpener(t testing.TB) *memoryOpener {
	o := &memoryOpener{t: t}
	for range 2 {
		fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
		assert.NilError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		o.fds = append(o.fds, fd)
	}
	return o
}

// OpenActivities implements Opener.
func (o *memoryOpener) OpenActivities(of *activities.Opening) (OpenedActivities, error) {
	if of.PID != os.Getpid() || int(of.UID) != os.Getuid() || of.Threads < 0 || of.Tokens < 0 {
		o.t.Errorf("asked for %+v", of)
	}
	if of.Threads > abi.ActivityMaxThreads || bits.OnesCount(uint(of.Threads)) > 1 || of.Tokens > abi.ActivityMaxTokens {
		return nil, activities.ErrSize
	}
	o.opened.Add(1)
	return &openedMemory{o, of}, nil
}

type openedMemory struct {
	*memoryOpener
	of *activities.Opening
}

func (m *openedMemory) Threads() int    { return m.of.Threads }
func (m *openedMemory) Tokens() int     { return m.of.Tokens }
func (m *openedMemory) Attributes() int { return abi.ActivityAttributes }
func (m *openedMemory) Slow(uint32)     { m.messages.Add(1) }
func (m *openedMemory) Close()          { m.ended.Add(1) }

func (m *openedMemory) Descriptors(fn func(fds []int) error) error { return fn(m.fds) }

// FuzzOpenActivities: whatever a process sends to open activities, and then as messages, it gets
// one answer, two descriptors or none, and nothing is left of it when it closes.
func FuzzOpenActivities(f *testing.F) {
	f.Add("threads=8&tokens=5&inherit=1", ActivitiesUpgrade, "", []byte("\x11\x00\x00\x00\x01\x00\x00\x00\xff\xff"))
	f.Add("threads=07&tokens=-1", "websocket", "body", []byte{})
	f.Add("tokens=9223372036854775808&tokens=%zz;", ActivitiesUpgrade, "{}", []byte("12345678"))
	f.Add(" HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n", "h2c", strings.Repeat("x", 100), []byte{0})
	f.Add("", ActivitiesUpgrade+"\r\nExpect: 100-continue", "", []byte("123456789"))
	opener := newMemoryOpener(f)
	path := serveOpener(f, opener)
	f.Fuzz(func(t *testing.T, query, upgrade, body string, messages []byte) {
		opened, told := opener.opened.Load(), opener.messages.Load()
		request := fmt.Appendf(nil, "POST /v1/activities?%s HTTP/1.1\r\nHost: tailcam\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s", query, upgrade, len(body), body)
		dialed, err := net.Dial("unix", path)
		assert.NilError(t, err)
		conn := dialed.(*net.UnixConn)
		defer conn.Close()
		_, err = conn.Write(request)
		if _, bad := http.ReadRequest(bufio.NewReader(bytes.NewReader(request))); bad != nil || err != nil {
			_ = conn.CloseWrite() // the daemon may wait for more
		}
		reply, control := make([]byte, 4096), make([]byte, 4096)
		n, controls, _, _, err := conn.ReadMsgUnix(reply, control)
		assert.Check(t, err == nil || errors.Is(err, io.EOF), "%v", err)
		upgraded := bytes.HasPrefix(reply[:max(n, 0)], []byte("HTTP/1.1 101 "))
		if upgraded {
			messages = messages[:min(len(messages), 256)]
			_, err = conn.Write(messages)
			assert.NilError(t, err)
		}
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until the daemon closes
		fds := closeAll(t, control[:controls])
		assert.Check(t, upgraded && fds == 2 || !upgraded && fds == 0, "%d descriptors with %q", fds, reply[:max(n, 0)])
		eventually(t, func() bool { return opener.ended.Load() == opener.opened.Load() })
		if !upgraded {
			return
		}
		assert.Check(t, opener.opened.Load() == opened+1)
		assert.Check(t, opener.messages.Load()-told == int64(len(messages)/8), "%d", len(messages))
	})
}

// closeAll closes the descriptors that came with a message, and counts them.
func closeAll(t *testing.T, control []byte) (n int) {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	assert.NilError(t, err)
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		assert.NilError(t, err)
		for _, fd := range fds {
			assert.Check(t, unix.Close(fd))
			n++
		}
	}
	return n
}
