package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// job is a collected snapshot to be written.
type job struct {
	meta   Meta
	slices []slice     // until copyRecords
	cpus   []trace.CPU // from copyRecords on
	clock  Clock
	answer chan Done // TakeNow only
	early  *early    // nil: no names have been looked up yet
}

// size estimates the snapshot's size on disk: its records plus room for the small
// files.
func (j *job) size(compressed bool) uint64 {
	records := j.meta.Records * trace.RecordSize
	if compressed {
		records /= 3 // they take a fifth
	}
	return records + uint64(len(j.cpus))*8<<10 + uint64(len(j.meta.Outliers))*32<<10 + 256<<10
}

// namesTimeout is how long a collected snapshot waits for the names of its outliers.
// Later ones are left out.
const namesTimeout = 2 * time.Second

// rtNamesTimeout is namesTimeout for a real-time writer: symbolization runs at normal
// priority and may get no CPU for seconds.
const rtNamesTimeout = 100 * time.Millisecond

// boostNamesTimeout is namesTimeout on an overloaded machine, where a Boost hastens the
// writer and not symbolization. It counts from when the writing begins.
const boostNamesTimeout = 100 * time.Millisecond

// writeAll writes snapshots until the queue is closed and empty. All disk access
// happens here, retention included, and none in the loop that reads the recorder. A
// snapshot still waiting for names does not delay others.
func (m *Manager) writeAll() {
	retention := pulse.After(retentionInterval)
	named := make(chan job, cap(m.queue)) // never blocks: one slot per queued snapshot
	waiting := 0
	for queue := m.queue; queue != nil || waiting > 0; {
		select {
		case j, ok := <-queue:
			switch {
			case !ok:
				queue = nil
			case m.opts.RTPriority > 0:
				j.pollNames(rtNamesTimeout)
				m.writeOne(&j)
			case m.opts.Boost.Overloaded(), j.namesComplete():
				m.writeOne(&j)
			default:
				waiting++
				m.opts.Boost.End()
				go func() {
					j.awaitNames(namesTimeout)
					m.opts.Boost.Start()
					named <- j
				}()
			}
		case j := <-named:
			waiting--
			m.writeOne(&j)
		case <-retention:
			retention = pulse.After(retentionInterval)
			m.writing.start("enforce retention")
			_ = m.opts.Guard.Do(guard.Store, func() error { m.opts.Store.Enforce(); return nil }) // logs its errors
			m.writing.end()
		}
	}
}

// namesComplete reports whether nothing more will become known about the outliers.
func (j *job) namesComplete() bool {
	for i := range j.meta.Outliers {
		if !j.meta.Outliers[i].IsComplete() {
			return false
		}
	}
	return true
}

// pollNames is awaitNames for a real-time thread. It polls, as waking a goroutine needs
// a thread of the Go runtime, which has normal priority.
func (j *job) pollNames(most time.Duration) {
	pause := unix.NsecToTimespec(time.Millisecond.Nanoseconds())
	for end := time.Now().Add(most); !j.namesComplete() && time.Now().Before(end); {
		_ = unix.Nanosleep(&pause, nil) // may return early
	}
}

// awaitNames waits until all outliers are complete, or for most.
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
	m.writing.start("write " + j.meta.ID)
	defer m.writing.end()
	d := Done{ID: j.meta.ID, Reason: j.meta.Reason, Time: j.meta.Time, Outliers: j.meta.Outliers}
	var release func()
	d.Err = m.opts.Guard.Do(guard.Snapshot, func() (err error) {
		d.Dir, release, err = m.write(j)
		return err
	})

	m.opts.Boost.End()

	m.mu.Lock()
	if m.slots--; m.slots == 0 {
		m.gcPause.end()
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
		_ = m.opts.Guard.Do(guard.Publish, func() error { m.opts.OnDone(d); return nil }) // logs its errors
	}
	if release != nil {
		release()
	}
	if j.answer != nil {
		j.answer <- d
	}
}

// write writes one snapshot to the store.
func (m *Manager) write(j *job) (dir string, release func(), err error) {
	j.copyRecords()
	named := m.naming(j) // while there is made room
	defer named()        // it has ended before the next snapshot's
	p, err := m.opts.Store.Create(j.meta.ID, j.size(m.opts.Compress))
	if err != nil {
		return "", nil, err
	}
	defer p.Abort()
	if err := m.fill(p.Dir, j, named); err != nil {
		return "", nil, fmt.Errorf("write snapshot %s: %w", j.meta.ID, spaceError(err))
	}
	return p.Commit()
}

func (m *Manager) fill(dir string, j *job, named func() *Names) error {
	store, begun := m.opts.Store, time.Now()
	m.opts.Boost.Refresh()
	traceDir := filepath.Join(dir, TraceDir)
	t := m.trace(j)
	events, err := t.Events()
	if err != nil {
		return err
	}
	sums := newChecksums(store.setStep)
	t.Tee = func(file string) io.Writer { return sums.file(TraceDir + "/" + file) }
	explained := m.explaining(j, events, named, begun)
	defer explained() // a panic does not leave it running beside the next snapshot's
	var draft *trace.Draft
	err = store.Run("write the trace", func() (err error) { // while names are looked up, and it is explained
		if draft, err = m.beginTrace(traceDir, t); err != nil {
			return err
		}
		return startSync(traceDir) // on a busy machine, what the kernel does for it waits for a CPU
	})
	if err != nil {
		return err
	}
	names := named()
	err = store.Run("write the trace", func() error {
		return errors.Join(draft.Finish(names.traceNames()), startSync(traceDir))
	})
	m.writing.advance(stepExplain)
	why := explained()
	m.writing.advance("write " + j.meta.ID)
	if err != nil {
		return err
	}
	j.meta.Checksums = SumsFile
	return store.Run("write the files", func() error { return writeDocuments(dir, &j.meta, names, why, sums) })
}

// beginTrace begins to write a trace. It runs on the store's thread.
func (m *Manager) beginTrace(dir string, t trace.Trace) (*trace.Draft, error) {
	if err := os.Mkdir(dir, dirMode); err != nil {
		return nil, err
	}
	if m.opts.BeforeTrace != nil {
		if err := m.opts.BeforeTrace(dir); err != nil {
			return nil, err
		}
	}
	return trace.Begin(dir, t)
}

// naming looks up names; the function that it returns waits for them.
func (m *Manager) naming(j *job) func() *Names {
	look := sync.OnceValue(func() *Names {
		var n Names
		err := m.opts.Guard.Do(guard.TraceNames, func() error { n = m.lookUpNames(j); return nil }) // logs its errors
		if err != nil {
			n = Names{Version: NamesVersion, Tasks: []NamedTask{}}
		}
		return &n
	})
	if m.opts.RTPriority == 0 {
		go look()
	}
	return look
}

// explaining explains a snapshot while names are looked up and its trace is written; the
// function that it returns waits for that. Real-time threads do one after the other: others do not get a CPU.
func (m *Manager) explaining(j *job, events *trace.Reader, named func() *Names, begun time.Time) func() *Explanation {
	explain := sync.OnceValue(func() *Explanation {
		if m.opts.Boost != nil { // else they have been waited for
			j.awaitNames(max(0, boostNamesTimeout-time.Since(begun)))
		}
		noWait := make(chan struct{}) // closed: names have been waited for already
		close(noWait)
		for i := range j.meta.Outliers {
			j.meta.Outliers[i].Complete(noWait)
		}
		if m.opts.Usual != nil {
			m.opts.Usual(j.meta.Outliers)
		}
		return m.explain(events, &j.meta, named)
	})
	if m.opts.RTPriority == 0 {
		go explain()
	}
	return explain
}

func (m *Manager) trace(j *job) trace.Trace {
	h := j.meta.Host
	t := trace.Trace{
		CPUs:        j.cpus,
		ClockOffset: j.clock.WallMinusMono,
		SyscallName: m.opts.SyscallName,
		Compress:    m.opts.Compress,
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

// writeFile writes a file and copies the bytes to sum.
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
