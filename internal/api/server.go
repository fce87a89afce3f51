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

	"github.com/tailcam/tailcam/internal/text"
)

const (
	maxStreams   = 64       // event streams at once
	maxBody      = 64 << 10 // bytes of a request
	maxReason    = 1000     // bytes of a snapshot's reason
	bodyTimeout  = 30 * time.Second
	closeTimeout = 2 * time.Second
)

// server answers requests with what a Backend tells it.
type server struct {
	backend Backend
	log     *zap.Logger
	streams chan struct{} // one token each open event stream
}

// Serve answers requests on the socket until the context ends, then ends
// every stream and returns nil. A client that goes away, stops reading or
// sends nonsense costs one log line at most. The caller closes the socket.
func Serve(ctx context.Context, socket *Socket, backend Backend, log *zap.Logger) error {
	if log == nil {
		log = zap.NewNop()
	}
	quiet, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	srv := &http.Server{
		Handler:           newHandler(backend, log),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          quiet,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(socket.listener) }()
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

func newHandler(backend Backend, log *zap.Logger) http.Handler {
	s := &server{backend: backend, log: log, streams: make(chan struct{}, maxStreams)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		s.reply(w, http.StatusOK, s.backend.Status(r.Context()))
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
	return mux
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
		err = conn.SetReadDeadline(time.Time{}) // the snapshot takes its time
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
	if _, err := w.Write(append(body, '\n')); err != nil {
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
