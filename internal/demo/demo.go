// Package demo provokes one real latency of each kind on this machine and
// shows what tailcam itself caught of it. The daemon runs inside the process,
// with its own socket and rules for nothing but the demo's own tasks, so it
// neither needs nor disturbs a daemon that runs already.
//
// Needs root and kernel 6.1.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/private"
	"github.com/tailcam/tailcam/internal/term"
)

// history is how long the recorder runs before the first latency, so that
// there is something to see before it.
const history = 2 * time.Second

// Options say where the demo prints, and where its snapshots stay.
type Options struct {
	Out *term.Console // results
	Err *term.Console // progress, and the daemon's log if something failed
	// Print prints one result as data. Nil: as text on Out.
	Print func(*Result) error
	// Dir holds a directory for each of the latest demos. Empty: DefaultDir
	// if it can be written, else a new temporary directory.
	Dir string
}

// Run provokes the four latencies one after the other and prints each as it is
// caught. The error is nil only if each was caught, with a delay near the
// injected one, and its snapshot could be read back; ctx.Err() if it was
// interrupted. When it returns, only the snapshots are left.
func Run(ctx context.Context, o Options) error {
	d := &demo{Options: o, log: private.NewTail()}
	var err error
	if d.dir, err = makeDir(o.Dir, time.Now()); err != nil {
		return err
	}
	defer removeIfEmpty(d.dir)
	err = d.run(ctx)
	if ctx.Err() != nil {
		if d.cleanup != nil {
			o.Err.Printf("%s %s\n", o.Err.Paint(term.Red, "tailcam:"), term.Clean(d.cleanup.Error()))
		}
		return ctx.Err()
	}
	if err = errors.Join(err, d.cleanup); err != nil {
		if d.daemonFailed || !errors.Is(err, errSome) {
			d.showLog()
		}
		return err
	}
	if o.Print == nil {
		printNextSteps(o.Out, d.dir, d.last)
	}
	return o.Out.Err()
}

// run sets everything up, provokes and shows the latencies, and takes
// everything down again.
func (d *demo) run(ctx context.Context) error {
	progress := d.Err.Progress("preparing a slow disk")
	defer progress.Done()
	disk, noDisk := inject.Slow(ctx)
	defer func() { d.cleanup = errors.Join(d.cleanup, closeDisk(disk)) }()
	if ctx.Err() != nil {
		return ctx.Err()
	}

	list := latencies(disk, noDisk)
	progress.Update("loading the kernel side")
	w, err := d.start(ctx, list)
	if err != nil {
		return err
	}
	defer func() { d.cleanup = errors.Join(d.cleanup, w.stop()) }()

	progress.Update("recording history")
	if err := sleep(ctx, history); err != nil {
		return err
	}
	progress.Done()
	failed := 0
	for i := range list {
		r, err := d.one(ctx, w, &list[i])
		if err != nil {
			return err
		}
		if err := d.show(r); err != nil {
			return err
		}
		if r.Error != "" {
			failed++
		}
		if w.stopped() {
			return errors.New("demo: the daemon has stopped")
		}
	}
	if failed > 0 {
		return fmt.Errorf("demo: %d of %d %w; see the reasons above", failed, len(list), errSome)
	}
	return nil
}

// demo is one run of it.
type demo struct {
	Options
	dir     string        // of its snapshots
	log     *private.Tail // what its daemon said last
	last    string        // directory of the latest snapshot
	shown   int           // results
	cleanup error         // what could not be removed

	daemonFailed bool // at something: its log is worth reading
}

// errSome ends a demo of which not all succeeded.
var errSome = errors.New("latencies were not reported as injected")

// errNotInjected is a failure of the injection, and not of what it tests.
var errNotInjected = errors.New("injection failed")

// one provokes one latency and follows it until its snapshot can be read. What
// goes wrong with it is in the result; the error is that of the whole demo.
func (d *demo) one(ctx context.Context, w *watch, l *latency) (*Result, error) {
	r := &Result{Track: l.track, Title: l.title, Rule: l.track}
	progress := d.Err.Progress("injecting: " + l.track)
	defer progress.Done()
	err := d.catch(ctx, w, l, r)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		r.Error = err.Error()
		d.daemonFailed = d.daemonFailed || !errors.Is(err, errNotInjected)
	default:
		d.last = *r.Snapshot
	}
	return r, nil
}

func (d *demo) catch(ctx context.Context, w *watch, l *latency, r *Result) error {
	truth, err := l.inject(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	r.Injected, r.InjectedNS = &truth, truth.Delay().Nanoseconds()
	if r.Outlier, err = w.await(ctx, &truth); err != nil {
		return err
	}
	r.ReportedNS = &r.Outlier.DelayNS
	if r.Outlier.Snapshot == nil {
		return errors.New("the daemon took no snapshot")
	}
	dir := filepath.Join(d.dir, *r.Outlier.Snapshot)
	if err := w.written(ctx, dir); err != nil {
		return err
	}
	r.Snapshot = &dir
	if err := r.readBack(dir); err != nil {
		return err
	}
	return r.compare()
}

func (d *demo) show(r *Result) error {
	if d.Print != nil {
		return d.Print(r)
	}
	if d.shown++; d.shown > 1 {
		d.Out.Printf("\n")
	}
	printResult(d.Out, r)
	return d.Out.Err()
}

// showLog prints the daemon's last words, which are no one's concern while all goes well.
func (d *demo) showLog() {
	lines := d.log.Lines()
	if len(lines) == 0 {
		return
	}
	d.Err.Printf("%s\n", d.Err.Paint(term.Dim, "last log messages of the demo's daemon:"))
	for _, line := range lines {
		d.Err.Printf("  %s\n", term.Clean(line))
	}
}

// start runs a daemon for these latencies. What it needs lies in a private
// directory that is gone again before the first latency, so that not even
// SIGKILL leaves a socket behind.
func (d *demo) start(ctx context.Context, list []latency) (*watch, error) {
	work, err := os.MkdirTemp("", "tailcam-demo-")
	if err != nil {
		return nil, fmt.Errorf("demo: create directory for the socket: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // an empty directory of ours in the temporary one at worst
	rules := filepath.Join(work, "rules.yaml")
	if err := os.WriteFile(rules, []byte(ruleFile(list)), 0o600); err != nil {
		return nil, fmt.Errorf("demo: write rules: %w", err)
	}
	cfg := private.Config(work)
	cfg.Rules = []string{rules}
	cfg.Snapshots.Dir = d.dir
	return startWatch(ctx, &cfg, d.log)
}

func closeDisk(disk *inject.SlowDisk) error {
	if disk == nil {
		return nil
	}
	if err := disk.Close(); err != nil {
		return fmt.Errorf("demo: remove the slow disk: %w", err)
	}
	return nil
}

// sleep waits, but not longer than the context lives.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
