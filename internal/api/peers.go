package api

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/tracker/events"
)

// PeersPath is where the tailcams of other machines tell of their outliers.
const PeersPath = "/v1/peers"

// MaxPeerOutliers is how many outliers one PeerReport may have.
const MaxPeerOutliers = 64

// Limits of reports.
const (
	peerVersion   = 1
	maxPeerBody   = 64 << 10 // bytes
	maxPeerText   = 255      // bytes of a name
	maxPeerAge    = time.Minute
	maxPeerDelay  = 24 * time.Hour
	peerBurst     = 10 // of one address
	peerEvery     = 200 * time.Millisecond
	allPeersBurst = 100
	allPeersEvery = 20 * time.Millisecond
	traceIDLength = 32
)

// PeerReport tells of outliers in traces. All of it may be anybody's text.
type PeerReport struct {
	Version  int                 `json:"version"`
	Run      string              `json:"run"` // of the daemon that reports, of no other
	Host     string              `json:"host"`
	Outliers []PeerReportOutlier `json:"outliers"`
}

// PeerReportOutlier is one outlier of a PeerReport.
type PeerReportOutlier struct {
	TraceID  string `json:"trace_id"` // in hexadecimal
	ID       string `json:"id"`
	Rule     string `json:"rule"`
	DelayNS  int64  `json:"delay_ns"`
	AgeNS    int64  `json:"age_ns"` // since its end, when the report is sent
	Snapshot string `json:"snapshot,omitempty"`
}

// PeerAnswer is the reply to a PeerReport.
type PeerAnswer struct {
	Host string `json:"host"`
	Own  bool   `json:"own,omitempty"` // it has reported to itself
	// Outliers are in the order of the report.
	Outliers []PeerAnswerOutlier `json:"outliers"`
}

// PeerAnswerOutlier says what became of one outlier of a report.
type PeerAnswerOutlier struct {
	TraceID string `json:"trace_id"`
	Wanted  int    `json:"wanted"` // by how many rules
	Seen    int    `json:"seen"`   // threads that worked for the trace, as far as that is remembered
	Fired   int    `json:"fired"`  // rules that fired; others had taken the trace before, or were limited
	// Snapshots already hold what was done for the trace.
	Snapshots []string `json:"snapshots,omitempty"`
}

// NewPeerReport returns a report of outliers, at most MaxPeerOutliers.
func NewPeerReport(run, host string, list []PeerReportOutlier) *PeerReport {
	return &PeerReport{Version: peerVersion, Run: run, Host: host, Outliers: list}
}

// PeerBackend takes reports of peers.
type PeerBackend interface {
	PeerReport(r *PeerReport) *PeerAnswer
}

// PeerHandler answers reports of peers, and no other requests. It limits them, and leaves it
// to the listener who may send some. refused counts those beyond the limits.
func PeerHandler(backend PeerBackend, refused *xsync.Counter, opts *ServeOptions) http.Handler {
	s := newServer(nil, opts)
	limits := newPeerLimits()
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PeersPath, func(w http.ResponseWriter, r *http.Request) {
		if !limits.allow(r.RemoteAddr) {
			refused.Inc()
			w.Header().Set("Retry-After", "1")
			s.fail(w, http.StatusTooManyRequests, fmt.Errorf("too many reports: an address may send one every %s, and all together one every %s", peerEvery, allPeersEvery))
			return
		}
		s.peers(w, r, backend)
	})
	mux.HandleFunc("/", s.unknown)
	return s.guarded(mux)
}

// peerLimits limits each address, and all together.
type peerLimits struct {
	all *rate.Limiter
	by  *xsync.MapOf[string, *rate.Limiter]
}

func newPeerLimits() *peerLimits {
	return &peerLimits{rate.NewLimiter(rate.Every(allPeersEvery), allPeersBurst), xsync.NewMapOf[string, *rate.Limiter]()}
}

// allow reports whether one more may come from there. Addresses beyond maxLimiters share one
// limit.
func (l *peerLimits) allow(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if _, ok := l.by.Load(host); err != nil || !ok && l.by.Size() >= maxLimiters {
		host = ""
	}
	own, _ := l.by.LoadOrCompute(host, func() *rate.Limiter { return rate.NewLimiter(rate.Every(peerEvery), peerBurst) })
	return own.Allow() && l.all.Allow()
}

// peers takes a report. Fields that a later version adds are ignored.
func (s *server) peers(w http.ResponseWriter, r *http.Request, backend PeerBackend) {
	if !s.acceptsJSON(w, r, "reports") {
		return
	}
	report := PeerReport{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPeerBody)).Decode(&report); err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("read report: %w", err))
		return
	}
	if err := report.check(); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	s.reply(w, http.StatusOK, backend.PeerReport(&report))
}

func (r *PeerReport) check() error {
	switch {
	case r.Version != peerVersion:
		return fmt.Errorf("version %d is not known: must be %d", r.Version, peerVersion)
	case len(r.Outliers) > MaxPeerOutliers:
		return fmt.Errorf("%d outliers are too many: must be at most %d", len(r.Outliers), MaxPeerOutliers)
	case r.Run == "" || r.Host == "" || len(r.Run) > maxPeerText || len(r.Host) > maxPeerText:
		return fmt.Errorf("run and host must have 1 to %d bytes", maxPeerText)
	}
	for i := range r.Outliers {
		if err := r.Outliers[i].check(); err != nil {
			return fmt.Errorf("outliers[%d]: %w", i, err)
		}
	}
	return nil
}

func (o *PeerReportOutlier) check() error {
	switch {
	case len(o.TraceID) != traceIDLength || strings.Trim(o.TraceID, "0123456789abcdef") != "" || strings.Trim(o.TraceID, "0") == "":
		return fmt.Errorf("trace_id %q is none: must be 32 digits of lower-case hexadecimal, not all zeros", cut(o.TraceID))
	case len(o.ID) > maxPeerText || len(o.Rule) > maxPeerText || len(o.Snapshot) > maxPeerText:
		return fmt.Errorf("id, rule and snapshot must have at most %d bytes", maxPeerText)
	case o.DelayNS < 0 || o.DelayNS > int64(maxPeerDelay):
		return fmt.Errorf("delay_ns %d: must be from 0 to %d", o.DelayNS, int64(maxPeerDelay))
	case o.AgeNS < 0 || o.AgeNS > int64(maxPeerAge):
		return fmt.Errorf("age_ns %d: must be from 0 to %d, as no history is older", o.AgeNS, int64(maxPeerAge))
	}
	return nil
}

// About is the outlier as triggers have it.
func (o *PeerReportOutlier) About(host string) events.PeerOutlier {
	return events.PeerOutlier{Host: host, ID: o.ID, Rule: o.Rule, DelayNS: o.DelayNS, Snapshot: o.Snapshot}
}
