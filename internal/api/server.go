package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	maxReason       = 1000     // bytes of a snapshot's reason
	headerTimeout   = 10 * time.Second
	bodyTimeout     = 30 * time.Second
	replyTimeout    = 2 * time.Minute // event streams have none: they count
	idleTimeout     = 2 * time.Minute
	closeTimeout    = 2 * time.Second
)

// server answers requests with what a Backend tells it.
type server struct {
	backend Backend
	log     *zap.Logger
	guard   *guard.Guard
	conns   *quota
	streams *quota
}

// ServeOptions configure a server. Nil means the defaults.
type ServeOptions struct {
	Log   *zap.Logger  // nil: silent
	Guard *guard.Guard // nil: panics over a request are not counted
}

// Serve answers requests on the socket until the context ends, then ends
// every stream and returns nil. A client that goes away, stops reading or
// sends nonsense costs one log line at most, and a user no more connections and
// streams than his share. The caller closes the socket.
func Serve(ctx context.Context, socket *Socket, backend Backend, opts *ServeOptions) error {
	s := newServer(backend, opts)
	quiet, err := zap.NewStdLogAt(s.log, zap.DebugLevel)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log := s.log
	srv := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout, // also of a body that nobody wants
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          quiet,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(limit(socket.listener, s.conns, s.guard)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", socket.Path, err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil {
		log.Debug("a client did not let go of its connection", zap.Duration("after", closeTimeout))
		if err := srv.Close(); err != nil {
			return fmt.Errorf("close %s: %w", socket.Path, err)
		}
	}
	return nil
}

func newServer(backend Backend, opts *ServeOptions) *server {
	s := &server{
		backend: backend, log: zap.NewNop(),
		conns: newQuota(maxConns, reservedConns), streams: newQuota(maxStreams, reservedStreams),
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
	mux.HandleFunc("POST /v1/snapshot", s.snapshot)
	s.liveRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, http.StatusNotFound, fmt.Errorf("no %s %s here", r.Method, r.URL.Path))
	})
	return s.guarded(mux)
}

// guarded lets a panic over one request cost this request. The client gets an
// error if it has not had the beginning of an answer, else the end of the connection.
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
			panic(http.ErrAbortHandler) // net/http knows it
		default:
			s.fail(w, http.StatusInternalServerError, errors.New("this request made the daemon panic, which its log tells: please report it"))
		}
	})
}

// begunWriter notes whether an answer has begun.
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

// losses are what clients were refused.
func (s *server) losses() []Loss {
	return []Loss{
		{Cause: "connection_refused", Count: s.conns.refused.Load(), Advice: "users had more connections open than their share: end those that hang, such as tailcam events -f"},
		{Cause: "stream_refused", Count: s.streams.refused.Load(), Advice: "users followed the events more often at once than their share: end some of tailcam events -f"},
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

func (s *server) snapshot(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	err := conn.SetReadDeadline(time.Now().Add(bodyTimeout))
	var body []byte
	if err == nil {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	}
	if err == nil {
		// The snapshot takes its time.
		err = errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{}))
	}
	if err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return
	}
	var req snapshotRequest
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			s.fail(w, http.StatusBadRequest, fmt.Errorf("decode request: %w", err))
			return
		}
	}
	if len(req.Reason) > maxReason {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("the reason is longer than %d bytes: shorten it", maxReason))
		return
	}
	s.log.Info("a snapshot is asked for", append(peerFields(r.Context()), zap.String("reason", req.Reason))...)
	dir, err := s.backend.TakeSnapshot(r.Context(), req.Reason)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	s.reply(w, http.StatusOK, snapshotReply{Dir: dir})
}

// checkRule tells a caller who asks for a rule that is not there which ones are.
func (s *server) checkRule(name string) error {
	var names []string
	for _, r := range s.backend.Rules() {
		if r.Name == name {
			return nil
		}
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("no rule %q: the daemon runs without rules", name)
	}
	return fmt.Errorf("no rule %q: the daemon has %s", name, strings.Join(names, ", "))
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
		s.log.Debug("a client went away before its reply", zap.Error(err))
	}
}

func (s *server) fail(w http.ResponseWriter, status int, err error) {
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
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
