package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// job is one collected snapshot on its way to the disk.
type job struct {
	meta   Meta
	cpus   []trace.CPU
	clock  Clock
	answer chan Done // of TakeNow, or nil
}

// size estimates what the snapshot will occupy: about one record's size per
// event, and room for the small files.
func (j *job) size() uint64 {
	return j.meta.Records*trace.RecordSize + uint64(len(j.cpus))*8<<10 + uint64(len(j.meta.Outliers))*32<<10 + 256<<10
}

// namesWait is how long a snapshot waits for the names of its outliers, from when
// it is collected. Those that come later are left out.
const namesWait = 2 * time.Second

// promptNames is the same for a writer with a real-time priority: what names has
// none, and may get no CPU for seconds.
const promptNames = 100 * time.Millisecond

// writeAll runs until the queue is closed and empty. All that happens on the disk
// does so here, old snapshots included, and not in the loop that reads the recorder.
// A snapshot whose outliers are not named yet lets others be written before it.
func (m *Manager) writeAll() {
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	named := make(chan job, cap(m.queue)) // nobody waits: there are no more slots
	waiting := 0
	for queue := m.queue; queue != nil || waiting > 0; {
		select {
		case j, ok := <-queue:
			switch {
			case !ok:
				queue = nil
			case m.opts.RTPriority > 0:
				j.pollNames(promptNames)
				m.writeOne(&j)
			case j.named():
				m.writeOne(&j)
			default:
				waiting++
				go func() {
					j.awaitNames(namesWait)
					named <- j
				}()
			}
		case j := <-named:
			waiting--
			m.writeOne(&j)
		case <-tidy.C:
			_ = m.opts.Guard.Do(guard.Store, func() error { m.opts.Store.Enforce(); return nil }) // it is logged
		}
	}
}

// named tells whether nothing more will be found out about the outliers.
func (j *job) named() bool {
	for i := range j.meta.Outliers {
		if !j.meta.Outliers[i].IsComplete() {
			return false
		}
	}
	return true
}

// pollNames is awaitNames for a real-time thread. It asks rather than to wait: to
// be woken takes a thread of Go's runtime, which has no priority.
func (j *job) pollNames(most time.Duration) {
	pause := unix.NsecToTimespec(time.Millisecond.Nanoseconds())
	for end := time.Now().Add(most); !j.named() && time.Now().Before(end); {
		_ = unix.Nanosleep(&pause, nil) // a signal ends one early
	}
}

// awaitNames waits until all outliers are named, or the time is over.
func (j *job) awaitNames(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for i := range j.meta.Outliers {
		if l := j.meta.Outliers[i].Enrichment; l != nil {
			select {
			case <-l.Completed():
			case <-timer.C:
				return
			}
		}
	}
}

func (m *Manager) writeOne(j *job) {
	d := Done{ID: j.meta.ID, Reason: j.meta.Reason, Outliers: j.meta.Outliers}
	var release func()
	d.Err = m.opts.Guard.Do(guard.Snapshot, func() (err error) {
		d.Dir, release, err = m.write(j)
		return err
	})

	m.mu.Lock()
	if m.slots--; m.slots == 0 {
		m.garbage.release()
	}
	switch {
	case d.Err == nil:
		m.stats.Taken++
	case errors.Is(d.Err, ErrNoSpace):
		m.stats.NoSpace++
		fallthrough
	default:
		m.stats.Failed++
		m.stats.LastError = d.Err.Error()
	}
	m.mu.Unlock()

	if d.Err != nil {
		m.writeLimit.error(m.log, time.Now(), "snapshot abandoned", zap.String("snapshot", d.ID), zap.Error(d.Err))
	} else {
		m.log.Info("snapshot taken", zap.String("dir", d.Dir), zap.Int("outliers", len(d.Outliers)),
			zap.Uint64("records", j.meta.Records), zap.Strings("notes", j.meta.Notes))
	}
	if m.opts.OnDone != nil {
		_ = m.opts.Guard.Do(guard.Publish, func() error { m.opts.OnDone(d); return nil }) // it is logged
	}
	if release != nil {
		release()
	}
	if j.answer != nil {
		j.answer <- d
	}
}

// write puts one snapshot into the store.
func (m *Manager) write(j *job) (dir string, release func(), err error) {
	p, err := m.opts.Store.Create(j.meta.ID, j.size())
	if err != nil {
		return "", nil, err
	}
	defer p.Abort()
	if err := m.fill(p.Dir, j); err != nil {
		return "", nil, fmt.Errorf("write snapshot %s: %w", j.meta.ID, spaceError(err))
	}
	return p.Commit()
}

func (m *Manager) fill(dir string, j *job) error {
	store := m.opts.Store
	traceDir := filepath.Join(dir, TraceDir)
	names := m.names(j)
	t := m.trace(j, &names)
	sums := newSums(store.progress)
	t.Tee = func(file string) io.Writer { return sums.file(TraceDir + "/" + file) }
	err := store.Run("write the trace", func() error {
		if err := os.Mkdir(traceDir, dirMode); err != nil {
			return err
		}
		return m.opts.WriteTrace(traceDir, t)
	})
	if err != nil {
		return err
	}
	noWait := make(chan struct{}) // it has been waited for
	close(noWait)
	for i := range j.meta.Outliers {
		j.meta.Outliers[i].Complete(noWait)
	}
	why := m.explain(traceDir, &j.meta, &names)
	j.meta.Checksums = SumsFile
	return store.Run("write the files", func() error {
		for _, file := range []struct {
			name string
			fill func(io.Writer) error
		}{
			{ExplainTextFile, func(w io.Writer) error { return writeText(w, &j.meta, why) }},
			{ExplainJSONFile, func(w io.Writer) error { return writeJSON(w, why.JSON) }},
			{TasksFile, func(w io.Writer) error { return writeJSON(w, names) }},
			{FoldedFile, func(w io.Writer) error { return writeFolded(w, j.meta.Outliers) }},
			{MetaFile, func(w io.Writer) error { return writeJSON(w, j.meta) }},
		} {
			if err := writeFile(filepath.Join(dir, file.name), sums.file(file.name), file.fill); err != nil {
				return err
			}
		}
		return writeFile(filepath.Join(dir, SumsFile), io.Discard, sums.write)
	})
}

func (m *Manager) trace(j *job, names *Names) trace.Trace {
	h := j.meta.Host
	t := trace.Trace{
		CPUs:        j.cpus,
		Known:       names.known(),
		ClockOffset: j.clock.WallMinusMono,
		SyscallName: m.opts.SyscallName,
		Env: trace.Env{
			Hostname: h.Name, KernelRelease: h.Kernel, KernelVersion: h.KernelVersion,
			Machine: h.Arch, BootID: h.BootID, Version: h.Tailcam,
			Name: j.meta.ID, Created: j.meta.Time,
		},
	}
	for i := range j.meta.Outliers {
		t.Outliers = append(t.Outliers, traceOutlier(uint64(i), &j.meta.Outliers[i]))
	}
	return t
}

func traceOutlier(n uint64, o *events.Outlier) trace.Outlier {
	return trace.Outlier{
		Number: n, Rule: o.Rule, Track: o.Track,
		Start: o.StartMono, End: o.EndMono, EntryCPU: o.EntryCPU, ExitCPU: o.CPU,
		DelayNS: o.DelayNS, TID: o.Task.TID, PID: o.Task.PID, Comm: o.Task.Comm,
	}
}

// writeFile writes a file, and the same bytes to sum.
func writeFile(path string, sum io.Writer, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(io.MultiWriter(f, sum))
	return errors.Join(fill(w), w.Flush(), f.Close())
}

func writeJSON(w io.Writer, v any) error {
	e := text.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
