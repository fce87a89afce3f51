// Package daemon wires the parts together: rules to the kernel side, outliers
// to snapshots and actions, and all of it to the command line's socket.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/explainer"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/overrides"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/adaptive"
)

const remembered = 1000 // outliers that `tailcam events` shows

// daemon holds every part, in the order in which they are made.
type daemon struct {
	cfg   *config.Config
	log   *zap.Logger
	start time.Time

	socket   *api.Socket
	store    *snapshot.Store
	hosts    *process.Table
	symbols  *helper.Helper
	kernel   *tracker.Tracker
	recorder flight.Recorder // nil: switched off
	ring     int             // bytes of one CPU's ring

	coverShort time.Time // since when the history is shorter than recorder.cover; of housekeeping
	coverTold  bool
	manager    *snapshot.Manager // nil without a recorder
	actions    *action.Runner
	feed       *api.Feed

	thresholds *adaptive.Controller // those that follow the load
	storms     overrides.Storms     // rules that are paused automatically; changed under change, and mu

	mu    sync.Mutex
	rules []rules.Rule // as they run
	// What the rules that run are made of; changed under change, which is held for the whole of a change.
	file     []rules.Rule // as loaded last
	settings overrides.Settings
	change   sync.Mutex
	changed  chan struct{} // wakes expire

	ruleFiles *ruleReader

	promptUntil atomic.Int64 // until when command lines are read for a real-time snapshot; Unix nanoseconds

	hangup   chan os.Signal
	guard    *guard.Guard
	outliers *pipeline
}

// Run is the daemon: it returns when the context ends, everything detached
// and removed, or when something it cannot work without fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	d := &daemon{
		cfg: cfg, log: log, start: time.Now(), feed: api.NewFeed(remembered), guard: guard.New(log), ruleFiles: newRuleReader(),
		hangup: make(chan os.Signal, 1), changed: make(chan struct{}, 1),
	}
	d.outliers = d.newPipeline()
	signal.Notify(d.hangup, unix.SIGHUP) // first of all: unhandled it would end the process
	defer signal.Stop(d.hangup)
	for _, step := range []struct {
		name string
		do   func() error
		undo func() error
	}{
		{"read rules", d.readRules, nil},
		{"listen", d.listen, func() error { return d.socket.Close() }},
		{"open the snapshot store", d.openStore, func() error { return d.store.Close() }},
		{"prepare symbols and identities", d.openHost, d.closeHost},
		{"size the recorder", d.sizeRecorder, nil},
		{"load the kernel side", d.loadKernel, func() error { return d.kernel.Close() }},
		{"make the recorder's rings", d.openRecorder, d.closeRecorder},
		{"prepare snapshots and actions", d.openManager, nil},
		{"attach", d.attach, nil},
	} {
		if err := begin(ctx, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if step.undo != nil {
			defer func() {
				if err := undoWithin(undoTime, step.undo); err != nil {
					log.Warn("clean up", zap.String("after", step.name), zap.Error(err))
				}
			}()
		}
	}
	d.announce()
	return d.serve(ctx)
}

func (d *daemon) readRules() error {
	list, err := d.ruleFiles.load(d.cfg)
	if err != nil {
		return err
	}
	d.file, d.rules = list, list
	return nil
}

// loadRules reads what the configuration names. Without a recorder no rule has snapshots.
func loadRules(cfg *config.Config) ([]rules.Rule, error) {
	list, err := rules.Load(cfg.Rules, &rules.LocalHost{})
	if err != nil {
		return nil, err
	}
	for i := range list {
		for j := range list[i].Actions {
			a := &list[i].Actions[j]
			if a.User == "" {
				a.User = cfg.Actions.User
			}
			if err := action.Check(*a); err != nil {
				return nil, fmt.Errorf("%s: rule %s: %w", list[i].Pos, list[i].Name, err)
			}
		}
		if !cfg.Recorder.Enabled {
			list[i].Snapshot.Enabled = false
		}
	}
	return list, nil
}

func (d *daemon) listen() (err error) {
	d.socket, err = api.Listen(&api.ListenOptions{Path: d.cfg.Socket.Path, Group: d.cfg.Socket.Group, Log: d.log})
	return err
}

func (d *daemon) openHost() error {
	var err error
	d.symbols, err = helper.New(&helper.Options{
		NoLines: !d.cfg.Symbols.Lines, Memory: d.cfg.Symbols.MaxMemory, Limit: symbolTime, Log: d.log.Named("helper"), Guard: d.guard,
	})
	if err != nil {
		return err
	}
	cmdlines := d.symbols.Cmdlines
	if d.cfg.Snapshots.RTPriority > 0 {
		cmdlines = d.promptCmdlines
	}
	d.hosts = process.New(&process.Options{Cmdline: d.symbols.Cmdline, Cmdlines: cmdlines, Thread: func() {
		if n := d.cfg.Snapshots.RTPriority; n > 0 {
			_ = snapshot.RealTime(n) // the snapshot's writer waits for it; whether it may, the writer says
		}
	}})
	for _, h := range process.Hindrances("/proc") {
		d.log.Warn("processes are hidden", zap.String("by", h.Name), zap.String("advice", h.Advice))
	}
	// Now rather than at the first outlier, which would wait for it.
	if err := d.symbols.ReloadKernel(); err != nil {
		d.log.Warn("kernel stacks stay addresses", zap.Error(err))
	}
	return nil
}

func (d *daemon) closeHost() error { return errors.Join(d.hosts.Close(), d.symbols.Close()) }

func (d *daemon) loadKernel() (err error) {
	var groups []string
	if d.cfg.Recorder.Enabled {
		groups = d.cfg.Recorder.Events
	}
	ring := 0
	if d.cfg.Recorder.Backend == flight.BackendMmap {
		ring = d.ring
	}
	d.kernel, err = tracker.New(d.rules, &tracker.Options{
		Groups:   groups,
		Ring:     ring,
		Tasks:    d.cfg.Capacity.Initial.Tasks,
		Syscalls: d.cfg.Capacity.Initial.Syscalls,
		Requests: d.cfg.Capacity.Initial.Block,

		MaxTasks:    d.cfg.Capacity.Max.Tasks,
		MaxSyscalls: d.cfg.Capacity.Max.Syscalls,
		MaxRequests: d.cfg.Capacity.Max.Block,

		Pairs:    d.cfg.Capacity.Pairs,
		Chains:   d.cfg.Capacity.Chains,
		Spans:    d.cfg.Capacity.Spans,
		Buffer:   d.cfg.Outliers.Buffer,
		Rate:     d.cfg.Outliers.Rate,
		Burst:    d.cfg.Outliers.Burst,
		Cgroups:  cgroups{d.hosts},
		Programs: d.symbols,
		Release:  d.thaw,

		NoHistograms: !d.cfg.Histograms.Enabled,
	})
	if err != nil {
		return err
	}
	d.thresholds = adaptive.NewController(d.kernel)
	d.storms.Rate = d.cfg.Outliers.Rate
	for name, why := range d.kernel.Inactive() {
		d.log.Warn("rule is inactive on this kernel", zap.String("rule", name), zap.Error(why))
	}
	return nil
}

func (d *daemon) openRecorder() (err error) {
	if d.cfg.Recorder.Enabled {
		d.recorder, err = flight.New(d.kernel, d.cfg.Recorder.Backend, d.ring)
	}
	return err
}

func (d *daemon) closeRecorder() error {
	if d.recorder == nil {
		return nil
	}
	return d.recorder.Close()
}

func (d *daemon) openManager() (err error) {
	d.actions = action.New(action.Options{
		User: d.cfg.Actions.User, Concurrency: d.cfg.Actions.Concurrency, Queue: d.cfg.Actions.Queue,
		Logger: d.log.Named("actions"), Guard: d.guard, Supervisor: d.cfg.Self,
	})
	if d.recorder == nil {
		return nil
	}
	explainer := &explainer.Explainer{Guard: d.guard}
	explain := explainer.ForSnapshots
	if d.cfg.Snapshots.RTPriority > 0 {
		explain = explainer.Promptly // on the thread that writes, which has it
	}
	d.manager, err = snapshot.New(snapshot.Options{
		Recorder: d.recorder, Store: d.store, Logger: d.log.Named("snapshots"),
		Host:        snapshot.Host{Tailcam: version.String()},
		RingRecords: d.recorder.Capacity(),
		RTPriority:  d.cfg.Snapshots.RTPriority,
		OnDone:      d.afterSnapshot,
		Guard:       d.guard,
		SyscallName: rules.SyscallName,
		Explain:     explain,
		Names:       d.traceNames,
	})
	return err
}

// announce says in the log what is running now.
func (d *daemon) announce() {
	d.log.Info("watching",
		zap.Int("rules", len(d.rules)), zap.Int("programs", len(d.kernel.Programs())),
		zap.String("snapshots", d.store.Dir()), zap.String("socket", d.cfg.Socket.Path),
		zap.String("version", version.String()))
}

// serve runs every loop until the context ends, then stops them in the order
// of the data: no new outliers, then snapshots, then actions, then clients.
func (d *daemon) serve(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var stages []stopping
	stage := func(name string, run func(context.Context) error) {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := run(own); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		}()
		stages = append(stages, stopping{name, stop, ended})
	}

	stage("serve the socket", func(c context.Context) error {
		return api.Serve(c, d.socket, d, &api.ServeOptions{Log: d.log.Named("api"), Guard: d.guard})
	})
	stage("run actions", d.actions.Run)
	if d.manager != nil {
		stage("take snapshots", d.manager.Run)
	}
	stage("watch over the recorder", d.housekeeping)
	stage("follow the load", d.followLoad)
	stage("pause what fires too often", d.watchStorms)
	stage("end what was set for a time", d.expire)
	stage("reload", d.reloadOnHangup)
	stage("read outliers", d.readOutliers)

	<-ctx.Done()
	d.log.Info("stopping")
	d.stop(stages)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// thaw releases the recorder that was frozen for nothing.
func (d *daemon) thaw() {
	if d.manager != nil {
		d.manager.Thaw()
	}
}

// reloadOnHangup reads the rules again on SIGHUP. Bad ones change nothing.
func (d *daemon) reloadOnHangup(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.hangup:
		}
		if err := d.guard.Do(guard.Reload, d.reload); err != nil {
			d.log.Error("the running rules stay as they are", zap.Error(err))
		}
	}
}

func (d *daemon) reload() error {
	list, err := d.ruleFiles.load(d.cfg)
	if err != nil {
		return err
	}
	d.change.Lock()
	defer d.change.Unlock()
	settings, gone := d.settings.Follow(list, &rules.LocalHost{})
	if err := d.apply(list, settings); err != nil {
		return err
	}
	if len(gone) > 0 {
		d.log.Warn("set while running, and dropped with the reload", zap.Strings("settings", gone))
	}
	d.log.Info("rules reloaded", zap.Int("rules", len(list)))
	return nil
}
