package trace

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// maxCPU bounds a CPU's number; NR_CPUS is at most 8192.
const maxCPU = 1<<16 - 1

// defaultPacket is where a packet ends, in bytes.
const defaultPacket = 1 << 20

// Trace is what Write writes.
type Trace struct {
	CPUs     []CPU
	Outliers []Outlier
	Env      Env
	// Known is what is known from elsewhere of what the trace mentions. nil: the
	// trace has no state dump.
	Known *Known
	// ClockOffset is CLOCK_REALTIME minus CLOCK_MONOTONIC.
	ClockOffset time.Duration
	// SyscallName gives the name of a system call, or "" for none. It may be
	// nil.
	SyscallName func(nr int) string
	// UUID identifies the trace; zero: a random one.
	UUID [16]byte
	// Tee, if set, gets the same bytes as each file, which is named as seen from the
	// trace's directory ("kernel/metadata"). It is asked once a file, in the order in
	// which they are written. Its errors are the file's.
	Tee func(file string) io.Writer
	// PacketSize is about how many bytes a packet has; 0: 1 MiB, or 128 KiB compressed.
	PacketSize int
	// Compress compresses the streams, packet by packet, with zstd: Read and Copy
	// read them, readers of CTF do not.
	Compress bool

	prepared *prepared // nil: not yet
}

// prepared is what copies of a Trace share.
type prepared struct {
	streams []*stream
	dumped  bool // they have the state dump
}

// Prepare does what Write and Events both need. It checks the trace. Known may be set later.
func (t *Trace) Prepare() error {
	if t.prepared != nil {
		return nil
	}
	streams, err := plan(t)
	if err == nil {
		t.prepared = &prepared{streams: streams}
	}
	return err
}

// complete is Prepare, and adds the state dump, if there is one.
func (t *Trace) complete() error {
	if err := t.Prepare(); err != nil {
		return err
	}
	if p := t.prepared; !p.dumped && t.Known != nil {
		dump(p.streams, t.Known, t.SyscallName)
		p.dumped = true
	}
	return nil
}

// CPU is one CPU's history. Each CPU may occur once.
type CPU struct {
	CPU int
	// Records should be ordered by time; they are sorted (in a copy) if not.
	// Those that cannot be decoded count as discarded.
	Records []Record
	// Discarded is how many more events there were whose records were lost;
	// it is not known when in the stream they happened.
	Discarded uint64
	// From and To bound what is covered: a CPU without records was quiet then.
	// In nanoseconds of CLOCK_MONOTONIC; 0: from the first, to the last record.
	From, To uint64
}

// Outlier becomes a tailcam_entry event at Start on EntryCPU and a
// tailcam_exit event at End on ExitCPU.
type Outlier struct {
	Number            uint64
	Rule, Track       string
	Start, End        uint64 // nanoseconds of CLOCK_MONOTONIC
	EntryCPU, ExitCPU int
	DelayNS           int64
	TID, PID          int
	Comm              string
}

// extra is an event that comes from no record.
type extra struct {
	time   uint64
	after  bool // the records of the same time
	typ    Type
	tid    int
	values values
}

// kernelDir is the directory in a trace's that has its files. LTTng's
// sessions have it, and lttng-analyses finds the tracer's version by it.
const kernelDir = "kernel"

// streamPrefix begins the name of each CPU's file; the CPU's number follows.
const streamPrefix = "kernel_"

// Write writes the trace as CTF into a directory "kernel" in dir; both are
// created if they are missing: a file "kernel_N" for each CPU, "kernel_N.zst" if it is
// compressed, then "metadata". Existing files are not replaced. It does not sync, and after an
// error what it wrote remains.
//
// Write only reads what the trace holds; it may run beside other readers of that.
func Write(dir string, t Trace) error {
	d, err := Begin(dir, t)
	if err != nil {
		return err
	}
	return d.Finish(t.Known)
}

// Draft is a trace that is being written. It is for one goroutine at a time.
type Draft struct {
	trace Trace
	files string // directory
	w     writer
	rest  []*stream // that are not written yet
}

// Begin is Write as far as it needs no Trace.Known, which Finish is given: those streams that
// have nothing of the state dump.
func Begin(dir string, t Trace) (*Draft, error) {
	if err := t.Prepare(); err != nil {
		return nil, err
	}
	if t.UUID == ([16]byte{}) {
		_, _ = rand.Read(t.UUID[:])       // never fails
		t.UUID[6] = t.UUID[6]&0x0f | 0x40 // version 4
		t.UUID[8] = t.UUID[8]&0x3f | 0x80
	}
	switch {
	case t.PacketSize > 0:
	case t.Compress:
		t.PacketSize = compressedPacket
	default:
		t.PacketSize = defaultPacket
	}
	files := filepath.Join(dir, kernelDir)
	for _, d := range []string{dir, files} {
		if err := os.Mkdir(d, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("create trace directory: %w", err)
		}
	}
	d := &Draft{
		trace: t, files: files,
		w: writer{uuid: t.UUID, limit: t.PacketSize, names: syscallNames{ask: t.SyscallName}},
	}
	if t.Compress {
		var err error
		if d.w.zip, err = newFrameEncoder(); err != nil {
			return nil, fmt.Errorf("compress trace: %w", err)
		}
	}
	var now []*stream
	now, d.rest = withoutDump(t.prepared.streams)
	return d, d.write(now)
}

// Finish writes the rest, with what is known from elsewhere; nil: without a state dump.
func (d *Draft) Finish(known *Known) error {
	d.trace.Known = known
	if err := d.trace.complete(); err != nil {
		return err
	}
	if err := d.write(d.rest); err != nil {
		return err
	}
	// Last: without it the directory is not a trace.
	text := metadata(&d.trace, d.trace.UUID, d.w.names.known, d.w.total)
	path := filepath.Join(d.files, "metadata")
	err := create(path, func(f *os.File) error {
		_, err := d.trace.tee(f, path).Write(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("write trace metadata: %w", err)
	}
	return nil
}

func (d *Draft) write(streams []*stream) error {
	write, ext := d.w.stream, ""
	if d.trace.Compress {
		write, ext = d.w.compressed, compressedExt
	}
	for _, s := range streams {
		path := filepath.Join(d.files, streamPrefix+strconv.Itoa(s.cpu)+ext)
		if err := create(path, func(f *os.File) error { return write(d.trace.tee(f, path), s) }); err != nil {
			return fmt.Errorf("write trace of CPU %d: %w", s.cpu, err)
		}
	}
	return nil
}

// tee is where a file's bytes go.
func (t *Trace) tee(f io.Writer, path string) io.Writer {
	if t.Tee == nil {
		return f
	}
	return io.MultiWriter(f, t.Tee(kernelDir+"/"+filepath.Base(path)))
}

func create(path string, fill func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640) //nolint:gosec // the modes of a snapshot: its group may read it
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// stream is one CPU's events, ready to be merged.
type stream struct {
	cpu        int
	records    []Record // by time
	extras     []extra  // by time
	discarded  uint64
	from, to   uint64 // covered; 0: not known
	begin, end uint64 // of its events and what is covered, or of the whole trace if there is neither
}

// plan checks the trace and sorts what has to be sorted.
func plan(t *Trace) ([]*stream, error) {
	byCPU := make(map[int]*stream, len(t.CPUs))
	var streams []*stream
	get := func(cpu int) (*stream, bool) {
		s, old := byCPU[cpu]
		if !old {
			s = &stream{cpu: cpu}
			byCPU[cpu] = s
			streams = append(streams, s)
		}
		return s, old
	}
	for _, c := range t.CPUs {
		if c.CPU < 0 || c.CPU > maxCPU {
			return nil, fmt.Errorf("write trace: impossible CPU %d", c.CPU)
		}
		s, old := get(c.CPU)
		if old {
			return nil, fmt.Errorf("write trace: CPU %d occurs twice", c.CPU)
		}
		s.discarded, s.from, s.to = c.Discarded, c.From, c.To
		s.records = sorted(c.Records)
		for i := range s.records {
			if !s.records[i].known() {
				s.discarded++
			}
		}
	}
	for i := range t.Outliers {
		o := &t.Outliers[i]
		if o.EntryCPU < 0 || o.EntryCPU > maxCPU || o.ExitCPU < 0 || o.ExitCPU > maxCPU {
			return nil, fmt.Errorf("write trace: outlier %d: impossible CPU %d or %d", o.Number, o.EntryCPU, o.ExitCPU)
		}
		if o.Start > o.End || o.End >= maxTime {
			return nil, fmt.Errorf("write trace: outlier %d: impossible times %d to %d", o.Number, o.Start, o.End)
		}
		entry, _ := get(o.EntryCPU)
		entry.extras = append(entry.extras, extra{o.Start, false, OutlierEntry, o.TID, o.values()})
		exit, _ := get(o.ExitCPU)
		exit.extras = append(exit.extras, extra{o.End, true, OutlierExit, o.TID, o.values()})
	}
	setRanges(streams)
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.cpu, b.cpu) })
	return streams, nil
}

func sorted(records []Record) []Record {
	inOrder := true
	for i := 1; i < len(records) && inOrder; i++ {
		inOrder = records[i-1].Time() <= records[i].Time()
	}
	if inOrder {
		return records
	}
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(a.Time(), b.Time()) })
	return records
}

func (o *Outlier) values() (v values) {
	v.text[valRule], v.text[valTrack], v.text[valName] = o.Rule, o.Track, o.Comm
	v.num[valDelay], v.num[valTID], v.num[valPID], v.num[valOutlier] = uint64(o.DelayNS), uint64(o.TID), uint64(o.PID), o.Number
	return v
}

// sortExtras keeps those of the same time in their order.
func (s *stream) sortExtras() {
	slices.SortStableFunc(s.extras, func(a, b extra) int {
		if c := cmp.Compare(a.time, b.time); c != 0 || a.after == b.after {
			return c
		}
		if a.after {
			return 1
		}
		return -1
	})
}

// setRanges sorts the extras and finds the first and last time of each stream.
func setRanges(streams []*stream) {
	first, last := uint64(math.MaxUint64), uint64(0)
	for _, s := range streams {
		s.sortExtras()
		s.begin, s.end = math.MaxUint64, 0
		if s.from > 0 && s.from <= s.to && s.to < maxTime {
			s.begin, s.end = s.from, s.to
		}
		for i := range s.records {
			if r := &s.records[i]; r.known() {
				s.begin, s.end = min(s.begin, r.Time()), max(s.end, r.Time())
			}
		}
		if n := len(s.extras); n > 0 {
			s.begin, s.end = min(s.begin, s.extras[0].time), max(s.end, s.extras[n-1].time)
		}
		first, last = min(first, s.begin), max(last, s.end)
	}
	for _, s := range streams {
		if s.begin > s.end {
			s.begin, s.end = min(first, last), last
		}
	}
}
