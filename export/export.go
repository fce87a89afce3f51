// Package export turns a snapshot into what other tools open: CTF, Perfetto,
// folded stacks, a flame graph, lines as perf script prints them, JSON lines.
//
// Every export reads the trace once and holds none of it: its memory is bounded
// by the tasks, CPUs and outliers that the trace names, not by its events.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/export/perfetto"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Format is what is written.
type Format string

// Formats.
const (
	CTF      Format = "ctf"
	Perfetto Format = "perfetto"
	Folded   Format = "folded"
	SVG      Format = "svg"
	Text     Format = "text"
	JSON     Format = "json"
)

// Formats lists them.
var Formats = []Format{CTF, Perfetto, Folded, SVG, Text, JSON}

// Stdout as Options.Out is the standard output.
const Stdout = "-"

// Options say what to export, and where to.
type Options struct {
	Format Format
	Out    string // a file; a directory for CTF; Stdout
	Force  bool   // replace what is there
	// Before and After narrow the export to so much before the first outlier's
	// start and after the last one's end; negative: all that there is.
	Before, After time.Duration
	Time          flame.Kind // Folded, SVG: which time
	// KeepGoing exports what can be read of a damaged trace; what cannot is in
	// Result.Damage. Not for CTF.
	KeepGoing bool
	// SyscallName names this machine's system calls, or returns "". It may be nil.
	SyscallName func(nr int) string
	// Progress is called now and then with the bytes read, and all there are. It may be nil.
	Progress func(done, total uint64)
}

// Result is what was exported.
type Result struct {
	Events uint64  // read from the trace, those that mark outliers included
	Damage []error // with KeepGoing
	// Inserted are switches that the kernel left out, and the export to Perfetto has in their
	// place: without them a task would seem to run until somebody else is seen to leave.
	Inserted uint64
}

// source is the snapshot that is read.
type source struct {
	dir    string
	meta   *snapshot.Meta
	names  *names
	reader *trace.Reader
	span   trace.Span
}

// Run exports the snapshot in dir. It writes beside the file that is asked for
// and renames at the end, so that there is all of it or nothing. Errors say
// what is wrong with the snapshot or the output; those of a damaged trace wrap
// trace.ErrDamaged.
func Run(ctx context.Context, dir string, stdout io.Writer, o *Options) (Result, error) {
	src, err := open(dir, o)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = src.reader.Close() }()
	if (o.Format == Folded || o.Format == SVG) && o.Time == flame.OutlierTime && len(src.meta.Outliers) == 0 {
		return Result{}, errors.New("this snapshot has no outliers: use --time oncpu or --time offcpu")
	}
	if o.Format == CTF {
		return exportCTF(ctx, src, o)
	}
	var r Result
	err = writeOut(o.Out, o.Force, stdout, func(w io.Writer) error {
		r, err = src.write(ctx, w, o)
		return err
	})
	return r, err
}

// sink takes events in the order of time.
type sink interface {
	Event(ev *trace.Event) error
	// Close ends the output. discarded tells how many events a CPU lost.
	Close(discarded func(cpu int) uint64) error
}

func (s *source) write(ctx context.Context, w io.Writer, o *Options) (Result, error) {
	var out sink
	switch o.Format {
	case Perfetto:
		explained, err := readExplained(s.dir)
		if err != nil {
			return Result{}, err
		}
		out = s.perfetto(w, explained)
	case Folded, SVG:
		if o.Time == flame.OutlierTime {
			return Result{}, s.writeStacks(w, o, flame.Outliers(s.within()))
		}
		out = &stackSink{s: s, w: w, o: o, times: flame.NewTimes(o.Time, &s.names.fields, s.names.known)}
	case Text:
		out = newTextSink(w, s)
	default:
		out = newJSONSink(w, s)
	}
	return s.pump(ctx, out, o)
}

// progressEvery is after how many events somebody is told.
const progressEvery = 1 << 13

// pump hands all events of the span to out.
func (s *source) pump(ctx context.Context, out sink, o *Options) (Result, error) {
	var r Result
	for n := uint64(0); ; n++ {
		if n%progressEvery == 0 {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			if o.Progress != nil {
				o.Progress(s.reader.Progress())
			}
		}
		ev, err := s.reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, trace.ErrDamaged) && o.KeepGoing {
			r.Damage = append(r.Damage, err)
			continue
		}
		if err != nil {
			return r, err
		}
		if !s.span.Has(ev.Time) {
			continue
		}
		r.Events++
		if err := out.Event(&ev); err != nil {
			return r, err
		}
	}
	if p, ok := out.(*perfetto.Writer); ok {
		r.Inserted = p.Inserted()
	}
	return r, out.Close(s.reader.Discarded)
}

// open reads all of a snapshot but its trace.
func open(dir string, o *Options) (*source, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s is not a snapshot directory", dir)
	}
	meta, err := snapshot.ReadMeta(dir)
	if errors.Is(err, fs.ErrNotExist) {
		for _, above := range []string{"..", "../.."} {
			if _, err := os.Stat(filepath.Join(dir, above, snapshot.MetaFile)); err == nil {
				return nil, fmt.Errorf("%s is a trace directory: specify the snapshot's, %s", dir, filepath.Join(dir, above))
			}
		}
		return nil, fmt.Errorf("%s is not a snapshot directory: it has no %s", dir, snapshot.MetaFile)
	}
	if err != nil {
		return nil, err
	}
	s := &source{dir: dir, meta: meta}
	if s.span, err = span(meta, o); err != nil {
		return nil, err
	}
	path, err := snapshot.TracePath(dir)
	if err != nil {
		return nil, err
	}
	if s.reader, err = trace.Read(path); err != nil {
		return nil, err
	}
	if s.names, err = readNames(dir, s.reader.Env().Machine, o.SyscallName); err != nil {
		_ = s.reader.Close()
		return nil, err
	}
	return s, nil
}

// span is what Before and After ask for, around the outliers or, of a snapshot
// taken by hand, around the moment that it was taken at.
func span(m *snapshot.Meta, o *Options) (trace.Span, error) {
	if o.Before < 0 && o.After < 0 {
		return trace.Always, nil
	}
	first, last := m.Window.ToMonoNS, m.Window.ToMonoNS
	for i := range m.Outliers {
		if i == 0 {
			first, last = m.Outliers[i].StartMono, m.Outliers[i].EndMono
		}
		first, last = min(first, m.Outliers[i].StartMono), max(last, m.Outliers[i].EndMono)
	}
	if last == 0 {
		return trace.Span{}, errors.New("this snapshot does not record when it was taken: omit --before and --after")
	}
	s := trace.Always
	if o.Before >= 0 {
		s.From = first - min(first, uint64(o.Before))
	}
	if o.After >= 0 {
		s.To = last + min(uint64(o.After), math.MaxUint64-last)
	}
	return s, nil
}
