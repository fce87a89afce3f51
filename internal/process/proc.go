package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/process/within"
)

const (
	maxCmdline = 4096    // bytes of a command line in an Identity
	maxStat    = 4096    // bytes of /proc/PID/stat
	maxCgroups = 1 << 20 // bytes of /proc/PID/cgroup: about 16 paths

	// Flags in /proc/PID/stat.
	flagExiting      = 0x00000004 // PF_EXITING
	flagKernelThread = 0x00200000 // PF_KTHREAD
)

// openProcess is an open /proc/PID directory. Reads through it fail once the process has
// exited, even if its pid is reused.
type openProcess struct {
	now state
	dir *os.File
}

// state is the content of /proc/PID/stat.
type state struct {
	life
	exiting bool // exiting or dead: cgroup and memory may be gone
}

func (t *Table) read(pid int) (openProcess, error) {
	dir, err := os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(pid)))
	if err != nil {
		return openProcess{}, err
	}
	now, err := stateOf(func(name string, limit int) ([]byte, error) { return t.readWithin(pid, dir, name, limit) })
	if err != nil {
		dir.Close()
		return openProcess{}, err
	}
	return openProcess{now, dir}, nil
}

// bounded runs a read about a process, and gives up after the timeout.
func bounded[T any](t *Table, pid int, what string, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	r, err := within.Do(t.gate, gateKey{pid, what}, t.opts.Timeout, func() result {
		v, err := read()
		return result{v, err}
	})
	if err != nil {
		t.timeouts.Add(1)
		return r.value, err
	}
	return r.value, r.err
}

func (t *Table) readWithin(pid int, dir *os.File, name string, limit int) ([]byte, error) {
	own, err := dup(dir) // as an abandoned call may still use it
	if err != nil {
		return nil, err
	}
	return bounded(t, pid, name, func() ([]byte, error) {
		defer own.Close()
		return readIn(own, name, limit)
	})
}

// fileReader reads one file of a process.
type fileReader func(name string, limit int) ([]byte, error)

// withTimeout reads about a process and gives up after the timeout.
func (t *Table) withTimeout(pid int, now life, dir *os.File) fileReader {
	return func(name string, limit int) ([]byte, error) {
		if name == cmdlineFile && (now.kernel || t.opts.Cmdline != nil) {
			return t.cmdline(pid, now, dir)
		}
		return t.readWithin(pid, dir, name, limit)
	}
}

// cmdlineFile may block its readers: it is read from the process's own memory.
const cmdlineFile = "cmdline"

// cmdline reads the command line, with Options.Cmdline if set.
func (t *Table) cmdline(pid int, now life, dir *os.File) ([]byte, error) {
	switch {
	case now.kernel:
		return nil, nil
	case t.opts.Cmdline == nil:
		return readIn(dir, cmdlineFile, 2*maxCmdline)
	}
	text, err := t.opts.Cmdline(pid, now.start)
	return []byte(text), err
}

// describe reads the identity; complete is false if the command line could not be read
// in time.
func describe(ask fileReader, comm string) (who Identity, complete bool, err error) {
	text, err := ask("cgroup", maxCgroups)
	if err != nil {
		return Identity{}, false, err
	}
	var all []string
	who.Cgroup, all = parseCgroups(text)
	who.Container = ContainerID(who.Cgroup)
	for i := 0; i < len(all) && who.Container == ""; i++ {
		who.Container = ContainerID(all[i]) // cgroup v1
	}
	who.V1Cgroups = v1Cgroups(text)
	who.Cgroup, who.Container = clean(who.Cgroup, maxCmdline), clean(who.Container, maxCmdline)

	text, err = ask(cmdlineFile, 2*maxCmdline)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Identity{}, false, err
		}
		return who, false, nil
	}
	who.Cmdline, who.Title = CommandLine(text), title(text, comm)
	return who, true, nil
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// readIn reads at most limit bytes of a file in a procfs directory.
func readIn(dir *os.File, name string, limit int) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: gone(err)}
	}
	defer unix.Close(fd)    // only read from
	var chunk [4 << 10]byte // nearly always enough
	var text []byte
	for len(text) < limit {
		n, err := unix.Read(fd, chunk[:min(len(chunk), limit-len(text))])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return text, &fs.PathError{Op: "read", Path: filepath.Join(dir.Name(), name), Err: gone(err)}
		}
		if n == 0 {
			break
		}
		text = append(text, chunk[:n]...)
	}
	return text, nil
}

// gone converts ESRCH to fs.ErrNotExist.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return unix.ENOENT
	}
	return err
}

// statFields splits /proc/PID/stat into the name, which is in parentheses and may contain
// parentheses and spaces, and the fields behind it: field n of proc(5) is at n-3. It has one at
// least up to last.
func statFields(text []byte, last int) (comm string, fields []string, err error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return "", nil, fmt.Errorf("parse stat %.60q: no name", text)
	}
	fields = strings.Fields(string(text[end+1:]))
	if len(fields) <= last {
		return "", nil, fmt.Errorf("parse stat %.60q: only %d fields", text, len(fields)+2)
	}
	return string(text[open+1 : end]), fields, nil
}

const statFlags, statStartTime = 9 - 3, 22 - 3

// parseStat parses /proc/PID/stat.
func parseStat(text []byte) (state, error) {
	comm, fields, err := statFields(text, statStartTime)
	if err != nil {
		return state{}, err
	}
	return parseState(comm, fields)
}

// parseState is parseStat of what statFields returns.
func parseState(comm string, fields []string) (state, error) {
	start, err := strconv.ParseUint(fields[statStartTime], 10, 64)
	if err != nil {
		return state{}, fmt.Errorf("parse start time of stat: %w", err)
	}
	bits, err := strconv.ParseUint(fields[statFlags], 10, 64)
	if err != nil {
		return state{}, fmt.Errorf("parse flags of stat: %w", err)
	}
	return state{
		life:    life{start, comm, bits&flagKernelThread != 0},
		exiting: bits&flagExiting != 0 || slices.Contains([]string{"Z", "X", "x"}, fields[0]),
	}, nil
}

// StartTime returns the start time in clock ticks since boot, given /proc/PID/stat.
func StartTime(stat []byte) (uint64, error) {
	l, err := parseStat(stat)
	return l.start, err
}

// parseCgroups parses lines of id:controllers:path and returns the v2 path and the
// others.
func parseCgroups(text []byte) (v2 string, v1 []string) {
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		path := strings.TrimSuffix(parts[2], deletedSuffix)
		if parts[0] == "0" && parts[1] == "" {
			v2 = path
		} else {
			v1 = append(v1, path)
		}
	}
	return v2, v1
}

// v1Cgroups returns the v1 paths of the controllers that limit.
func v1Cgroups(text []byte) (v1 V1Cgroups) {
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			to := map[string]*string{"cpu": &v1.CPUCgroup, "memory": &v1.MemoryCgroup, "blkio": &v1.IOCgroup}[controller]
			if to != nil && *to == "" {
				*to = clean(strings.TrimSuffix(parts[2], deletedSuffix), maxCmdline)
			}
		}
	}
	return v1
}

// CommandLine joins NUL-terminated arguments, and makes them printable.
func CommandLine(text []byte) string {
	text = bytes.TrimRight(text, "\x00 \n")
	return clean(string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})), maxCmdline)
}

// clean makes text printable and limits it to limit bytes. It is a copy: what is kept of a file
// must not keep all of it.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != ' ' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) <= limit {
		return strings.Clone(text)
	}
	const ellipsis = "…"
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
