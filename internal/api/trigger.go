package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// Limits of triggers.
const (
	maxReason    = 1000 // bytes
	triggerBurst = 20   // of one user
	triggerEvery = time.Second
	maxLimiters  = 1024
)

// ErrBadTrigger is wrapped by Backend.Trigger's errors that are mistakes of the caller.
var ErrBadTrigger = errors.New("bad trigger")

// trigger takes a snapshot. Users but root have a rate each, as every snapshot costs
// time and room on the disk; how many are in progress is limited for all.
func (s *server) trigger(w http.ResponseWriter, r *http.Request) {
	req := TriggerRequest{}
	if r.ContentLength != 0 && !s.read(w, r, &req) {
		return
	}
	// Taking a snapshot has no deadline.
	conn := http.NewResponseController(w)
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})); err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return
	}
	if len(req.Reason) > maxReason {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("reason is too long: must be at most %d bytes", maxReason))
		return
	}
	if !s.mayTrigger(w, r) {
		return
	}
	req.Caller = peerPID(r.Context())
	s.log.Info("snapshot requested", append(peerFields(r.Context()),
		zap.String("reason", req.Reason), zap.Int("pid", req.PID), zap.Int("tid", req.TID), zap.Bool("self", req.Self))...)
	done, err := s.backend.Trigger(r.Context(), &req)
	switch {
	case errors.Is(err, ErrBadTrigger):
		s.fail(w, http.StatusBadRequest, err)
	case err != nil:
		s.fail(w, http.StatusInternalServerError, err)
	default:
		s.reply(w, http.StatusOK, done)
	}
}

// mayTrigger takes one trigger from the user's rate, or refuses the request.
func (s *server) mayTrigger(w http.ResponseWriter, r *http.Request) bool {
	if uid := peerUID(r.Context()); !trusted(uid) && !s.triggers.allow(uid) {
		s.fail(w, http.StatusTooManyRequests, fmt.Errorf("too many triggers: a user has %d, and one more every %s", triggerBurst, triggerEvery))
		return false
	}
	return true
}

// rates limits each user. Its methods may be called from any goroutine.
type rates struct {
	users   *xsync.MapOf[uint32, *rate.Limiter]
	refused *xsync.Counter
}

func newRates() rates {
	return rates{xsync.NewMapOf[uint32, *rate.Limiter](), xsync.NewCounter()}
}

// allow reports whether a user may go on. Users beyond maxLimiters share one rate.
func (r rates) allow(uid uint32) bool {
	if _, ok := r.users.Load(uid); !ok && r.users.Size() >= maxLimiters {
		uid = 0 // root has none of its own
	}
	l, _ := r.users.LoadOrCompute(uid, func() *rate.Limiter { return rate.NewLimiter(rate.Every(triggerEvery), triggerBurst) })
	if l.Allow() {
		return true
	}
	r.refused.Inc()
	return false
}
