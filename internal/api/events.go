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
// with follow=1 new ones until the client or the daemon stops; with verdicts=1
// also their verdicts, when their snapshots are complete; with cursor=1 the place where that
// begins before it.
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
	begin, err := boolean(query.Get("cursor"))
	if err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("cursor: %w", err))
		return
	}
	if rule != "" && (rule != manualRule || !follow) {
		if err := s.checkRule(rule); err != nil {
			s.fail(w, http.StatusNotFound, err)
			return
		}
	}
	// Streams have no deadline; the quota bounds them.
	uid := peerUID(r.Context())
	if !s.streams.take(uid) {
		s.fail(w, http.StatusServiceUnavailable,
			fmt.Errorf("too many event streams of user %d, or of all users: close one of them", uid))
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
				s.log.Debug("an events client disconnected", zap.Error(err))
				return
			}
		}
		return
	}
	sub, err := s.backend.Subscribe(rule, query.Get("after"))
	if err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	defer sub.Cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	// Once the client has the header, it misses no outlier.
	if begin {
		err = out.enc.Encode(cursorNotice{sub.Cursor})
	}
	if err == nil {
		err = out.backlog(sub)
	}
	if err == nil {
		err = out.follow(r.Context().Done(), sub)
	}
	if err != nil {
		s.log.Debug("an events client disconnected", zap.Error(err))
	}
	if n := sub.Lost(); n > 0 {
		s.log.Warn("an events client was too slow",
			append(peerFields(r.Context()), zap.Uint64("lost", n), zap.String("rule", rule))...)
	}
}

// stream writes one client's events. Only its goroutine waits for the client.
type stream struct {
	enc      *text.Encoder
	flush    func() error
	told     lostNotice // losses reported to the client
	verdicts bool       // send verdicts
}

// backlog sends what came after the client's cursor.
func (s *stream) backlog(sub *Subscription) error {
	lost := lostNotice{Lost: sub.Forgotten, Restarted: sub.Restarted}
	if s.verdicts {
		lost.LostVerdicts = sub.ForgottenFinished
	}
	if lost != (lostNotice{}) {
		if err := s.enc.Encode(lost); err != nil {
			return err
		}
	}
	for _, o := range sub.Backlog {
		if o.Finished && !s.verdicts {
			continue
		}
		if err := s.enc.Encode(line(o)); err != nil {
			return err
		}
	}
	return nil
}

// follow copies outliers to the client until done. A loss is reported after the
// next outlier; there is one, because only a full queue loses.
func (s *stream) follow(done <-chan struct{}, sub *Subscription) error {
	outliers := sub.Outliers
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
			if o.Finished && !s.verdicts {
				continue // the client has this outlier
			}
			if err := s.enc.Encode(line(o)); err != nil {
				return err
			}
		}
		now := lostNotice{Lost: sub.Lost()}
		if s.verdicts {
			now.LostVerdicts = sub.LostFinished()
		}
		if now != s.told {
			if err := s.enc.Encode(lostNotice{Lost: now.Lost - s.told.Lost, LostVerdicts: now.LostVerdicts - s.told.LostVerdicts}); err != nil {
				return err
			}
			s.told = now
		}
	}
}

// line is an outlier, or its verdict if its snapshot is complete.
func line(o *events.Outlier) any {
	if !o.Finished {
		return o
	}
	v := &Verdict{
		ID: o.ID, Time: o.Time, Rule: o.Rule, Task: o.Task,
		StartMono: o.StartMono, Snapshot: o.Snapshot, Dir: o.Dir, Cursor: o.Cursor,
	}
	if o.Explained != nil {
		v.Explained = *o.Explained
	}
	return verdictNotice{Verdict: v}
}

func boolean(s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("invalid boolean: must be 0 or 1")
	}
	return b, nil
}
