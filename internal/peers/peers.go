// Package peers tells the tailcams of other machines which traces had an outlier here, so that
// each saves what it did for them while its recorder still holds that. Nobody waits for it:
// what a peer does not take at once is of no use to it later.
package peers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/term"
)

const (
	// maxPeers bounds the addresses of all names.
	maxPeers = 1024
	// gather is how long outliers of one moment are waited for.
	gather = 10 * time.Millisecond
	// Rounds, each of one request to each peer: so many at once, then one each roundEvery.
	rounds     = 5
	roundEvery = time.Second
	roundTime  = 3 * time.Second // of all requests of a round
	together   = 16              // requests at a time
	// maxAge is how long an outlier may wait for its round.
	maxAge = 5 * time.Second
	// Pauses of a peer that has failed.
	firstPause = time.Second
	lastPause  = time.Minute
	warnEvery  = time.Minute
	remembered = 1024 // traces that were told
)

// Outlier is one to be told of.
type Outlier struct {
	TraceID  string // in hexadecimal
	ID, Rule string
	Delay    time.Duration
	End      time.Time
	Snapshot string // id; empty: none
}

// Options configure a Sender. URLs, Host and Run are required.
type Options struct {
	URLs        []string    // of scheme, host and port
	Credentials string      // path of a file with USER:PASSWORD, read for each round; empty: none
	TLS         *tls.Config // nil: the system's authorities, no certificate
	Host        string      // this one
	Run         string      // of this daemon, of no other
	Version     string      // of tailcam
	Counts      *Counts     // nil: of this sender alone
	Resolve     Resolver    // nil: the system's
	Guard       *guard.Guard
	Log         *zap.Logger // nil: silent
}

// Counts are counters since the start.
type Counts struct {
	Told    atomic.Uint64 // outliers that were sent
	Dropped atomic.Uint64 // outliers that were not, as there were too many
	Failed  atomic.Uint64 // requests that had no answer, or another than was wanted
	Seen    atomic.Uint64 // answers of peers that had worked for a trace
}

// Sender tells. Its methods may be called from any goroutine.
type Sender struct {
	opts   Options
	counts *Counts
	book   *addresses
	rounds *rate.Limiter
	wake   chan struct{}

	mu      sync.Mutex
	waiting []Outlier
	told    recent

	warning sync.Mutex
	warned  time.Time
}

// New checks the options. Nothing is sent before Run.
func New(o *Options) (*Sender, error) {
	s := &Sender{opts: *o, counts: o.Counts, wake: make(chan struct{}, 1), rounds: rate.NewLimiter(rate.Every(roundEvery), rounds)}
	if s.counts == nil {
		s.counts = &Counts{}
	}
	s.opts.Log = cmp.Or(s.opts.Log, zap.NewNop())
	if _, err := readLogin(o.Credentials); err != nil {
		return nil, err
	}
	var err error
	s.book, err = newAddresses(&s.opts)
	return s, err
}

// Tell sends an outlier to all peers, if it is the first one of its trace. It does not wait.
func (s *Sender) Tell(o Outlier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told.has(o.TraceID) {
		return
	}
	if len(s.waiting) >= api.MaxPeerOutliers {
		s.counts.Dropped.Add(1)
		return
	}
	s.told.add(o.TraceID)
	s.waiting = append(s.waiting, o)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Peers returns how many addresses are told, as far as they are known.
func (s *Sender) Peers() int { return s.book.count() }

// Run sends until ctx is done.
func (s *Sender) Run(ctx context.Context) {
	defer s.book.close()
	s.book.resolve(ctx, s.warn)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		if !pause(ctx, gather) || s.rounds.Wait(ctx) != nil {
			return
		}
		if err := s.opts.Guard.Do(guard.Publish, func() error { return s.round(ctx) }); err != nil {
			s.warn("tell peers", zap.Error(err))
		}
	}
}

// round sends what waits to all peers.
func (s *Sender) round(ctx context.Context) error {
	list := s.take(time.Now())
	if len(list) == 0 {
		return nil
	}
	login, err := readLogin(s.opts.Credentials)
	if err != nil {
		return err
	}
	s.book.resolve(ctx, s.warn)
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	slots := make(chan struct{}, together)
	var all sync.WaitGroup
	for _, p := range s.book.due(time.Now()) {
		if slots <- struct{}{}; ctx.Err() != nil {
			break // the others are not to blame
		}
		all.Go(func() {
			defer func() { <-slots }()
			s.send(ctx, p, login, list)
		})
	}
	all.Wait()
	return nil
}

// take returns what waits and is not too old.
func (s *Sender) take(now time.Time) (list []Outlier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.waiting {
		if now.Sub(o.End) > maxAge {
			s.counts.Dropped.Add(1)
			continue
		}
		list = append(list, o)
	}
	s.waiting = nil
	s.counts.Told.Add(uint64(len(list)))
	return list
}

// send sends a list to one peer.
func (s *Sender) send(ctx context.Context, p *peer, login *login, list []Outlier) {
	out := make([]api.PeerReportOutlier, len(list))
	for i, o := range list {
		out[i] = api.PeerReportOutlier{
			TraceID: o.TraceID, ID: o.ID, Rule: o.Rule, DelayNS: o.Delay.Nanoseconds(),
			AgeNS: max(time.Since(o.End).Nanoseconds(), 0), Snapshot: o.Snapshot,
		}
	}
	body, err := json.Marshal(api.NewPeerReport(s.opts.Run, s.opts.Host, out))
	if err == nil {
		var answer *api.PeerAnswer
		if answer, err = p.post(ctx, bytes.NewReader(body), login, "tailcam/"+s.opts.Version); err == nil {
			s.answered(p, answer)
		}
	}
	if p.ended(time.Now(), err); err != nil {
		s.counts.Failed.Add(1)
		s.warn("a peer was not told of an outlier", zap.String("peer", p.url), zap.Error(err))
	}
}

// answered looks at what a peer has done.
func (s *Sender) answered(p *peer, a *api.PeerAnswer) {
	p.own.Store(a.Own)
	for i := range a.Outliers {
		if o := &a.Outliers[i]; o.Seen > 0 || len(o.Snapshots) > 0 {
			s.counts.Seen.Add(1)
			s.opts.Log.Info("another host took part in the trace of an outlier", zap.String("trace", term.Clean(o.TraceID)),
				zap.String("host", term.Clean(a.Host)), zap.String("peer", p.url), zap.Int("threads", o.Seen), zap.Int("fired", o.Fired),
				zap.Int("snapshots", len(o.Snapshots)))
		}
	}
}

// warn logs a failure, at most once a minute: there may be one for each request.
func (s *Sender) warn(message string, fields ...zap.Field) {
	s.warning.Lock()
	now := time.Now()
	quiet := now.Sub(s.warned) < warnEvery
	if !quiet {
		s.warned = now
	}
	s.warning.Unlock()
	if !quiet {
		s.opts.Log.Warn(message, fields...)
	}
}

// recent remembers the latest traces: at least half of remembered.
type recent struct{ now, before map[string]bool }

func (r *recent) has(id string) bool { return r.now[id] || r.before[id] }

func (r *recent) add(id string) {
	if r.now == nil || len(r.now) >= remembered/2 {
		r.before, r.now = r.now, map[string]bool{}
	}
	r.now[id] = true
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// errStatus is an answer that was not wanted.
var errStatus = errors.New("the peer refused")

func refusal(status int, text string) error {
	return fmt.Errorf("%w with status %d: %s", errStatus, status, text)
}
