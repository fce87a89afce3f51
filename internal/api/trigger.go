package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/tracker/events"
)

// Limits of triggers.
const (
	maxReason   = 1000 // bytes
	maxLimiters = 1024
)

// triggerRate is how many triggers one may have at once, and how much later another one.
type triggerRate struct {
	who   string
	burst int
	every time.Duration
}

// A snapshot costs some 10 ms of CPU time and some MB on the disk. Root may take all of a CPU for
// them for a while, and half of one all the time: enough for each script but one that runs away.
var (
	userTriggers = triggerRate{"a user", 20, time.Second}
	rootTriggers = triggerRate{"root", 500, 20 * time.Millisecond}
)

func (r triggerRate) limiter() *rate.Limiter { return rate.NewLimiter(rate.Every(r.every), r.burst) }

// TriggerRequest asks for a snapshot. With TID or PID, it explains what that thread did
// and waited for in the time before; or with one of the globs, a thread for which all of them
// hold: rather one that is blocked.
type TriggerRequest struct {
	Reason string `json:"reason,omitempty"`
	PID    int    `json:"pid,omitempty"`    // its first thread, unless TID is another
	TID    int    `json:"tid,omitempty"`    // of any process
	Self   bool   `json:"self,omitempty"`   // TID is one of the caller's, as gettid() numbers it there; 0: its first
	Cgroup string `json:"cgroup,omitempty"` // path of cgroup v2
	Unit   string `json:"unit,omitempty"`   // of systemd

	Container string `json:"container,omitempty"` // name or id
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"` // of the pod
	Activity  string `json:"activity,omitempty"`  // name of a live one

	Last   string `json:"last,omitempty"`    // a duration; empty: 1s
	After  string `json:"after,omitempty"`   // recorded beyond the trigger; empty: 0s
	NoWait bool   `json:"no_wait,omitempty"` // reply with the id alone, before it is taken

	// Caller is the process that asks, as the kernel reports it: the server fills it in.
	Caller int `json:"-"`
}

// Globs are those that are set, by the names of rules.TargetGlobs.
func (r *TriggerRequest) Globs() map[string]string {
	globs := map[string]string{}
	for key, glob := range map[string]string{
		"cgroup": r.Cgroup, "unit": r.Unit, "container": r.Container, "pod": r.Pod, "namespace": r.Namespace, "activity": r.Activity,
	} {
		if glob != "" {
			globs[key] = glob
		}
	}
	return globs
}

// Triggered is a snapshot that was taken, or that is being taken.
type Triggered struct {
	ID        string            `json:"id"`
	Dir       string            `json:"dir,omitempty"`       // empty: not yet
	Explained *events.Explained `json:"explained,omitempty"` // null: no thread was named, or it could not be explained
}

// ErrBadTrigger is wrapped by Backend.Trigger's errors that are mistakes of the caller.
var ErrBadTrigger = errors.New("bad trigger")

// trigger takes a snapshot. Users have a rate each, as every snapshot costs time and room on
// the disk; how many are in progress is limited for all.
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
	of, ok := s.triggers.allow(peerUID(r.Context()))
	if !ok {
		s.fail(w, http.StatusTooManyRequests, fmt.Errorf("too many triggers: %s has %d, and one more every %s", of.who, of.burst, of.every))
	}
	return ok
}

// rates limits each user. Its methods may be called from any goroutine.
type rates struct {
	root    *rate.Limiter // of the daemon's own user, too
	users   *xsync.MapOf[uint32, *rate.Limiter]
	refused *xsync.Counter
}

func newRates() rates {
	return rates{rootTriggers.limiter(), xsync.NewMapOf[uint32, *rate.Limiter](), xsync.NewCounter()}
}

// allow reports whether a user may go on, and what he may. Users beyond maxLimiters share one rate.
func (r rates) allow(uid uint32) (of triggerRate, ok bool) {
	of, l := rootTriggers, r.root
	if !trusted(uid) {
		if _, ok := r.users.Load(uid); !ok && r.users.Size() >= maxLimiters {
			uid = 0 // root has its own
		}
		of = userTriggers
		l, _ = r.users.LoadOrCompute(uid, of.limiter)
	}
	if ok = l.Allow(); !ok {
		r.refused.Inc()
	}
	return of, ok
}
