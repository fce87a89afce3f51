// Package outbox sends snapshots to another place, each as one file (internal/pack), once,
// whatever fails meanwhile. The daemon packs them into a spool on disk; another process
// without privileges sends what is there, and is started again when it dies or hangs.
package outbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/redact"
)

// Options configures an Outbox. Spool, Snapshots and Target are required.
type Options struct {
	Spool       string // directory, created if missing
	Snapshots   string // directory of the store
	Target      string // URL, see Parse
	Host        string // name of this machine
	Credentials string // path; empty: none, or for S3 the environment
	KnownHosts  string // path, for SFTP
	CA          string // path of a PEM file; empty: the system's
	S3Endpoint  string // URL
	S3Region    string // empty: as the store says
	Bandwidth   int64  // bytes a second; 0: no limit
	Quota       int64  // bytes of the spool
	MinFree     int64  // bytes that packing leaves free on the file system
	Age         time.Duration
	Redact      []redact.Kind // names that packs have pseudonyms for; nil: none

	FirstPause   time.Duration // after a failure; 0: 1s. Twice as long after each further one.
	LongestPause time.Duration // 0: 5m
	Stall        time.Duration // longest time without progress; 0: 1m

	Executable string // must call Main; empty: /proc/self/exe
	Counts     *Counts
	Log        *zap.Logger  // nil: no log
	Guard      *guard.Guard // recovers, logs and counts panics; nil: they are only recovered
}

func (o *Options) job() *job {
	return &job{
		Spool: o.Spool, Target: o.Target, Host: HostDir(o.Host), Credentials: o.Credentials, KnownHosts: o.KnownHosts, CA: o.CA,
		Redaction:  newRedaction(o.Redact, nil).tag,
		S3Endpoint: o.S3Endpoint, S3Region: o.S3Region, Bandwidth: o.Bandwidth,
		FirstPause: o.FirstPause, LongestPause: o.LongestPause, Stall: o.Stall,
	}
}

// Limits of what waits to be packed.
const (
	maxHeld    = 16      // protected from retention, which needs something to remove
	maxPending = 1 << 16 // remembered; more are found in the store
)

// pending is a snapshot to be packed.
type pending struct {
	id      string
	release func()
}

// Outbox sends snapshots. Its methods may be called concurrently; only Run uses the disk
// and the network.
type Outbox struct {
	opts Options
	log  *zap.Logger
	wake chan struct{} // something to pack
	more chan struct{} // something to send
	pid  atomic.Int64
	free atomic.Int64 // MinFree

	spool  atomic.Pointer[spool]
	failed map[string]bool      // could not be packed; used by work
	warned map[string]time.Time // by message; used by work

	mu      sync.Mutex
	pending []pending
	rescan  bool
	stopped bool
	status  Status
}

// New checks the options; Run does the work.
func New(opts *Options) (*Outbox, error) {
	o := *opts
	if _, err := Parse(o.Target); err != nil {
		return nil, fmt.Errorf("upload.target %w", err)
	}
	o.FirstPause = cmp.Or(o.FirstPause, time.Second)
	o.LongestPause = cmp.Or(o.LongestPause, 5*time.Minute)
	o.Stall = cmp.Or(o.Stall, time.Minute)
	o.Executable = cmp.Or(o.Executable, "/proc/self/exe")
	o.Counts = cmp.Or(o.Counts, &Counts{})
	o.Log = cmp.Or(o.Log, zap.NewNop())
	b := &Outbox{
		opts: o, log: o.Log, wake: make(chan struct{}, 1), more: make(chan struct{}, 1), failed: map[string]bool{}, warned: map[string]time.Time{},
		rescan: true, status: Status{Target: o.Target, State: StateIdle},
	}
	b.free.Store(o.MinFree)
	return b, nil
}

// SetMinFree changes Options.MinFree.
func (o *Outbox) SetMinFree(bytes int64) { o.free.Store(bytes) }

// Add takes a snapshot that is complete. It never blocks; release, which may be nil, is
// called when retention may remove the snapshot.
func (o *Outbox) Add(id string, release func()) {
	o.mu.Lock()
	switch {
	case o.stopped: // the next one finds it in the store
	case len(o.pending) >= maxPending:
		o.rescan = true
	default:
		p := pending{id: id}
		if len(o.pending) < maxHeld {
			p.release, release = release, nil
		}
		o.pending = append(o.pending, p)
	}
	o.mu.Unlock()
	if release != nil {
		release()
	}
	signal(o.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run packs and sends until ctx is done. Of a disk that hangs, it leaves a goroutine
// behind.
func (o *Outbox) Run(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			err := o.opts.Guard.Do(guard.Upload, func() error { return o.work(ctx) })
			if err != nil && ctx.Err() == nil {
				o.setState(StateFailed, err.Error())
				o.log.Warn("uploads stand still", zap.Error(err), zap.Duration("retry", retryTime))
				wait(ctx, retryTime)
			}
		}
	}()
	<-ctx.Done()
	wait, stop := context.WithTimeout(context.Background(), 4*stopTime)
	defer stop()
	select {
	case <-ended:
	case <-wait.Done():
		o.log.Warn("uploads do not stop: the disk of the spool may hang")
	}
	o.mu.Lock()
	left := o.pending
	o.pending, o.stopped = nil, true
	o.mu.Unlock()
	for _, p := range left { // the next one finds them in the store
		p.done()
	}
}

func (p *pending) done() {
	if p.release != nil {
		p.release()
	}
}

// Times of work.
const (
	retryTime  = time.Minute      // for what could not be packed, and to expire
	forgetTime = 10 * time.Minute // for marks of snapshots that are gone
)

// work opens the spool, packs, and has the sender send.
func (o *Outbox) work(ctx context.Context) error {
	spool, err := openSpool(o.opts.Spool, newRedaction(o.opts.Redact, o.opts.Guard))
	if err != nil {
		return err
	}
	o.spool.Store(spool)
	sending, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.supervise(sending)
	}()
	defer func() {
		stop()
		<-ended
		if err := spool.close(); err != nil {
			o.log.Warn("close the spool", zap.Error(err))
		}
	}()
	tick := time.NewTicker(retryTime)
	defer tick.Stop()
	forgotten := time.Now()
	o.countGone(spool.before)
	o.tend(ctx)
	for {
		o.packAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
		case <-tick.C:
			o.tend(ctx)
			if time.Since(forgotten) > forgetTime {
				forgotten = time.Now()
				if err := o.forget(); err != nil {
					o.log.Warn("tidy up the spool", zap.Error(err))
				}
			}
		}
	}
}

// tend does what is to be done now and then.
func (o *Outbox) tend(ctx context.Context) {
	spool := o.spool.Load()
	if err := spool.saveClock(); err != nil {
		o.log.Warn("uploads may expire late", zap.Error(err))
	}
	o.reconcile()
	for _, id := range spool.expire(o.opts.Age) {
		o.opts.Counts.lose(LostExpired, id)
		o.warn("snapshot not sent: it has waited for too long", zap.String("snapshot", id), zap.Duration("upload.age", o.opts.Age))
	}
	for _, id := range slices.Collect(maps.Keys(o.failed)) {
		delete(o.failed, id)
		o.packOne(ctx, id)
	}
	signal(o.more)
}

// warn logs one of each kind a minute, as thousands may fail alike; all are counted.
func (o *Outbox) warn(what string, fields ...zap.Field) {
	if last, ok := o.warned[what]; !ok || time.Since(last) > retryTime {
		o.warned[what] = time.Now()
		o.log.Warn(what, fields...)
	}
}

// reconcile counts what the sender has sent and could not report.
func (o *Outbox) reconcile() {
	spool := o.spool.Load()
	gone, err := spool.reconcile()
	if err != nil {
		o.log.Warn("read the spool", zap.Error(err))
	}
	c := o.opts.Counts
	for _, id := range gone {
		if !exists(spool.done(id)) {
			c.lose(LostMissed, id) // somebody else has removed it
			continue
		}
		c.mu.Lock()
		c.sent++
		c.mu.Unlock()
	}
}
