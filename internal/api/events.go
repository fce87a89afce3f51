package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/events"
)

// events streams outliers as newline-delimited JSON: the remembered ones, or
// with follow=1 those that come from now on, until client or daemon go away;
// with verdicts=1 also what their snapshots say, when they are complete.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	rule := query.Get("rule")
	follow, err := boolean(query.Get("follow"))
	if err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("follow: %w", err))
		return
	}
	verdicts, err := boolean(query.Get("verdicts"))
	if err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("verdicts: %w", err))
		return
	}
	if rule != "" {
		if err := s.checkRule(rule); err != nil {
			s.fail(w, http.StatusNotFound, err)
			return
		}
	}
	// A reader may take its time: it is one of its user's few.
	uid := peerUID(r.Context())
	if !s.streams.take(uid) {
		s.fail(w, http.StatusServiceUnavailable, fmt.Errorf("user %d reads the events too often at once, or all users together do: end one of these readers", uid))
		return
	}
	defer s.streams.release(uid)
	conn := http.NewResponseController(w)
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})); err != nil {
		s.fail(w, http.StatusInternalServerError, fmt.Errorf("prepare stream: %w", err))
		return
	}
	out := &stream{verdicts: verdicts, enc: text.NewEncoder(w), flush: conn.Flush}
	if !follow {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, o := range s.backend.Recent(rule) {
			if err := out.enc.Encode(o); err != nil {
				s.log.Debug("a reader of events went away", zap.Error(err))
				return
			}
		}
		return
	}
	outliers, cancel, lost := s.backend.Subscribe(rule)
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	// From the moment that the client sees the header, it misses nothing.
	if err := out.follow(r.Context().Done(), outliers, lost); err != nil {
		s.log.Debug("a reader of events went away", zap.Error(err))
	}
	if n := lost(); n > 0 {
		s.log.Warn("a reader of events was too slow", append(peerFields(r.Context()), zap.Uint64("lost", n), zap.String("rule", rule))...)
	}
}

// stream writes one client's events. Only its own goroutine ever waits for the client.
type stream struct {
	enc      *text.Encoder
	flush    func() error
	told     uint64 // losses that the client knows of
	verdicts bool   // it wants them
}

// follow copies outliers to the client until done. Losses are told with the
// next outlier; there is one, for only a full queue loses.
func (s *stream) follow(done <-chan struct{}, outliers <-chan *events.Outlier, lost func() uint64) error {
	for {
		if len(outliers) == 0 {
			if err := s.flush(); err != nil {
				return err
			}
		}
		select {
		case <-done:
			return nil
		case o, ok := <-outliers:
			if !ok {
				return nil
			}
			if o.Explained != nil && !s.verdicts {
				continue // it has had this one
			}
			if err := s.enc.Encode(line(o)); err != nil {
				return err
			}
		}
		if n := lost(); n > s.told {
			if err := s.enc.Encode(lostNotice{Lost: n - s.told}); err != nil {
				return err
			}
			s.told = n
		}
	}
}

// line is an outlier, or if it comes for the second time, its verdict.
func line(o *events.Outlier) any {
	if o.Explained == nil {
		return o
	}
	return verdictNotice{Verdict: &Verdict{
		ID: o.ID, Time: o.Time, Rule: o.Rule, Task: o.Task, StartMono: o.StartMono, Snapshot: o.Snapshot, Explained: *o.Explained,
	}}
}

func boolean(s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("not a boolean: allowed are 0 and 1")
	}
	return b, nil
}
