// Package daemon connects the other packages: rules to the kernel side, outliers to
// snapshots and actions, and everything to the command line's socket.
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

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/activities/declared"
	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/containers"
	"github.com/tailcam/tailcam/internal/contexts"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/logs"
	"github.com/tailcam/tailcam/internal/metrics"
	"github.com/tailcam/tailcam/internal/otlp"
	"github.com/tailcam/tailcam/internal/outbox"
	"github.com/tailcam/tailcam/internal/overrides"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/trigger"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/adaptive"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/pins"
)

// daemon holds the parts in the order of their creation.
type daemon struct {
	cfg   *config.Config
	host  string // name of this host
	log   *zap.Logger
	logs  *logs.Logs
	lines *outlierLines // about outliers, in the log
	start time.Time

	socket     *api.Socket
	tally      *metrics.Tally
	registry   *metrics.Registry             // all metrics
	scrapes    *metrics.Server               // nil: metrics are not served. Written at start, stop and under reloading.
	metrics    replaceable                   // serves them
	webhook    *metrics.Server               // nil: alerts come by the socket alone. Written as scrapes is.
	alerts     replaceable                   // takes them
	peers      peering                       // the tailcams of other machines
	collector  atomic.Pointer[otlp.Exporter] // nil: nothing is sent
	exporting  replaceable                   // sends
	exported   otlp.Counts
	outbox     atomic.Pointer[outbox.Outbox] // nil: no snapshots are sent
	uploading  replaceable                   // sends them
	uploaded   outbox.Counts
	store      *snapshot.Store
	hosts      *process.Table
	containers atomic.Pointer[containers.Lookup]
	undecided  atomic.Int32 // how many more times followContainers decides conditions on containers
	symbols    *helper.Helper
	kernel     *tracker.Tracker
	triggers   *trigger.Engine
	contexts   *contexts.Finder       // nil: activities are not enabled
	attributes *contexts.Attributes   // of contexts; nil: none are wanted
	requests   *watch.Watcher         // follows the tokens of activities; nil: they are not enabled
	activities *activities.Activities // nil: they are not enabled, or this kernel refuses them
	// noActivities is why activities is nil, although they are enabled.
	noActivities error
	public       *api.Socket       // for them alone; nil: none
	declared     *declared.Set     // those that rules declare; nil: none has yet; written under change and mu
	recorder     *flight.Resizable // nil: disabled
	ring         int               // bytes per CPU, as asked for; under change while it runs
	ringFor      string            // what that was measured for; empty: it was not

	pins      pins.Store // nil: nothing is pinned
	pinError  string     // why not, although it should be
	gapLogged bool       // used by housekeeping

	unpinLogged bool // used by the start, then by housekeeping

	coverShort  time.Time // since when the history is too short; used by housekeeping
	coverLogged bool
	manager     *snapshot.Manager // nil without a recorder
	actions     *action.Runner

	actionGroups string // cgroup in which actions have theirs; empty: they have none

	feed *api.Feed

	thresholds *adaptive.Controller // adaptive thresholds
	storms     overrides.Storms     // automatically paused rules; written under change and mu

	declaredEntry *activities.Process // whose maps declared activities share; written with declared
	declaredRun   chan error          // what reading of declared has come to
	came          chan struct{}       // an outlier did since storms were looked at
	usually       usually             // what is usual, as read a moment ago

	cost cost // and what is shed for it

	mu    sync.Mutex
	rules []rules.Rule // as running
	// shared are the actions of no rule. Guarded by mu.
	shared []rules.SharedAction
	// Sources of the running rules. change is held during a whole change.
	file     []rules.Rule // as loaded last
	settings overrides.Settings
	change   sync.Mutex
	changed  chan struct{} // notifies expire

	// Of reloads, which come one at a time.
	reloading sync.Mutex
	ruleFiles *ruleReader
	set       *rules.Set                    // the rule files as read last
	running   config.Config                 // as in effect
	now       atomic.Pointer[config.Config] // the same, for everybody
	reloaded  *api.Reload                   // the last one; nil: none yet. Guarded by mu.

	promptUntil atomic.Int64 // deadline for command lines of a snapshot that is in a hurry, in Unix nanoseconds
	boost       *snapshot.Boost
	boostError  error // why there is none, although there should be

	// What the watchdog looks at.
	housekeeper, budgeter loopState
	explaining            explaining
	reloadSince           atomic.Int64 // when a reload under way began, as time.Since(start); 0: none

	notices  chan string // to systemd
	hangup   chan os.Signal
	guard    *guard.Guard
	outliers *pipeline
}

// Run runs the daemon until ctx is done or an essential part fails. Everything is
// detached and removed when it returns.
func Run(ctx context.Context, cfg *config.Config, l *logs.Logs) error {
	log := l.Daemon
	d := &daemon{
		cfg: cfg, log: log, logs: l, lines: newOutlierLines(l.Outliers), start: time.Now(), feed: api.NewFeed(api.DefaultRemember), guard: guard.New(log), ruleFiles: newRuleReader(), tally: metrics.NewTally(),
		notices: make(chan string, maxNotices), hangup: make(chan os.Signal, 1), changed: make(chan struct{}, 1), came: make(chan struct{}, 1),
	}
	d.outliers = d.newPipeline()
	d.registry = metrics.NewRegistry(d, d.tally, d.guard)
	signal.Notify(d.hangup, unix.SIGHUP) // first: its default action ends the process
	defer signal.Stop(d.hangup)
	defer d.sendNotices()()
	for _, step := range []struct {
		name string
		do   func() error
		undo func() error
	}{
		{"read the name of this host", d.nameHost, nil},
		{"read rules", d.readRules, nil},
		{"listen", d.listen, func() error { return d.socket.Close() }},
		{"open the pins", d.openPins, d.closePins},
		{"listen for scrapes", d.listenMetrics, d.closeMetrics},
		{"listen for alerts", d.listenAlerts, d.closeAlerts},
		{"listen for peers", d.openPeers, d.closePeers},
		{"prepare OTLP", d.openOTLP, nil},
		{"open the snapshot store", d.openStore, func() error { return d.store.Close() }},
		{"prepare uploads", d.openUploads, nil},
		{"prepare priorities", d.openBoost, nil},
		{"prepare symbols and identities", d.openHost, d.closeHost},
		{"size the recorder", d.sizeRecorder, nil},
		{"load the kernel side", d.loadKernel, d.closeKernel},
		{"prepare contexts of threads", d.openContexts, nil},
		{"create the recorder's rings", d.openRecorder, d.closeRecorder},
		{"prepare snapshots and actions", d.openManager, d.closeActions},
		{"prepare triggers", d.openTriggers, nil},
		{"load activities", d.openActivities, d.closeActivities},
		{"prepare following activities", d.openRequests, nil},
		{"declare activities", d.openDeclared, d.closeDeclared},
		{"set the budget", d.openBudget, nil},
		{"attach", d.attach, nil},
	} {
		if err := d.startStep(ctx, step.name, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if step.undo != nil {
			defer func() {
				if err := undoStep(undoTime, step.undo); err != nil {
					log.Warn("clean up", zap.String("after", step.name), zap.Error(err))
				}
			}()
		}
	}
	return d.serve(ctx)
}

func (d *daemon) nameHost() (err error) {
	d.host, err = d.cfg.HostName()
	return err
}

func (d *daemon) readRules() error {
	d.running = *d.cfg
	d.now.Store(d.cfg)
	set, err := d.ruleFiles.load(nil, d.cfg.Rules)
	if err != nil {
		return err
	}
	if errs := set.Errors(); len(errs) > 0 {
		return errs
	}
	for i := range set.Rules {
		r := &set.Rules[i]
		if err := prepareRule(r, d.cfg); err != nil {
			return fmt.Errorf("%s: rule %s: %w", r.Pos, r.Name, err)
		}
	}
	shared, err := prepareShared(set.Actions, d.cfg)
	if err != nil {
		return err
	}
	d.set, d.file, d.rules, d.shared = set, set.Rules, set.Rules, shared
	return nil
}

func (d *daemon) listen() (err error) {
	d.socket, err = api.Listen(&api.ListenOptions{Path: d.cfg.Socket.Path, Group: d.cfg.Socket.Group, Log: d.log})
	return err
}

func (d *daemon) openHost() error {
	var err error
	d.symbols, err = helper.New(&helper.Options{
		NoLines: !d.cfg.Symbols.Lines, Memory: d.cfg.Symbols.MaxMemory, Limit: symbolTimeout, Log: d.log.Named("helper"), Guard: d.guard,
	})
	if err != nil {
		return err
	}
	cmdlines := d.symbols.Cmdlines
	if d.cfg.Snapshots.RTPriority > 0 || d.boost != nil {
		cmdlines = d.promptCmdlines
	}
	d.hosts = process.New(&process.Options{Cmdline: d.symbols.Cmdline, Cmdlines: cmdlines, Thread: func() {
		if n := d.cfg.Snapshots.RTPriority; n > 0 {
			_ = snapshot.RealTime(n) // the snapshot writer waits for this thread and reports errors
		}
	}})
	if err := d.useContainers(&d.cfg.Containers); err != nil {
		return err
	}
	for _, h := range process.Hindrances("/proc") {
		if h.Fatal {
			return errors.New(h.Advice)
		}
		d.log.Warn("processes are hidden", zap.String("by", h.Name), zap.String("advice", h.Advice))
	}
	// Now, so that the first outlier does not wait, and beside the load of the kernel side.
	go func() {
		if err := d.guard.Do(guard.Naming, d.symbols.ReloadKernel); err != nil {
			d.log.Warn("kernel stacks are addresses", zap.Error(err))
		}
	}()
	return nil
}

func (d *daemon) closeHost() error {
	return errors.Join(d.closeContainers(), d.hosts.Close(), d.symbols.Close())
}

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
		IRQFloor: d.cfg.Recorder.IRQFloor,
		Tasks:    d.cfg.Capacity.Initial.Tasks,
		Syscalls: d.cfg.Capacity.Initial.Syscalls,
		Requests: d.cfg.Capacity.Initial.Block,
		Works:    d.cfg.Capacity.Initial.Workqueue,

		MaxTasks:    d.cfg.Capacity.Max.Tasks,
		MaxSyscalls: d.cfg.Capacity.Max.Syscalls,
		MaxRequests: d.cfg.Capacity.Max.Block,
		MaxWorks:    d.cfg.Capacity.Max.Workqueue,

		Pairs:    d.cfg.Capacity.Pairs,
		Chains:   d.cfg.Capacity.Chains,
		Spans:    d.cfg.Capacity.Spans,
		Buffer:   d.cfg.Outliers.Buffer,
		Rate:     d.cfg.Outliers.Rate,
		Burst:    d.cfg.Outliers.Burst,
		Cgroups:  d.cgroups(),
		Programs: d.symbols,
		Symbol:   d.kernelFunction,
		Release:  d.releaseRecorder,

		NoHistograms: !d.cfg.Histograms.Enabled,
		Contexts:     d.cfg.Activities.Enabled,
		Attributes:   len(d.cfg.Activities.Attributes) > 0,

		Pins: d.pins, RingReason: d.ringFor, Version: version.String(),
	})
	if err != nil {
		return err
	}
	d.followHelpers()
	d.logTakeover()
	d.thresholds = adaptive.NewController(d.kernel)
	d.storms.Rate = d.cfg.Outliers.Rate
	d.logInactive()
	return nil
}

func (d *daemon) openRecorder() error {
	if !d.cfg.Recorder.Enabled {
		return nil
	}
	r, err := flight.New(d.kernel.Recorder(), d.cfg.Recorder.Backend, d.ring)
	if err == nil {
		d.recorder = flight.NewResizable(r)
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
	acts := actionOptions(&d.cfg.Actions)
	acts.Logger, acts.Guard, acts.Supervisor = d.log.Named("actions"), d.guard, d.cfg.Self
	acts.Cgroup, acts.Home = d.actionsCgroup()
	d.actionGroups = acts.Cgroup
	acts.OnResult = func(r action.Result) { d.feed.Acted(r.Rule, r.Outlier, r.Short()) }
	d.actions = action.New(*acts)
	if d.recorder == nil {
		return nil
	}
	explain := d.explainInBackground
	if d.cfg.Snapshots.RTPriority > 0 {
		explain = d.explainInline // on the writer's thread, which has that priority
	}
	d.manager, err = snapshot.New(snapshot.Options{
		Recorder: d.recorder, Store: d.store, Logger: d.log.Named("snapshots"),
		Host:        snapshot.HostInfo{Name: d.host, Tailcam: version.String()},
		RingRecords: d.recorder.Capacity(), RecordsSince: d.kernel.RecordsSince(),
		Cover:       d.cfg.Recorder.Cover,
		RTPriority:  d.cfg.Snapshots.RTPriority,
		Boost:       d.boost,
		Compress:    d.cfg.Snapshots.Compress == config.CompressZstd,
		OnDone:      d.afterSnapshot,
		Guard:       d.guard,
		SyscallName: rules.SyscallName,
		Explain:     explain,
		Names:       d.traceNames,
		Activities:  d.carriedActivities,
		Contexts:    d.publishedContexts,
		Usual:       d.addUsual,
		Shed:        d.shedBetween,
		Missed:      func() uint64 { return d.kernel.Missed().Sum() },
	})
	d.outliers.submit = func(o *events.Outlier) { d.manager.Submit(o, o.MatchedRule) }
	return err
}

// announce tells the log and systemd that the daemon is running.
func (d *daemon) announce() {
	d.kernel.Leave(true) // from now on there is something to lose
	d.notifyReady()
	d.mu.Lock()
	n := len(d.rules)
	d.mu.Unlock()
	d.log.Info("watching",
		zap.Int("rules", n), zap.Int("programs", len(d.kernel.Programs())),
		zap.String("snapshots", d.store.Dir()), zap.String("socket", d.cfg.Socket.Path),
		zap.String("version", version.String()))
}

// serve runs all loops until ctx is done, then stops them in the order of the data:
// outliers, snapshots, actions, clients.
func (d *daemon) serve(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var stages []stage
	stage := func(name string, run func(context.Context) error) {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := run(own); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		}()
		stages = append(stages, stage{name, stop, ended})
	}

	stage("serve the socket", func(c context.Context) error {
		return api.Serve(c, d.socket, d, d.serveOptions())
	})
	stage("serve the socket of activities", d.serveActivities)
	stage("serve metrics", d.metrics.run)
	stage("log outliers", d.logOutliers)
	stage("send OTLP", d.exporting.run)
	stage("send snapshots", d.uploading.run)
	stage("run actions", d.actions.Run)
	if d.manager != nil {
		stage("take snapshots", d.manager.Run)
	}
	stage("watch the recorder", d.housekeeping)
	stage("update adaptive thresholds", d.adaptThresholds)
	stage("pause rules that fire too often", d.watchStorms)
	stage("end expired runtime settings", d.expire)
	stage("keep the budget", d.keepBudget)
	stage("watch softirqs", d.watchSoftirqs)
	stage("watch locks", d.watchLocks)
	stage("follow containers", d.followContainers)
	stage("find contexts of threads", d.findContexts)
	stage("reload", d.reloadOnHangup)
	if d.cfg.Reload.Watch {
		stage("watch files", d.watchFiles)
	}
	stage("read outliers", d.readOutliers)
	stage("watch triggers", d.triggers.Run)
	stage("follow activities", d.followRequests)
	stage("take alerts", d.alerts.run)
	stage("take traces of peers", d.peers.serving.run)
	stage("tell peers of traces", d.peers.telling.run)
	stage("attach to system calls", d.attachCalls)
	if ctx.Err() == nil {
		d.announce()
	}
	stage("watch for hangs", d.watchForHangs) // the last one, as it is stopped first

	<-ctx.Done()
	d.log.Info("stopping")
	d.leaveKernel(context.Cause(ctx))
	d.notifyStopping()
	d.stop(stages)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// releaseRecorder releases history kept for an outlier without a snapshot.
func (d *daemon) releaseRecorder() {
	if d.manager != nil {
		d.manager.Release()
	}
}

// followHelpers keeps what helpers do from being reported.
func (d *daemon) followHelpers() {
	d.symbols.OnChange(func(pids []int) {
		if err := d.kernel.SetHelpers(pids); err != nil {
			d.log.Warn("what helpers do may be reported", zap.Error(err))
		}
	})
}

func (d *daemon) closeKernel() error {
	d.symbols.OnChange(func([]int) {})
	return d.kernel.Close()
}

// attach attaches the kernel side and logs what cannot be recorded on this kernel.
func (d *daemon) attach() error {
	if err := d.kernel.Attach(); err != nil {
		return err
	}
	d.logUnrecorded()
	return nil
}

// logUnrecorded logs what the recorder's groups would have and this kernel has not.
func (d *daemon) logUnrecorded() {
	for hook, why := range d.kernel.Unrecorded() {
		d.log.Info("not recorded on this kernel", zap.String("hook", hook), zap.Error(why))
	}
}
