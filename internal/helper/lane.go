package helper

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
)

const (
	maxLeftoverRisky = 8                      // beyond this, no risky helper is started
	maxLeftover      = 16                     // beyond this, no helper is started
	firstBackoff     = 100 * time.Millisecond // after a failed start
	maxBackoff       = 30 * time.Second
	idleTime         = time.Minute // after which an on-demand helper is ended
)

// Reasons for not sending a request.
var (
	errBusy        = errors.New("helper is busy")
	errUnavailable = errors.New("helper not available")
	errLeftover    = errors.New("too many helpers are stuck in the kernel")
)

// lane serializes requests to one helper.
type lane struct {
	name     string
	role     role
	onDemand bool // started when needed, ended when idle
	risky    bool // reads what may hang
	h        *Helper
	turn     chan struct{} // semaphore; its holder owns the fields below

	mu       sync.Mutex // protects w, which only the holder of turn changes
	w        *worker
	failures int
	warned   bool
	retry    time.Time
	cpu      time.Duration // of w, at the last charge
	charged  []payer       // payers of its background work
	used     time.Time
}

func newLane(h *Helper, name string, r role) *lane {
	return &lane{name: name, role: r, h: h, turn: make(chan struct{}, 1)}
}

// current returns the running helper, or nil.
func (l *lane) current() *worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w
}

// works reports whether the helper has something to do, for a request or of its own.
func (l *lane) works() bool {
	if len(l.turn) > 0 {
		return true
	}
	w := l.current()
	return w != nil && len(w.active()) > 0
}

func (l *lane) set(w *worker) {
	l.mu.Lock()
	l.w = w
	l.mu.Unlock()
	l.cpu, l.charged = 0, nil
}

// ask waits for its turn until the deadline, then at most limit for the reply. who pays
// for it, as do the files read.
func (l *lane) ask(q *request, who []payer, deadline time.Time, limit time.Duration) (message, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-timer.C:
		return message{}, errBusy
	}
	select {
	case l.h.asked <- struct{}{}:
	default:
	}
	for retried := false; ; retried = true {
		var m message
		var guilty bool
		err := l.h.opts.Guard.Do(guard.Helper, func() (err error) {
			m, guilty, err = l.once(q, who, limit, retried)
			return err
		})
		if guilty || err == nil || !errors.Is(err, errGone) || retried || time.Now().After(deadline) {
			return m, err
		}
	}
}

// once sends the request and replaces the helper on failure. guilty means that this
// request caused the failure.
func (l *lane) once(q *request, who []payer, limit time.Duration, retried bool) (m message, guilty bool, err error) {
	w, err := l.worker()
	if err != nil {
		return m, false, err
	}
	l.used = time.Now()
	l.charge(w)
	if l.role.name == roleParse {
		q.refused = l.h.accounts.refusedFiles(l.used)
	}
	q.id = l.h.ids.Add(1)
	m, err = w.ask(q, limit)
	l.charged = who
	for _, n := range w.active() {
		l.charged = append(slices.Clip(l.charged), payer{ofFile, n.file.dev, n.file.ino})
	}
	l.charge(w)
	switch {
	case err == nil && m.flags&flagStuck == 0:
		return m, false, nil
	case err == nil:
		guilty = l.retire(w, errStuck, who, true)
		return m, guilty, nil
	}
	return m, l.retire(w, err, who, retried || !errors.Is(err, errGone)), err
}

var errStuck = errors.New("helper is stuck reading a file")

// charge charges the helper's CPU time since the last call.
func (l *lane) charge(w *worker) {
	now := w.cpu()
	if cost := now - l.cpu; cost > 0 {
		l.h.accounts.charge(time.Now(), cost, l.charged...)
		l.h.cpu.Add(int64(cost))
	}
	l.cpu = max(now, l.cpu)
}

// worker returns the running helper or starts one.
func (l *lane) worker() (*worker, error) {
	if w := l.current(); w != nil {
		select {
		case <-w.broken:
			l.retire(w, errGone, nil, false)
		default:
			return w, nil
		}
		if w := l.current(); w != nil {
			return w, nil
		}
	}
	return l.launch()
}

func (l *lane) launch() (*worker, error) {
	if n := l.h.leftover(); n >= maxLeftover || n >= maxLeftoverRisky && l.risky {
		return nil, errLeftover
	}
	if time.Now().Before(l.retry) || l.h.isClosed() {
		return nil, errUnavailable
	}
	w, err := l.h.starter.launch(l.role)
	if err != nil {
		l.retry = time.Now().Add(min(firstBackoff<<min(l.failures, 16), maxBackoff))
		l.failures++
		l.h.log.Warn("cannot start helper", zap.String("helper", l.name), zap.Error(err))
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	if w.hello != "" && !l.warned {
		l.warned = true
		l.h.log.Warn("helper runs with reduced confinement", zap.String("helper", l.name), zap.String("because", w.hello))
	}
	l.failures = 0
	l.set(w)
	l.h.add(w)
	return w, nil
}

// retire kills a helper, penalizes those whose files it was reading, and starts a new
// one. who is penalized if sure, or if one of the files was read for them; the result
// says which.
func (l *lane) retire(w *worker, why error, who []payer, sure bool) (guilty bool) {
	w.kill()
	now := time.Now()
	var blamed []payer
	for _, n := range w.active() {
		blamed = append(blamed, payer{ofFile, n.file.dev, n.file.ino}, payer{ofProcess, uint64(n.pid), 0})
	}
	guilty = sure
	for _, p := range who {
		guilty = guilty || p.kind == ofProcess && slices.Contains(blamed, p)
	}
	if guilty {
		blamed = append(blamed, who...)
	}
	l.h.accounts.penalize(now, unique(blamed)...)
	l.set(nil)
	if !l.h.isClosed() {
		l.h.killed.Add(1)
		l.h.log.Warn("replacing a helper", zap.String("helper", l.name), zap.Error(why),
			zap.String("said", w.failure()), zap.Any("because_of", names(unique(blamed))))
		if !l.onDemand {
			_, _ = l.launch() // the next request reports the error
		}
	}
	return guilty
}

func unique(list []payer) (out []payer) {
	seen := map[payer]bool{}
	for _, p := range list {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

func names(list []payer) []string {
	out := make([]string, len(list))
	for i, p := range list {
		switch p.kind {
		case ofProcess:
			out[i] = fmt.Sprintf("process %d", p.a)
		case ofUser:
			out[i] = fmt.Sprintf("user %d", p.a)
		default:
			out[i] = fmt.Sprintf("file %d of device %#x", p.b, p.a)
		}
	}
	return out
}

// check kills a helper that uses too much memory or time, ends an idle one, and
// replaces one that has died.
func (l *lane) check(now time.Time) {
	w := l.current()
	if w == nil {
		return
	}
	if w.resident() > l.role.memory+l.role.memory/4 {
		w.kill() // the holder of turn notices
	}
	most := noteTime
	if l.role.remote {
		most = remoteNoteTime
	}
	for _, n := range w.active() {
		if now.Sub(n.since) > most {
			w.kill()
		}
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	default:
		return
	}
	if w = l.current(); w == nil {
		return
	}
	l.charge(w)
	select {
	case <-w.broken:
		l.retire(w, errGone, nil, false)
	default:
		if l.onDemand && now.Sub(l.used) > idleTime {
			w.kill()
			l.set(nil)
		}
	}
}
