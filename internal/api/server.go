package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/text"
)

const (
	maxStreams      = 64       // event streams at once
	reservedStreams = 16       // of these, for root
	maxBody         = 64 << 10 // bytes of a request
	headerTimeout   = 10 * time.Second
	bodyTimeout     = 30 * time.Second
	replyTimeout    = 2 * time.Minute // event streams have none: the quota bounds them
	idleTimeout     = 2 * time.Minute
	closeTimeout    = 2 * time.Second
)

// server answers requests from a Backend.
type server struct {
	backend  Backend
	log      *zap.Logger
	guard    *guard.Guard
	conns    *quota
	streams  *quota
	triggers rates
	opener   Opener
}

// ServeOptions configure a server. Nil means the defaults.
type ServeOptions struct {
	Log   *zap.Logger  // nil: silent
	Guard *guard.Guard // nil: panics are not counted
}

// Serve answers requests on the socket until the context ends, then closes every
// stream and returns nil. A client that disconnects, stops reading or sends garbage
// costs at most one log line; a user has at most its share of connections and
// streams. The caller closes the socket.
func Serve(ctx context.Context, socket *Socket, backend Backend, opts *ServeOptions) error {
	s := newServer(backend, opts)
	s.opener = backend
	return s.serve(ctx, socket, s.handler())
}

// serve answers requests with a handler until ctx is done.
func (s *server) serve(ctx context.Context, socket *Socket, handler http.Handler) error {
	quiet, err := zap.NewStdLogAt(s.log, zap.DebugLevel)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log := s.log
	srv := &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout, // also of a body that is ignored
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          quiet,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(limit(socket.Listener(), s.conns, s.guard)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", socket.Path, err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil {
		log.Debug("a client kept its connection open", zap.Duration("after", closeTimeout))
		if err := srv.Close(); err != nil {
			return fmt.Errorf("close %s: %w", socket.Path, err)
		}
	}
	return nil
}

func newServer(backend Backend, opts *ServeOptions) *server {
	s := &server{
		backend: backend, log: zap.NewNop(),
		conns: newQuota(maxConns, reservedConns), streams: newQuota(maxStreams, reservedStreams), triggers: newRates(),
	}
	if opts != nil {
		s.guard = opts.Guard
		if opts.Log != nil {
			s.log = opts.Log
		}
	}
	return s
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		status := s.backend.Status(r.Context())
		status.Losses = append(status.Losses, s.losses()...)
		s.reply(w, http.StatusOK, status)
	})
	mux.HandleFunc("GET /v1/rules", func(w http.ResponseWriter, _ *http.Request) {
		s.reply(w, http.StatusOK, noNull(s.backend.Rules()))
	})
	mux.HandleFunc("GET /v1/snapshots", s.snapshots)
	mux.HandleFunc("GET /v1/histograms", s.histograms)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET "+ActivitiesPath, s.activities)
	mux.HandleFunc("POST /v1/trigger", s.trigger)
	mux.HandleFunc("POST "+AlertsPath, s.ownAlerts)
	mux.HandleFunc("POST "+ActivitiesPath, s.openActivities)
	s.controlRoutes(mux)
	mux.HandleFunc("/", s.unknown)
	return s.guarded(mux)
}

func (s *server) unknown(w http.ResponseWriter, r *http.Request) {
	s.fail(w, http.StatusNotFound, fmt.Errorf("unknown request: %s %s", r.Method, r.URL.Path))
}

// guarded confines a panic to its request. The client gets an error, or if the
// reply has begun, the end of the connection.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := &begunWriter{ResponseWriter: w}
		err := s.guard.Do(guard.Request, func() error {
			next.ServeHTTP(begun, r)
			return nil
		})
		switch {
		case err == nil:
		case begun.begun:
			panic(http.ErrAbortHandler) // closes the connection
		default:
			s.fail(w, http.StatusInternalServerError,
				errors.New("the daemon panicked on this request: please report it with the daemon's log"))
		}
	})
}

// begunWriter records whether the reply has begun.
type begunWriter struct {
	http.ResponseWriter
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begunWriter) WriteHeader(status int) {
	b.begun = true
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *begunWriter) Write(p []byte) (int, error) {
	b.begun = true
	return b.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (b *begunWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// losses counts the refused connections and streams.
func (s *server) losses() []Loss {
	return []Loss{
		{Cause: "connection_refused", Count: s.conns.refused.Load(),
			Advice: "a user exceeded its share of connections: close idle ones, such as tailcam events -f"},
		{Cause: "stream_refused", Count: s.streams.refused.Load(),
			Advice: "a user exceeded its share of event streams: stop some of its tailcam events -f"},
		{Cause: "trigger_refused", Count: uint64(s.triggers.refused.Value()),
			Advice: fmt.Sprintf("a user asked for snapshots more often than every %s, or root than every %s: make the triggers rarer",
				userTriggers.every, rootTriggers.every)},
	}
}

func (s *server) snapshots(w http.ResponseWriter, _ *http.Request) {
	list, err := s.backend.Snapshots()
	if err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	s.reply(w, http.StatusOK, noNull(list))
}

// checkRule fails for an unknown rule, with the names of the known ones.
func (s *server) checkRule(name string) error {
	var names []string
	for _, r := range s.backend.Rules() {
		if r.Name == name {
			return nil
		}
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("unknown rule %q: the daemon has no rules", name)
	}
	return fmt.Errorf("unknown rule %q: the daemon has %s", name, strings.Join(names, ", "))
}

func (s *server) reply(w http.ResponseWriter, status int, value any) {
	body, err := text.Marshal(value)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, fmt.Errorf("encode reply: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil { //nolint:gosec // JSON to a socket; no browser reads it
		s.log.Debug("a client disconnected before its reply", zap.Error(err))
	}
}

func (s *server) fail(w http.ResponseWriter, status int, err error) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	s.reply(w, status, failure{Error: err.Error()})
}

// noNull makes an empty list [] rather than null.
func noNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
