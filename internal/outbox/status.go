package outbox

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/linux"
)

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

	LostRedaction = "upload_not_redacted" // could not be redacted
)

// Causes lists them.
var Causes = []string{LostQuota, LostExpired, LostMissed, LostRedaction}

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
		total += linux.ProcessCPU(int(pid))
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
