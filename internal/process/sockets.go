package process

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of one lookup of sockets.
const (
	maxSocketTable  = 16 << 20 // of a table of a network namespace, in bytes
	maxSocketTables = 32
	maxSocketFiles  = 4096 // descriptors of a process
	maxConnections  = 64   // kept of a process
)

// Sockets tells which side of its connections a process is on: TCP, and UNIX stream sockets.
type Sockets struct {
	PID         int
	Listens     bool
	Accepted    int          // connections that others opened
	Opened      int          // connections that it opened
	Connections []Connection // of TCP, at most 64
	Partial     bool         // it has more descriptors than were looked at
}

// Connection is an established connection of TCP.
type Connection struct {
	Local, Remote netip.AddrPort
	Accepted      bool // the remote side opened it
}

// Sockets looks up the sockets of those of the processes that have some, in order, as far as
// limit permits.
func (t *Table) Sockets(pids []int, limit time.Duration) []Sockets {
	var all []Sockets
	for _, s := range t.endpoints(pids, "sockets", limit) {
		if s.Listens || s.Accepted+s.Opened > 0 {
			all = append(all, s.Sockets)
		}
	}
	return all
}

// endpoints are the sockets of a process, and where it listens.
type endpoints struct {
	Sockets
	space string   // its network namespace
	ports []uint16 // of TCP on which it listens, at most 64
}

func (t *Table) endpoints(pids []int, what string, limit time.Duration) []endpoints {
	return each(t, pids, what, time.Now().Add(limit), func(pids []int) (func(i int) (endpoints, error), func()) {
		tables := socketTables{own: ownNamespace(), diag: &t.diag, of: map[string]map[uint64]socket{}}
		return func(i int) (endpoints, error) {
			return readSockets(t.inProc(pids[i], ""), pids[i], &tables)
		}, func() {}
	})
}

func (t *Table) inProc(pid int, file string) string {
	return filepath.Join(t.opts.Proc, strconv.Itoa(pid), file)
}

// socket is one of a network namespace.
type socket struct {
	twice                       bool // two sockets claim this number
	listens, accepted, tcp, unx bool
	local, remote               netip.AddrPort
	path                        string
}

// socketTables are those of network namespaces, by the links to them.
type socketTables struct {
	own  string // this process's
	diag *diag
	of   map[string]map[uint64]socket
}

// get returns the table of a namespace, whose files are in dir; nil: there are too many.
func (t *socketTables) get(space, dir string) map[uint64]socket {
	table, known := t.of[space]
	if known || len(t.of) >= maxSocketTables {
		return table
	}
	if space == t.own {
		table = socketTable(t.diag.each)
	}
	if table == nil {
		table = socketTable(func(add func(uint64, socket)) error { return readSocketFiles(dir, add) })
	}
	t.of[space] = table
	return table
}

func readSockets(dir string, pid int, tables *socketTables) (endpoints, error) {
	s := endpoints{Sockets: Sockets{PID: pid}}
	inodes, partial, err := socketInodes(filepath.Join(dir, "fd"))
	if err != nil || len(inodes) == 0 {
		return s, err
	}
	s.Partial = partial
	space, err := os.Readlink(filepath.Join(dir, "ns/net"))
	if err != nil {
		return s, err
	}
	s.space = space
	table := tables.get(space, filepath.Join(dir, "net"))
	for _, inode := range inodes {
		x, ok := table[inode]
		switch {
		case !ok || x.twice:
			continue
		case x.listens:
			s.Listens = true
			if x.tcp && len(s.ports) < maxConnections {
				s.ports = append(s.ports, x.local.Port())
			}
			continue
		case x.accepted:
			s.Accepted++
		default:
			s.Opened++
		}
		if x.tcp && len(s.Connections) < maxConnections {
			s.Connections = append(s.Connections, Connection{Local: x.local, Remote: x.remote, Accepted: x.accepted})
		}
	}
	return s, nil
}

// socketInodes returns the numbers of the sockets among a process's descriptors, each once.
func socketInodes(path string) (inodes []uint64, partial bool, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, false, gone(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxSocketFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, gone(err)
	}
	at := int(dir.Fd())
	var target [len("socket:[18446744073709551615]") + 1]byte // longer ones are of no socket
	for _, name := range names {
		size, err := unix.Readlinkat(at, name, target[:])
		if err != nil {
			continue // closed
		}
		number, isSocket := strings.CutPrefix(string(target[:size]), "socket:[")
		if n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); isSocket && err == nil {
			inodes = append(inodes, n)
		}
	}
	slices.Sort(inodes)
	return slices.Compact(inodes), len(names) == maxSocketFiles, nil
}

// socketTable collects the sockets of a network namespace that listen or are connected, by
// inode; nil: not all could be listed.
func socketTable(each func(add func(uint64, socket)) error) map[uint64]socket {
	table := map[uint64]socket{}
	err := each(func(inode uint64, s socket) {
		if old, ok := table[inode]; ok || inode == 0 {
			old.twice = true // names of UNIX sockets may contain newlines, and so forge lines
			table[inode] = old
			return
		}
		table[inode] = s
	})
	if err != nil {
		return nil
	}
	ports, paths := map[uint16]bool{}, map[string]bool{}
	for _, s := range table {
		switch {
		case s.listens && s.tcp:
			ports[s.local.Port()] = true
		case s.listens && s.unx:
			paths[s.path] = true
		}
	}
	for inode, s := range table {
		// A socket that was accepted has its listener's port, or name (unix_stream_connect in
		// net/unix/af_unix.c).
		s.accepted = !s.listens && (s.tcp && ports[s.local.Port()] || s.unx && s.path != "" && paths[s.path])
		table[inode] = s
	}
	return table
}

// readSocketFiles calls add for each socket that the files of a network namespace list.
func readSocketFiles(dir string, add func(uint64, socket)) error {
	eachLine(filepath.Join(dir, "tcp"), func(f []string) { addTCP(f, add) })
	eachLine(filepath.Join(dir, "tcp6"), func(f []string) { addTCP(f, add) })
	eachLine(filepath.Join(dir, "unix"), func(f []string) { addUNIX(f, add) })
	return nil
}

// eachLine calls add for the fields of each line but the first.
func eachLine(path string, add func(fields []string)) {
	f, err := os.Open(path)
	if err != nil {
		return // such as tcp6 without IPv6
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxSocketTable))
	for lines.Scan() {
		add(strings.Fields(lines.Text()))
	}
}

// States of sockets, as /proc/net has them.
const (
	tcpEstablished = "01"
	tcpCloseWait   = "08"
	tcpListen      = "0A"
	unixConnected  = "03"     // SS_CONNECTED
	unixStream     = "0001"   // SOCK_STREAM
	unixSequence   = "0005"   // SOCK_SEQPACKET
	unixListens    = 0x010000 // __SO_ACCEPTCON
)

// addTCP adds a line of /proc/net/tcp: sl local remote state tx:rx tr:when retransmits uid
// timeout inode.
func addTCP(f []string, add func(uint64, socket)) {
	if len(f) < 10 {
		return
	}
	inode, err := strconv.ParseUint(f[9], 10, 64)
	local, errLocal := socketAddress(f[1])
	remote, errRemote := socketAddress(f[2])
	if errors.Join(err, errLocal, errRemote) != nil || inode == 0 {
		return
	}
	switch f[3] {
	case tcpListen:
		add(inode, socket{listens: true, tcp: true, local: local})
	case tcpEstablished, tcpCloseWait:
		add(inode, socket{tcp: true, local: local, remote: remote})
	}
}

// addUNIX adds a line of /proc/net/unix: address references protocol flags type state inode
// name.
func addUNIX(f []string, add func(uint64, socket)) {
	if len(f) < 7 || f[4] != unixStream && f[4] != unixSequence {
		return
	}
	inode, err := strconv.ParseUint(f[6], 10, 64)
	flags, errFlags := strconv.ParseUint(f[3], 16, 64)
	if errors.Join(err, errFlags) != nil || inode == 0 {
		return
	}
	s := socket{unx: true, listens: flags&unixListens != 0, path: strings.Join(f[7:], " ")}
	if s.listens || f[5] == unixConnected {
		add(inode, s)
	}
}

// socketAddress parses an address as the kernel prints it: the words of the address, each in
// the machine's order, and the port.
func socketAddress(s string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(words)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if err := errors.Join(err, errPort); err != nil {
		return netip.AddrPort{}, err
	}
	for w := raw; len(w) >= 4; w = w[4:] {
		binary.NativeEndian.PutUint32(w, binary.BigEndian.Uint32(w))
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("invalid address %q", s)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
