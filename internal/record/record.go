package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/private"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/rules"
)

const (
	poll = 20 * time.Millisecond
	// firstSlice is the length of a slice in a run that is short.
	firstSlice = 100 * time.Millisecond
	// attachLimit is how long the functions of system calls may take to be attached to.
	attachLimit = time.Minute
	// idleLimit is how long nothing may come while verdicts are awaited, beyond what
	// snapshots record after their outlier; settleLimit is for all of them.
	idleLimit   = 3 * time.Second
	settleLimit = time.Minute
)

// Options are what to record.
type Options struct {
	Files   []string     // rule files, and directories of them
	Rules   []rules.Rule // what is in them
	For     time.Duration
	Dir     string   // of snapshots, which stay; empty: they are removed
	Command []string // with its arguments; empty: none
	User    string   // that runs the command; empty: that of this process

	Stdout, Stderr *os.File      // of the command
	Console        *term.Console // for progress
}

// run is one run.
type run struct {
	*Options
	daemon    *private.Daemon
	collector *collector
	process   *process // nil: no command
	series    map[string]*series
	slice     time.Duration
	before    reading
	started   time.Time
	ended     string
}

// reading is what the daemon has counted at one moment.
type reading struct {
	status     *api.Status
	histograms map[string]*api.HistogramInfo // by rule
}

// Run watches until the command ends, the time is over, or, without a command, a signal
// comes; then it ends the command. When it returns, only Dir and what is in it are left.
// ctx bounds the start alone: SIGINT and SIGTERM are the command's then.
func Run(ctx context.Context, o *Options) (*Report, error) {
	cmd, err := prepare(o)
	if err != nil {
		return nil, err
	}
	signals, restore := catch()
	defer restore()
	work, err := os.MkdirTemp("", "tailcam-record-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the socket: %w", err)
	}
	defer os.RemoveAll(work)                      //nolint:errcheck // in the temporary directory at worst
	if err := os.Chmod(work, 0o711); err != nil { //nolint:gosec // actions of other users work in snapshots below it
		return nil, err
	}
	r := &run{Options: o, series: map[string]*series{}, slice: firstSlice}
	stop, err := r.start(ctx, work)
	if err != nil {
		return nil, err
	}
	defer stop() //nolint:errcheck // called before, unless another error is told
	if err := r.begin(ctx, cmd); err != nil {
		return nil, err
	}
	failed := r.watch(signals)
	report, err := r.finish(failed)
	return report, errors.Join(err, stop())
}

// start starts the daemon. stop ends it; after an error of its own it tells its log.
func (r *run) start(ctx context.Context, work string) (stop func() error, err error) {
	progress := r.Console.Progress("loading the kernel side")
	defer progress.Done()
	cfg := private.Config(work)
	cfg.Rules, cfg.EachRule, cfg.Self = r.Files, true, "/proc/self/exe"
	cfg.Snapshots.Dir = cmp.Or(r.Dir, filepath.Join(work, "snapshots"))
	log := private.NewTail()
	daemon, stream, err := private.Start(ctx, &cfg, log, &api.EventsOptions{Follow: true, Verdicts: true})
	if err != nil {
		return nil, err
	}
	r.daemon = daemon
	r.collector = newCollector(linux.Monotonic())
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.collector.read(stream)
	}()
	return func() error {
		err := daemon.Stop()
		_ = stream.Close()
		<-read
		if err != nil {
			for _, line := range log.Lines() {
				r.Console.Printf("  %s\n", term.Clean(line))
			}
		}
		return err
	}, nil
}

// begin waits until all rules work, and starts the command.
func (r *run) begin(ctx context.Context, cmd *program) error {
	if err := r.awaitAttached(ctx); err != nil {
		return err
	}
	var err error
	if r.before, err = r.read(); err != nil {
		return err
	}
	works := false
	for i := range r.before.status.Rules {
		works = works || r.before.status.Rules[i].Inactive == ""
	}
	if !works {
		return errors.New("no rule works on this kernel: see \"tailcam check --load\"")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i := range r.before.status.Rules {
		rule := &r.before.status.Rules[i]
		r.series[rule.Name] = &series{last: r.before.counted(rule)}
	}
	r.collector.startAt(linux.Monotonic())
	r.started = time.Now()
	if cmd == nil {
		return nil
	}
	r.process, err = startProcess(cmd, r.User)
	return err
}

// awaitAttached waits for the functions of system calls.
func (r *run) awaitAttached(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	for {
		list, err := r.daemon.Client.Rules(ctx)
		if err != nil {
			return fmt.Errorf("wait until the rules work: %w", err)
		}
		if !attaching(list) {
			return nil
		}
		time.Sleep(poll)
	}
}

// watch waits for the end of the run, and cuts it into slices. Its error is that of a
// daemon that ended.
func (r *run) watch(signals <-chan os.Signal) error {
	var over <-chan time.Time
	if r.For > 0 {
		timer := time.NewTimer(r.For)
		defer timer.Stop()
		over = timer.C
	}
	var done, ended <-chan struct{} = nil, r.daemon.Ended()
	if r.process != nil {
		done = r.process.done
	}
	tick := time.NewTicker(r.slice)
	defer tick.Stop()
	var failed error
	for {
		select {
		case <-done:
			r.ended = cmp.Or(r.ended, EndedCommand)
			return failed
		case <-over:
			r.ended = EndedDuration
			if r.process == nil {
				return failed
			}
			r.process.end()
		case s := <-signals:
			if r.process == nil {
				r.ended = EndedSignal
				return failed
			}
			r.process.pass(s)
		case <-ended:
			failed, ended = errors.New("the daemon ended before the command"), nil
			if r.process == nil {
				return failed
			}
		case <-tick.C:
			if failed == nil && r.cut() {
				tick.Reset(r.slice)
			}
		}
	}
}

// cut ends a slice. It reports whether slices are longer from now on.
func (r *run) cut() (longer bool) {
	now, err := r.readRules()
	if err != nil {
		return false // the next one is longer
	}
	full := r.add(now)
	if !full {
		return false
	}
	for _, s := range r.series {
		s.halve()
	}
	r.slice *= 2
	return true
}

// add ends a slice of each rule, and reports whether there is no room for another one.
func (r *run) add(now reading) (full bool) {
	for i := range now.status.Rules {
		rule := &now.status.Rules[i]
		if s := r.series[rule.Name]; s != nil {
			s.add(now.counted(rule))
			full = full || len(s.list) >= maxSlices
		}
	}
	return full
}

// finish makes the report.
func (r *run) finish(failed error) (*Report, error) {
	took := time.Since(r.started)
	now, err := r.read()
	r.collector.stopAt(linux.Monotonic())
	if r.process != nil {
		r.process.rest()
	}
	if err := cmp.Or(failed, err); err != nil {
		return nil, err
	}
	r.add(now)
	report := r.describe(took, &now)
	report.Notes = append(report.Notes, r.settle(report)...)
	for i := range report.Rules {
		r.collector.finish(&report.Rules[i], r.Dir != "")
	}
	return report, nil
}

// describe is the report without what outliers tell.
func (r *run) describe(took time.Duration, now *reading) *Report {
	host, _ := os.Hostname()
	report := &Report{
		Time: r.started.UTC(), Version: version.String(), Host: host, Kernel: now.status.Kernel, CPUs: runtime.NumCPU(),
		DurationNS: took.Nanoseconds(), Ended: r.ended, Rules: []Rule{}, Checks: []Check{}, SliceNS: r.slice.Nanoseconds(),
		Losses: []api.Loss{}, Dir: r.Dir,
	}
	if r.process != nil {
		report.Command = r.process.result()
	}
	for i := range now.status.Rules {
		report.Rules = append(report.Rules, r.rule(now, &now.status.Rules[i]))
	}
	type key struct{ cause, rule, tracker string }
	before := map[key]uint64{}
	for _, l := range r.before.status.Losses {
		before[key{l.Cause, l.Rule, l.Tracker}] = l.Count
	}
	for _, l := range now.status.Losses {
		l.Count = less(l.Count, before[key{l.Cause, l.Rule, l.Tracker}])
		if l.Count > 0 && l.Cause != "outlier_unlogged" { // nobody reads this daemon's log
			report.Losses = append(report.Losses, l)
		}
	}
	return report
}

// rule is what the daemon has counted of a rule.
func (r *run) rule(now *reading, info *api.RuleInfo) Rule {
	var old api.RuleInfo
	for i := range r.before.status.Rules {
		if r.before.status.Rules[i].Name == info.Name {
			old = r.before.status.Rules[i]
		}
	}
	rule := Rule{
		Name: info.Name, Track: info.Track, ThresholdNS: info.ThresholdNS, TimeoutNS: info.TimeoutNS, Inactive: info.Inactive,
		Limited: less(info.Limited, old.Limited), Lost: less(info.Lost, old.Lost), Paused: info.Paused || info.Storm != nil,
		Slices: []Slice{},
	}
	rule.Outliers = less(info.Outliers, old.Outliers) + rule.Limited
	if info.Adaptive != nil {
		rule.ThresholdNS = 0
	}
	if info.WorstNS > old.WorstNS {
		rule.MaxNS = info.WorstNS
	}
	if h := now.histograms[info.Name]; h != nil && info.Inactive == "" {
		all := fromInfo(h)
		if b := r.before.histograms[info.Name]; b != nil {
			earlier := fromInfo(b)
			all = all.Sub(&earlier)
		}
		about := api.NewHistogram(&all, api.HistogramInfo{Rule: info.Name, Tracker: info.Track, Undecided: h.Undecided})
		rule.Histogram = &about
		rule.MaxNS = max(rule.MaxNS, int64(min(all.Max, 1<<63-1)))
		rule.Slices = r.series[info.Name].slices()
	}
	return rule
}

// settle waits for verdicts, and returns what the reader must know of them.
func (r *run) settle(report *Report) (notes []string) {
	progress := r.Console.Progress("waiting for verdicts")
	defer progress.Done()
	outliers, after := uint64(0), time.Duration(0)
	for i := range report.Rules {
		rule := &report.Rules[i]
		outliers += less(rule.Outliers, rule.Limited+rule.Lost)
		if rule.Paused {
			notes = append(notes, fmt.Sprintf("rule %s was paused because it fired far too often: it has missed outliers", rule.Name))
		}
	}
	for i := range r.Rules {
		after = max(after, r.Rules[i].Snapshot.After)
	}
	for end := time.Now().Add(settleLimit + after); time.Now().Before(end); time.Sleep(poll) {
		if all, idle := r.collector.settled(outliers); all || idle > idleLimit+after {
			break
		}
	}
	awaited, lost := r.collector.unexplained()
	if awaited > 0 {
		notes = append(notes, fmt.Sprintf("%d outliers have a snapshot, but no verdict came in time", awaited))
	}
	if lost > 0 {
		notes = append(notes, fmt.Sprintf("%d outliers came too fast to be listed; they are counted", lost))
	}
	return notes
}
