// Package outbox sends snapshots to another place, each as one file (internal/pack), once,
// whatever fails meanwhile. The daemon packs them into a spool on disk; another process
// without privileges sends what is there, and is started again when it dies or hangs.
package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot"
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
		S3Endpoint: o.S3Endpoint, S3Region: o.S3Region, Bandwidth: o.Bandwidth,
		FirstPause: o.FirstPause, LongestPause: o.LongestPause, Stall: o.Stall,
	}
}

// States of an outbox.
const (
	StateIdle    = "idle"    // everything was sent
	StateSending = "sending" // or about to
	StateWaiting = "waiting" // for the next attempt
	StateFailed  = "failed"  // the spool cannot be opened, or the sender has died
	StateHangs   = "hangs"   // the sender waits in the kernel, for a disk or a file system
)

// Causes of losses.
const (
	LostQuota   = "upload_quota"   // more waited than the spool may hold
	LostExpired = "upload_expired" // waited for too long
	LostMissed  = "upload_missed"  // the snapshot was removed before it was packed
)

// Causes lists them.
var Causes = []string{LostQuota, LostExpired, LostMissed}

// Counts are what became of packs. They may be shared by outboxes, one after the other.
type Counts struct {
	mu      sync.Mutex
	sent    uint64
	existed uint64
	failed  uint64
	bytes   uint64
	lost    map[string]map[string]uint64 // by cause and rule
	cpu     atomic.Int64                 // of senders that have ended
}

func (c *Counts) lose(cause, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[string]map[string]uint64{}
	}
	if c.lost[cause] == nil {
		c.lost[cause] = map[string]uint64{}
	}
	c.lost[cause][ruleOf(id)]++
}

// Lost returns what was not sent, by the rule of the snapshot.
func (c *Counts) Lost(cause string) map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.lost[cause])
}

// Status is the state of an outbox.
type Status struct {
	Target  string
	State   string // of States
	Error   string // of the last failure; empty: none since the last success
	Next    time.Time
	Last    time.Time // of the last success; zero: none
	Waiting int       // packed, or to be
	Bytes   int64     // of the spool

	Sent      uint64 // includes Existed
	Existed   uint64 // the target had them
	Failed    uint64 // attempts
	SentBytes uint64
	PID       int // of the sender; 0: none
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

// Status returns the state, as of now.
func (o *Outbox) Status() Status {
	o.mu.Lock()
	s := o.status
	s.Waiting = len(o.pending)
	o.mu.Unlock()
	if spool := o.spool.Load(); spool != nil {
		n, bytes := spool.size()
		s.Waiting, s.Bytes = s.Waiting+n, bytes
	}
	c := o.opts.Counts
	c.mu.Lock()
	s.Sent, s.Existed, s.Failed, s.SentBytes = c.sent, c.existed, c.failed, c.bytes
	c.mu.Unlock()
	s.PID = int(o.pid.Load())
	return s
}

// CPU returns the CPU time of all senders.
func (o *Outbox) CPU() time.Duration {
	total := time.Duration(o.opts.Counts.cpu.Load())
	if pid := o.pid.Load(); pid != 0 {
		const sched = 2 // CPUCLOCK_SCHED
		var ts unix.Timespec
		if unix.ClockGettime(int32(^pid<<3|sched), &ts) == nil {
			total += time.Duration(ts.Nano())
		}
	}
	return total
}

func (o *Outbox) setState(state, err string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status.State, o.status.Next = state, time.Time{}
	if err != "" {
		o.status.Error = clean(err)
	}
}

var errEnded = errors.New("the sender has died")

// count takes in what the sender reports.
func (o *Outbox) count(r *report) {
	c := o.opts.Counts
	switch {
	case r.Sent != "":
		if spool := o.spool.Load(); !spool.left(r.Sent) {
			return // reconcile has counted it
		}
		c.mu.Lock()
		c.sent++
		if r.Existed {
			c.existed++
		} else {
			c.bytes += uint64(r.Bytes)
		}
		c.mu.Unlock()
		o.mu.Lock()
		o.status.State, o.status.Error, o.status.Next, o.status.Last = StateSending, "", time.Time{}, time.Now()
		o.mu.Unlock()
		o.log.Debug("snapshot sent", zap.String("snapshot", r.Sent), zap.Bool("existed", r.Existed))
	case r.Error != "":
		c.mu.Lock()
		c.failed++
		c.mu.Unlock()
		o.mu.Lock()
		again := o.status.Error == clean(r.Error)
		o.status.State, o.status.Error, o.status.Next = StateWaiting, clean(r.Error), time.Now().Add(r.Pause)
		o.mu.Unlock()
		if !again {
			o.log.Warn("upload failed", zap.String("snapshot", clean(r.Failed)), zap.String("error", clean(r.Error)), zap.Duration("next", r.Pause))
		}
	case r.Warning != "":
		o.log.Warn(clean(r.Warning))
	case r.Idle:
		o.setState(StateIdle, "")
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
	spool, err := openSpool(o.opts.Spool)
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
	o.tend()
	for {
		o.packAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
		case <-tick.C:
			o.tend()
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
func (o *Outbox) tend() {
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
		o.packOne(id)
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

// packAll packs what waits.
func (o *Outbox) packAll(ctx context.Context) {
	for ctx.Err() == nil {
		o.mu.Lock()
		rescan := o.rescan && len(o.pending) == 0
		if rescan {
			o.rescan = false
		}
		var next pending
		if len(o.pending) > 0 {
			next, o.pending = o.pending[0], o.pending[1:]
		}
		o.mu.Unlock()
		switch {
		case next.id != "":
			o.packOne(next.id)
			next.done()
		case rescan:
			if err := o.find(ctx); err != nil {
				o.log.Warn("look for snapshots to send", zap.Error(err))
			}
		default:
			return
		}
	}
}

// find packs the snapshots of the store that are not known yet: those of before a crash,
// or of before uploads were configured.
func (o *Outbox) find(ctx context.Context) error {
	there, err := o.stored()
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(there)) { // the oldest first, by their clock
		if ctx.Err() != nil {
			return nil
		}
		o.packOne(id)
	}
	return nil
}

func (o *Outbox) stored() (map[string]bool, error) {
	entries, err := os.ReadDir(o.opts.Snapshots)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if id, err := snapshot.ParseID(e.Name()); err == nil && e.IsDir() && id.String() == e.Name() {
			there[e.Name()] = true
		}
	}
	return there, nil
}

func (o *Outbox) forget() error {
	there, err := o.stored()
	if err != nil {
		return err
	}
	return o.spool.Load().forget(there)
}

// packOne packs a snapshot that is not known. It is tried again if that fails.
func (o *Outbox) packOne(id string) {
	spool := o.spool.Load()
	if spool.known(id) {
		return
	}
	dir := filepath.Join(o.opts.Snapshots, id)
	dropped, err := spool.add(dir, id, limits{o.opts.Quota, o.free.Load()})
	if errors.Is(err, errNoRoom) {
		err = spool.mark(id)
		dropped = append(dropped, id)
	}
	for _, id := range dropped {
		o.opts.Counts.lose(LostQuota, id)
		o.warn("snapshot not sent: the spool is full", zap.String("snapshot", id))
	}
	switch {
	case err == nil:
		signal(o.more)
	case errors.Is(err, fs.ErrNotExist) && !exists(dir):
		o.opts.Counts.lose(LostMissed, id)
		o.warn("snapshot not sent: it was removed before it was packed", zap.String("snapshot", id))
	default:
		o.failed[id] = true
		o.warn("pack a snapshot for its upload", zap.String("snapshot", id), zap.Error(err), zap.Duration("retry", retryTime))
	}
}
