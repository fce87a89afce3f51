package tailcam

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// DefaultSocket is where the daemon listens.
const DefaultSocket = "/run/tailcam/tailcam.sock"

// patience is how long the daemon may take to answer.
const patience = 5 * time.Second

// Options are what a process asks for. Nil, or zeros, are the defaults.
type Options struct {
	Threads int // slots of threads that switch, a power of two, at most 4096; 256
	Tokens  int // live at the same time, at most 131072; 1024
}

// opened is the one handle of the process.
var opened struct {
	sync.Mutex
	h *Handle
}

// Open opens activities for this process, over the daemon's socket; "" is DefaultSocket. If it
// fails, the error says what to do, and the handle is nil, with which a program may go on.
// What the daemon refuses is for it to say: activities that are off, a quota. A process has
// one handle at a time (ErrOpen).
func Open(path string, opts *Options) (*Handle, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.h != nil {
		return nil, ErrOpen
	}
	if opts == nil {
		opts = &Options{}
	}
	h := &Handle{path: cmp.Or(path, DefaultSocket)}
	fds, err := h.upgrade(cmp.Or(opts.Threads, abi.ActivityDefaultThreads), cmp.Or(opts.Tokens, abi.ActivityDefaultTokens))
	defer func() {
		for _, fd := range fds {
			_ = syscall.Close(fd) // the maps stay mapped
		}
	}()
	if err == nil {
		err = h.mmap(fds)
	}
	if err != nil {
		if h.conn != nil {
			_ = h.conn.Close()
		}
		return nil, err
	}
	h.tsc = counts()
	opened.h = h
	return h, nil
}

// Close ends activities in this process. What other goroutines do with the handle meanwhile
// goes to memory that nobody reads, and which stays.
func (h *Handle) Close() {
	if h == nil || h.closed.Swap(true) {
		return
	}
	opened.Lock()
	defer opened.Unlock()
	opened.h = nil
	for _, b := range [][]byte{h.shared, h.accounts} {
		// Failing, it stays as it was, which does no harm.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
			syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_FIXED, ^uintptr(0), 0)
	}
	// A child that is being started may have the descriptor, too, until its exec: the daemon is to know now.
	_ = h.conn.CloseWrite()
	_ = h.conn.Close()
}

func dial(path string) (*net.UnixConn, error) {
	conn, err := net.DialTimeout("unix", path, patience)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("permission denied: %s: join its group, and log in again", path)
	case err != nil:
		return nil, fmt.Errorf("daemon not reachable at %s: %w: start it with \"sudo tailcam run\"", path, err)
	}
	return conn.(*net.UnixConn), conn.SetDeadline(time.Now().Add(patience))
}

// upgrade asks for the maps: their descriptors, also with an error.
func (h *Handle) upgrade(threads, tokens int) (fds []int, err error) {
	h.conn, err = dial(h.path)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(h.conn, "POST /v1/activities?threads=%d&tokens=%d&inherit=0 HTTP/1.1\r\nHost: tailcam\r\n"+
		"Connection: Upgrade\r\nUpgrade: tailcam-activities\r\nContent-Length: 0\r\n\r\n", threads, tokens)
	in := &descriptors{conn: h.conn}
	resp, err := http.ReadResponse(bufio.NewReader(in), nil)
	fds = in.fds
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fds, fmt.Errorf("no answer from the daemon at %s within %s: it may still be starting", h.path, patience)
	}
	if err != nil {
		return fds, fmt.Errorf("read reply from %s: %w", h.path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fds, refusal(resp)
	}
	if v := number(resp, "Tailcam-Abi"); v != abi.ActivityAbi {
		return fds, fmt.Errorf("the daemon speaks version %d of activities, and this program %d: build it with the daemon's version of tailcam",
			v, abi.ActivityAbi)
	}
	h.threads, h.tokens = number(resp, "Tailcam-Threads"), number(resp, "Tailcam-Tokens")
	h.pairs = number(resp, "Tailcam-Attributes") // an older daemon has none
	if len(fds) != 2 || h.threads < abi.ActivityThreadWindow || h.threads > abi.ActivityMaxThreads ||
		bits.OnesCount32(h.threads) != 1 || h.tokens < 1 || h.tokens > abi.ActivityMaxTokens || h.pairs > math.MaxUint16 {
		return fds, errors.New("the daemon's reply makes no sense")
	}
	return fds, h.conn.SetDeadline(time.Time{})
}

// mmap maps the arrays, and makes what this process keeps for itself.
func (h *Handle) mmap(fds []int) (err error) {
	h.first, h.shift = 1+h.threads, uint32(32-bits.TrailingZeros32(h.threads))
	size := int(h.first + h.tokens)
	h.shared, err = syscall.Mmap(fds[0], 0, pages((size+int(h.pairs))*abi.ActivitySharedBytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map tokens: %w", err)
	}
	h.accounts, err = syscall.Mmap(fds[1], 0, pages(size*abi.ActivityAccountBytes), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map accounts: %w", err), syscall.Munmap(h.shared))
	}
	h.taken = make([]uint64, (h.tokens+63)/64)
	if h.tokens%64 != 0 { // there are no such tokens
		h.taken[h.tokens/64] = math.MaxUint64 << (h.tokens % 64)
	}
	return nil
}

func pages(size int) int {
	page := os.Getpagesize()
	return (size + page - 1) / page * page
}

// tellIfSlow tells the daemon of a slow request, for rules of `track: activity`. It reads the
// maps itself.
func (h *Handle) tellIfSlow(t Token, elapsed uint64) {
	slow := atomic.LoadUint64(&(*abi.ActivityHeader)(unsafe.Pointer(&h.accounts[0])).SlowNs)
	if slow == 0 || elapsed < slow {
		return
	}
	told := false
	if raw, err := h.conn.SyscallConn(); err == nil {
		_ = raw.Write(func(fd uintptr) bool { // fails if it is closed: not told
			message := binary.NativeEndian.AppendUint64(nil, uint64(t))
			n, err := syscall.SendmsgN(int(fd), message, nil, nil, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
			told = err == nil && n == len(message)
			return true
		})
	}
	if !told {
		atomic.AddUint64(&h.untold, 1)
	}
}

// descriptors reads from a connection, and keeps the descriptors that come with it.
type descriptors struct {
	conn *net.UnixConn
	fds  []int
}

// Read implements io.Reader.
func (d *descriptors) Read(b []byte) (int, error) {
	control := make([]byte, syscall.CmsgSpace(4*4))
	n, size, _, _, err := d.conn.ReadMsgUnix(b, control)
	messages, _ := syscall.ParseSocketControlMessage(control[:max(size, 0)]) // what is missing is noticed
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			d.fds = append(d.fds, fds...)
		}
	}
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err // negative with an error
}

func number(resp *http.Response, header string) uint32 {
	n, err := strconv.ParseUint(resp.Header.Get(header), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// refusal is the error that the daemon has sent.
func refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var failure struct{ Error string }
	if err == nil && json.Unmarshal(bytes.TrimSpace(body), &failure) == nil && failure.Error != "" {
		return errors.New(failure.Error)
	}
	return fmt.Errorf("unexpected reply: %s: is another program listening there, or an older tailcam?", resp.Status)
}
