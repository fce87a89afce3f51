package outbox

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/text"
)

// Verb is the argument that makes a program the sender of an outbox: it must pass what
// follows to Main.
const Verb = "tailcam-upload"

// job is what a sender does, as the daemon tells it on standard input. A line after it
// means that the queue has more, and its end that the sender ends. Nothing in it is
// secret.
type job struct {
	Spool, Target               string
	Host                        string // directory of this machine below the target
	Redaction                   string // of the packs to be sent; others are left alone
	Credentials, KnownHosts, CA string // paths; empty: none
	S3Endpoint, S3Region        string
	Bandwidth                   int64         // bytes a second; 0: no limit
	FirstPause, LongestPause    time.Duration // after a failure, and after many
	Stall                       time.Duration // longest time without progress
}

// report is a line on the sender's standard output.
type report struct {
	Idle    bool          `json:"idle,omitempty"` // the queue is empty
	Busy    bool          `json:"busy,omitempty"` // an upload proceeds
	Sent    string        `json:"sent,omitempty"` // id
	Bytes   int64         `json:"bytes,omitempty"`
	Existed bool          `json:"existed,omitempty"` // the target had it
	Failed  string        `json:"failed,omitempty"`  // id
	Error   string        `json:"error,omitempty"`
	Pause   time.Duration `json:"pause,omitempty"` // before the next attempt
	Warning string        `json:"warning,omitempty"`
}

// Bounds of a report, in bytes.
const (
	maxReport = 4096
	maxError  = 512
)

// short makes an error, which may have a server's words, one short line.
func short(s string) string {
	s = text.Clean(s)
	return strings.ToValidUTF8(s[:min(len(s), maxError)], "")
}

// memory is what the heap of a sender may grow to.
const memory = 96 << 20

// Main sends what is in a spool until standard input ends.
func Main() int {
	debug.SetMemoryLimit(memory)
	linux.LimitPriority()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 10) // it has time
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	j := job{}
	if err == nil {
		err = json.Unmarshal(line, &j)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the sender is internal: it is started by the daemon")
		return 2
	}
	s := &sender{job: &j, out: os.Stdout, more: make(chan struct{}, 1)}
	if err := confine(&j); err != nil {
		s.tell(&report{Warning: "uploads have more privileges than they need: " + err.Error()})
	}
	go func() {
		for {
			if _, err := in.ReadByte(); err != nil {
				os.Exit(0) // whatever hangs
			}
			select {
			case s.more <- struct{}{}:
			default:
			}
		}
	}()
	s.run(context.Background())
	return 0
}

// sender sends what is in the queue, one after the other.
type sender struct {
	job     *job
	out     io.Writer
	more    chan struct{}
	target  target
	limiter *rate.Limiter // nil: no limit
	failed  int           // attempts in a row
}

// tell ends the process if there is nobody to tell.
func (s *sender) tell(r *report) {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = s.out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(0)
	}
}

func (s *sender) run(ctx context.Context) {
	if s.job.Bandwidth > 0 {
		s.limiter = rate.NewLimiter(rate.Limit(s.job.Bandwidth), chunk)
	}
	for {
		names, err := s.list()
		if err != nil {
			s.pause("", err)
			continue
		}
		for _, name := range names {
			s.one(ctx, name)
		}
		if len(names) > 0 {
			continue
		}
		s.tell(&report{Idle: true})
		select {
		case <-s.more:
		case <-time.After(time.Minute):
			if s.target != nil {
				s.target.close()
			}
		}
	}
}

// redaction is what names packs; it redacts none.
func (s *sender) redaction() *redaction { return &redaction{tag: s.job.Redaction} }

// list reads the queue, the oldest first.
func (s *sender) list() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.job.Spool, queueDir)) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ok := s.redaction().idOf(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// pause tells of a failure and waits: longer each time, and not as long as other hosts do.
func (s *sender) pause(id string, err error) {
	wait := s.job.LongestPause
	if s.failed < 20 {
		wait = min(wait, s.job.FirstPause<<s.failed)
	}
	s.failed++
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // spreads the load of many hosts
	s.tell(&report{Failed: id, Error: short(withoutURL(err).Error()), Pause: wait})
	if s.target != nil {
		s.target.close()
	}
	s.target = nil // credentials and certificates are read again
	time.Sleep(wait)
}

// one sends one pack. One that fails is tried again when the others have had their turn.
func (s *sender) one(ctx context.Context, name string) {
	id, _ := s.redaction().idOf(name)
	f, err := os.Open(filepath.Join(s.job.Spool, queueDir, name))
	if errors.Is(err, os.ErrNotExist) {
		return // dropped
	}
	if err != nil {
		s.pause(id, err)
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil || unix.Fstat(int(f.Fd()), &st) != nil || st.Nlink == 0 {
		return // being dropped
	}
	spool := spool{dir: s.job.Spool, redact: s.redaction()}
	r := report{Sent: id, Bytes: st.Size}
	if !exists(spool.done(id)) { // else the sender before this one had just sent it
		if r.Existed, err = s.put(ctx, name, f, st.Size); err != nil {
			s.pause(id, err)
			return
		}
	}
	s.failed = 0
	err = spool.mark(id)
	if err == nil {
		err = os.Remove(spool.queued(id))
	}
	if err != nil {
		s.pause(id, err)
		return
	}
	s.tell(&r)
}

func (s *sender) put(ctx context.Context, name string, f *os.File, size int64) (existed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := &object{file: f, bytes: size}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, err
	}
	o.sha256 = hex.EncodeToString(sum.Sum(nil))
	stalled := time.AfterFunc(s.job.Stall, func() { cancel(fmt.Errorf("no progress for %s", s.job.Stall)) })
	defer stalled.Stop()
	told := time.Now()
	o.body = func(ctx context.Context, from int64) io.Reader {
		return &body{ctx: ctx, in: io.NewSectionReader(f, from, size-from), limiter: s.limiter, progress: func() {
			stalled.Reset(s.job.Stall)
			if time.Since(told) > s.job.Stall/8 {
				told = time.Now()
				s.tell(&report{Busy: true})
			}
		}}
	}
	if s.target == nil {
		if s.target, err = newTarget(s.job); err != nil {
			return false, err
		}
	}
	existed, err = s.target.put(ctx, s.job.Host+"/"+name, o)
	if errors.Is(err, errConflict) { // a file is whole or not there: the snapshot was packed again after it changed
		return existed, nil
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return existed, cause
	}
	return existed, err
}

// chunk is how much is read at once.
const chunk = 32 << 10

// body reads no faster than the limit.
type body struct {
	ctx      context.Context
	in       io.Reader
	limiter  *rate.Limiter
	progress func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	p = p[:min(len(p), chunk)]
	if b.limiter != nil {
		if err := b.limiter.WaitN(b.ctx, len(p)); err != nil {
			return 0, err
		}
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	b.progress()
	return b.in.Read(p)
}

// HostDir is the directory of a machine: its name, without what a path or a URL could
// take for something else.
func HostDir(host string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || slices.Contains([]rune("-_."), r) {
			return r
		}
		return '_'
	}, host)
	return cmp.Or(strings.TrimLeft(name, "."), "localhost")
}
