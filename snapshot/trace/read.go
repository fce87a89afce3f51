package trace

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxStreams = 4096    // files of one trace
	maxEntries = 1 << 16 // of its directory
)

// ErrDamaged is wrapped by errors about files that are torn or no traces.
var ErrDamaged = errors.New("damaged trace")

// Reader reads a trace that Write wrote, in one pass and in bounded memory.
// It is not safe for concurrent use.
type Reader struct {
	meta    *meta
	streams []*streamReader
	heads   heads
	failed  []error // to be returned by Next
	total   uint64  // bytes of all streams
	zip     *unzip  // nil: not compressed
}

// Read opens the trace in dir, or in the directory "kernel" in it: both that
// of a snapshot and that of its files will do. It may be compressed, and has then
// no more bytes than it declares, at most 4 GiB. Call Close after use.
func Read(dir string) (*Reader, error) {
	dir = filesOf(dir)
	m, _, err := readMetadata(filepath.Join(dir, "metadata"))
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	names, err := streamFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	r := &Reader{meta: m, total: m.bytes}
	if r.zip, err = m.unzip(); err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	for cpu, name := range names {
		s, err := openStream(filepath.Join(dir, name), m, cpu, r.zip)
		if err != nil {
			_ = r.Close()
			return nil, fmt.Errorf("read trace: %w", err)
		}
		if st, err := s.file.Stat(); err == nil && m.bytes == 0 {
			r.total += uint64(st.Size())
		}
		r.streams = append(r.streams, s)
	}
	r.start()
	return r, nil
}

// start reads the first event of each stream.
func (r *Reader) start() {
	for _, s := range r.streams {
		if r.advance(s) {
			r.heads = append(r.heads, s)
		}
	}
	heap.Init(&r.heads)
}

// advance reads a stream's next event and tells whether there was one.
func (r *Reader) advance(s *streamReader) bool {
	err := s.next()
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = append(r.failed, fmt.Errorf("read trace of CPU %d at byte %d: %w", s.cpu, s.pos, err))
	}
	return err == nil
}

// Next returns the events of all CPUs in the order of time, then io.EOF.
// An error that wraps ErrDamaged ends one CPU's stream: what came before it
// was good, and further calls return the other CPUs' events.
func (r *Reader) Next() (Event, error) {
	if len(r.failed) > 0 {
		err := r.failed[0]
		r.failed = r.failed[1:]
		return Event{}, err
	}
	if len(r.heads) == 0 {
		return Event{}, io.EOF
	}
	s := r.heads[0]
	ev := s.event
	if r.advance(s) {
		heap.Fix(&r.heads, 0)
	} else {
		heap.Pop(&r.heads)
	}
	return ev, nil
}

// Close closes the trace's files.
func (r *Reader) Close() error {
	var errs []error
	for _, s := range r.streams {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	r.streams, r.heads = nil, nil
	r.zip.close()
	return errors.Join(errs...)
}

// Env returns what the trace says of its origin.
func (r *Reader) Env() Env { return r.meta.env }

// ClockOffset returns CLOCK_REALTIME minus CLOCK_MONOTONIC.
func (r *Reader) ClockOffset() time.Duration { return r.meta.offset }

// Wall converts an event's time to wall time, UTC.
func (r *Reader) Wall(mono uint64) time.Time {
	return time.Unix(0, int64(mono)+int64(r.meta.offset)).UTC()
}

// CPUs returns the CPUs that have a stream, in no order.
func (r *Reader) CPUs() []int {
	cpus := make([]int, len(r.streams))
	for i, s := range r.streams {
		cpus[i] = s.cpu
	}
	return cpus
}

// Progress returns how many bytes of the trace were read, and how many it has,
// uncompressed. Damage leaves the rest of a stream unread.
func (r *Reader) Progress() (read, total uint64) {
	for _, s := range r.streams {
		read += s.pos
	}
	return read, r.total
}

// Discarded returns how many events of a CPU were lost, as far as the trace
// has been read: complete after io.EOF.
func (r *Reader) Discarded(cpu int) uint64 {
	for _, s := range r.streams {
		if s.cpu == cpu {
			return s.pkt.discarded
		}
	}
	return 0
}

// heads is a heap of streams by the time of their next event, then by CPU.
type heads []*streamReader

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	a, b := h[i], h[j]
	return a.event.Time < b.event.Time || a.event.Time == b.event.Time && a.cpu < b.cpu
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*streamReader)) }
func (h *heads) Pop() any {
	old := *h
	s := old[len(old)-1]
	*h = old[:len(old)-1]
	return s
}

// filesOf returns the directory that has the files of the trace in dir. It
// follows no link to another one.
func filesOf(dir string) string {
	files := filepath.Join(dir, kernelDir)
	if st, err := os.Lstat(files); err == nil && st.IsDir() && exists(filepath.Join(files, "metadata")) {
		return files
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// readMetadata returns the metadata and its text.
func readMetadata(path string) (m *meta, text []byte, err error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	text, err = io.ReadAll(io.LimitReader(f, maxMetadata+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxMetadata {
		return nil, nil, fmt.Errorf("%w: %s has more than %d bytes", ErrDamaged, path, maxMetadata)
	}
	m, err = parseMetadata(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return m, text, nil
}

// streamFiles lists the trace's stream files by CPU.
func streamFiles(dir string) (map[int]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	files := make(map[int]string)
	for seen := 0; ; {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			digits, ok := strings.CutPrefix(strings.TrimSuffix(name, compressedExt), streamPrefix)
			cpu, err := strconv.Atoi(digits)
			if !ok || err != nil || cpu < 0 || cpu > maxCPU || strconv.Itoa(cpu) != digits {
				continue
			}
			if files[cpu] != "" {
				return nil, fmt.Errorf("%w: both %s and %s in %s", ErrDamaged, files[cpu], name, dir)
			}
			files[cpu] = name
		}
		if seen += len(names); seen > maxEntries || len(files) > maxStreams {
			return nil, fmt.Errorf("%w: too many files in %s", ErrDamaged, dir)
		}
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// openRegular neither follows a link nor waits on a pipe: a trace may come
// from anywhere.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(err, fmt.Errorf("%w: %s is not a regular file", ErrDamaged, path))
	}
	return f, nil
}
