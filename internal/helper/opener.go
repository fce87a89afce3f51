package helper

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
)

// serveOpener opens files for a parser until it exits: io.EOF.
func serveOpener(conn *net.UnixConn, files *symbols.Files) error {
	buf, idle := make([]byte, maxMessage), newRest(restAfter, nil)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		idle.work()
		o, err := decodeOpenRequest(buf[:n])
		if err != nil {
			return err
		}
		if err := sendFiles(conn, openFiles(files, o)); err != nil {
			return err
		}
	}
}

func openFiles(files *symbols.Files, o openRequest) []symbols.Opened {
	var f *os.File
	var err error
	switch o.kind {
	case openMaps:
		f, err = files.Maps(o.pid)
	case openMapped:
		return files.Mapped(o.pid, o.list)
	case openInRoot:
		f, err = files.InRoot(o.pid, o.path)
	case openHost:
		f, err = files.Host(o.path)
	case openPerfMap:
		f, err = files.PerfMap(o.pid)
	default:
		err = errMessage
	}
	return []symbols.Opened{{File: f, Err: err}}
}

// sendFiles sends the descriptors and closes them.
func sendFiles(conn *net.UnixConn, list []symbols.Opened) error {
	results := make([]byte, len(list))
	var fds []int
	for i, o := range list {
		switch {
		case o.Err == nil:
			results[i] = opened
			fds = append(fds, int(o.File.Fd()))
		case errors.Is(o.Err, symbols.ErrRemote):
			results[i] = isRemote
		case errors.Is(o.Err, symbols.ErrNotProgram):
			results[i] = noProgram
		default:
			results[i] = notOpened
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix(results, rights, nil)
	for _, o := range list {
		o.File.Close() // may be nil
	}
	return err
}

// serveReader reads process memory for the daemon until it exits: io.EOF.
func serveReader(conn *net.UnixConn, hello string) error {
	if _, err := conn.Write((&message{kind: msgHello, text: hello}).encode()); err != nil {
		return err
	}
	buf, stackBuffer, idle := make([]byte, maxMessage), make([]byte, maxData), newRest(restAfter, nil)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		idle.work()
		q, err := decodeRequest(buf[:n])
		if err != nil {
			return err
		}
		m := message{kind: msgReply, id: q.id}
		switch {
		case q.kind == reqMemory && len(q.addrs) == 3:
			var exact bool
			m.data, exact, err = process.Stack(q.pid, int(q.addrs[0]&math.MaxInt32), q.start, q.addrs[1], q.addrs[2], stackBuffer)
			if exact {
				m.flags |= flagExact
			}
		case q.kind == reqWords:
			m.addrs, err = readWords(&q)
		case q.kind == reqContextKeys:
			m.addrs, err = contextKeys(&q)
		case q.kind == reqCmdline:
			m.text, err = cmdline(q.pid, q.start)
		case q.kind == reqCmdlines && len(q.addrs)%2 == 0:
			m.addrs, m.frames = cmdlines(q.addrs)
		default:
			err = errMessage
		}
		if err != nil {
			m.flags |= flagFailed
			m.text = cmp.Or(m.text, err.Error())
		}
		if _, err := conn.Write(m.encode()); err != nil {
			return err
		}
	}
}

// cmdline reads the command line of the process with that start time. The memory may be
// mapped from any file, so this may hang.
func cmdline(pid int, start uint64) (string, error) {
	dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if start != 0 {
		text, err := readIn(dir, "stat")
		if err != nil {
			return "", err
		}
		now, err := process.StartTime(text)
		if err != nil {
			return "", err
		}
		if now != start {
			return "", fmt.Errorf("pid %d was reused: %w", pid, os.ErrNotExist)
		}
	}
	text, err := readIn(dir, "cmdline")
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(strings.TrimRight(string(text), "\x00 \n"), "\x00", argumentEnd), nil
}

// argumentEnd stands for the NUL after an argument, as messages are printable. A process that
// has it in its arguments only confuses what is said of itself.
const argumentEnd = "\u2400"

// Limits of a reqCmdlines reply.
const (
	maxCmdlines     = 128
	maxShortCmdline = 1024     // bytes; longer ones need reqCmdline
	maxCmdlineBytes = 24 << 10 // total bytes
)

// cmdlines reads the command lines of pairs of pid and start. known is 0 for those that
// need reqCmdline.
func cmdlines(of []uint64) (known []uint64, lines []string) {
	left := maxCmdlineBytes
	for i := 0; i+1 < len(of); i += 2 {
		line, err := cmdline(int(of[i]&math.MaxInt32), of[i+1])
		switch {
		case err != nil:
			known, lines = append(known, 1), append(lines, "")
		case len(line) > min(left, maxShortCmdline):
			known, lines = append(known, 0), append(lines, "")
		default:
			known, lines = append(known, 1), append(lines, line)
			left -= len(line)
		}
	}
	return known, lines
}

func readIn(dir *os.File, name string) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxText))
}
