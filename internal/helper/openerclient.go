package helper

import (
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/symbols"
)

// Requests of a parser to its opener.
const (
	openMaps    = 1
	openMapped  = 2
	openInRoot  = 3
	openHost    = 4
	openPerfMap = 5
)

// openRequest is a request to open files.
type openRequest struct {
	kind byte
	pid  int
	path string
	list []symbols.Mapping
}

func (o *openRequest) fields(c *codec) {
	number(c, &o.pid, math.MaxInt32)
	c.text(&o.path, maxPath)
	list(c, &o.list, maxOpen, func(m *symbols.Mapping) {
		for _, n := range []*uint64{&m.Start, &m.End, &m.Dev, &m.Inode} {
			number(c, n, math.MaxUint64)
		}
		c.text(&m.Name, maxPath+16)
	})
}

func (o *openRequest) encode() []byte { return encode(o.kind, o.fields) }

func decodeOpenRequest(b []byte) (o openRequest, err error) {
	err = decode(b, &o.kind, o.fields)
	return o, err
}

// Results per file.
const (
	opened    = 0 // with a descriptor
	notOpened = 1
	isRemote  = 2
	noProgram = 3
)

// openerClient implements symbols.Opener over a socket.
type openerClient struct {
	mu    sync.Mutex
	conn  *net.UnixConn
	buf   []byte
	oob   []byte
	stuck func() // called if the opener does not answer; does not return
}

func newOpenerClient(conn *net.UnixConn, stuck func()) *openerClient {
	return &openerClient{conn: conn, buf: make([]byte, 64<<10), oob: make([]byte, unix.CmsgSpace(4*maxOpen)), stuck: stuck}
}

// ask requests n files and returns them.
func (a *openerClient) ask(o openRequest, n int) []symbols.Opened {
	out := make([]symbols.Opened, n)
	a.mu.Lock()
	defer a.mu.Unlock()
	results, files, err := a.exchange(o.encode(), n)
	for i := range out {
		switch {
		case err != nil:
			out[i].Err = err
		case results[i] == opened:
			out[i].File, files = files[0], files[1:]
		case results[i] == isRemote:
			out[i].Err = symbols.ErrRemote
		case results[i] == noProgram:
			out[i].Err = symbols.ErrNotProgram
		default:
			out[i].Err = os.ErrNotExist
		}
	}
	return out
}

func (a *openerClient) exchange(order []byte, n int) (results []byte, files []*os.File, err error) {
	_ = a.conn.SetDeadline(time.Now().Add(openerTime))
	if _, err := a.conn.Write(order); err != nil {
		return nil, nil, err
	}
	got, oobn, _, _, err := a.conn.ReadMsgUnix(a.buf, a.oob)
	if err != nil {
		a.stuck()
		return nil, nil, fmt.Errorf("ask the opener: %w", err)
	}
	files, err = received(a.oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	results = a.buf[:got]
	want := 0
	for _, r := range results {
		if r == opened {
			want++
		}
	}
	if len(results) != n || want != len(files) {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, errMessage
	}
	return results, files, nil
}

// received extracts descriptors from a control message.
func received(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// Maps implements symbols.Opener.
func (a *openerClient) Maps(pid int) (*os.File, error) {
	return one(a.ask(openRequest{kind: openMaps, pid: pid}, 1))
}

// InRoot implements symbols.Opener.
func (a *openerClient) InRoot(pid int, path string) (*os.File, error) {
	return one(a.ask(openRequest{kind: openInRoot, pid: pid, path: path}, 1))
}

// Host implements symbols.Opener.
func (a *openerClient) Host(path string) (*os.File, error) {
	return one(a.ask(openRequest{kind: openHost, path: path}, 1))
}

// PerfMap implements symbols.Opener.
func (a *openerClient) PerfMap(pid int) (*os.File, error) {
	return one(a.ask(openRequest{kind: openPerfMap, pid: pid}, 1))
}

// Mapped implements symbols.Opener.
func (a *openerClient) Mapped(pid int, list []symbols.Mapping) []symbols.Opened {
	var out []symbols.Opened
	for len(list) > 0 {
		n, size := 0, 0
		for n < min(len(list), maxOpen) && size < maxMessage/2 {
			size += len(list[n].Name) + 64
			n++
		}
		out = append(out, a.ask(openRequest{kind: openMapped, pid: pid, list: list[:n]}, n)...)
		list = list[n:]
	}
	return out
}

func one(list []symbols.Opened) (*os.File, error) { return list[0].File, list[0].Err }
