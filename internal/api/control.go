package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// Control is the part of a Backend that changes rules at run time. Its errors are
// mistakes of the caller; nothing is changed then.
type Control interface {
	// SetThreshold sets a runtime threshold; by names who set it, for the list.
	SetThreshold(req *ThresholdRequest, by string) (ThresholdInfo, error)
	// Thresholds lists the runtime thresholds, newest first.
	Thresholds() []ThresholdInfo
	// ClearThresholds clears one of a rule, all for id 0, or those of all rules for "", and returns them.
	ClearThresholds(rule string, id int) ([]ThresholdInfo, error)
	// ResetRatchet resets a rule's ratchet.
	ResetRatchet(rule string) error
	// Pause keeps a rule from firing until Resume.
	Pause(req *PauseRequest, by string) error
	Resume(rule string) error
	// Reload reads the files again and applies them; with check it changes nothing.
	Reload(check bool) *Reload
}

// ThresholdRequest sets a rule's threshold, timeout, or both; with conditions, only
// for work that meets them. Durations are as in rule files.
type ThresholdRequest struct {
	Rule      string              `json:"rule"`
	When      map[string][]string `json:"when,omitempty"`
	Threshold string              `json:"threshold,omitempty"`
	Timeout   string              `json:"timeout,omitempty"`
	For       string              `json:"for,omitempty"` // empty: until cleared, or the daemon stops
}

// ThresholdInfo is a runtime threshold. The JSON form is stable; fields are only added.
type ThresholdInfo struct {
	ID          int                 `json:"id"`
	Rule        string              `json:"rule"`
	When        map[string][]string `json:"when,omitempty"`         // empty: all that the rule is about
	ThresholdNS int64               `json:"threshold_ns,omitempty"` // 0: the rule's
	TimeoutNS   int64               `json:"timeout_ns,omitempty"`   // 0: the rule's
	LeftNS      int64               `json:"left_ns,omitempty"`      // 0: without end
	By          string              `json:"by,omitempty"`           // who set it
}

// PauseRequest pauses a rule.
type PauseRequest struct {
	Rule string `json:"rule"`
	For  string `json:"for,omitempty"` // empty: until resumed, or the daemon stops
}

func (s *server) controlRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/thresholds", func(w http.ResponseWriter, _ *http.Request) {
		s.reply(w, http.StatusOK, noNull(s.backend.Thresholds()))
	})
	mux.HandleFunc("POST /v1/thresholds", s.setThreshold)
	mux.HandleFunc("DELETE /v1/thresholds", s.clearThresholds)
	mux.HandleFunc("POST /v1/pause", s.pause)
	mux.HandleFunc("POST /v1/resume", s.resume)
	mux.HandleFunc("POST /v1/reload", s.reload)
}

func (s *server) setThreshold(w http.ResponseWriter, r *http.Request) {
	var req ThresholdRequest
	if !s.read(w, r, &req) || !s.hasRule(w, req.Rule) {
		return
	}
	info, err := s.backend.SetThreshold(&req, by(r.Context()))
	if err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	s.log.Info("threshold set", append(peerFields(r.Context()), zap.Any("threshold", info))...)
	s.reply(w, http.StatusOK, info)
}

// clearThresholds: one of a rule by its id, all of a rule, its ratchet, or with all=1 everything.
func (s *server) clearThresholds(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	rule := query.Get("rule")
	all, err := boolean(query.Get("all"))
	ratchet, err2 := boolean(query.Get("ratchet"))
	id := 0
	if text := query.Get("id"); text != "" {
		var err3 error
		if id, err3 = strconv.Atoi(text); err3 != nil || id <= 0 {
			err = fmt.Errorf("invalid id %q: see \"tailcam threshold list\"", text)
		}
	}
	switch {
	case errors.Join(err, err2) != nil:
		s.fail(w, http.StatusBadRequest, errors.Join(err, err2))
		return
	case all == (rule != ""):
		s.fail(w, http.StatusBadRequest, errors.New("specify one of rule, all"))
		return
	case rule != "" && !s.hasRule(w, rule):
		return
	}
	var gone []ThresholdInfo
	if ratchet {
		err = s.backend.ResetRatchet(rule)
	} else {
		gone, err = s.backend.ClearThresholds(rule, id)
	}
	if err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	s.log.Info("thresholds cleared", append(peerFields(r.Context()),
		zap.String("rule", rule), zap.Bool("ratchet", ratchet), zap.Any("thresholds", gone))...)
	s.reply(w, http.StatusOK, noNull(gone))
}

func (s *server) pause(w http.ResponseWriter, r *http.Request) {
	var req PauseRequest
	if !s.read(w, r, &req) || !s.hasRule(w, req.Rule) {
		return
	}
	if err := s.backend.Pause(&req, by(r.Context())); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	s.log.Info("rule paused", append(peerFields(r.Context()), zap.String("rule", req.Rule),
		zap.String("for", req.For))...)
	s.reply(w, http.StatusOK, struct{}{})
}

func (s *server) resume(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Rule string `json:"rule"`
	}
	if !s.read(w, r, &req) || !s.hasRule(w, req.Rule) {
		return
	}
	if err := s.backend.Resume(req.Rule); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	s.log.Info("rule resumed", append(peerFields(r.Context()), zap.String("rule", req.Rule))...)
	s.reply(w, http.StatusOK, struct{}{})
}

// hasRule reports whether a rule exists; if not, it has sent the error.
func (s *server) hasRule(w http.ResponseWriter, rule string) bool {
	if rule == "" {
		s.fail(w, http.StatusBadRequest, errors.New("missing rule"))
		return false
	}
	if err := s.checkRule(rule); err != nil {
		s.fail(w, http.StatusNotFound, err)
		return false
	}
	return true
}

// read decodes a request's body strictly; if that fails, it has sent the error.
func (s *server) read(w http.ResponseWriter, r *http.Request, into any) bool {
	err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	var body []byte
	if err == nil {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	}
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err = dec.Decode(into); err == nil && dec.More() {
			err = errors.New("data after the object")
		}
	}
	if err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return false
	}
	return true
}

// by names the user of the peer.
func by(ctx context.Context) string {
	c, ok := ctx.Value(peerKey{}).(*limitedConn)
	if !ok {
		return ""
	}
	return fmt.Sprintf("uid %d", c.peer.Uid)
}

// SetThreshold sets a runtime threshold, timeout, or both.
func (c *Client) SetThreshold(ctx context.Context, req *ThresholdRequest) (*ThresholdInfo, error) {
	return send[*ThresholdInfo](ctx, c, http.MethodPost, "/v1/thresholds", req)
}

// Thresholds lists the runtime thresholds, newest first.
func (c *Client) Thresholds(ctx context.Context) ([]ThresholdInfo, error) {
	return get[[]ThresholdInfo](ctx, c, "/v1/thresholds")
}

// ClearThresholds clears one of a rule by its id, all of a rule for id 0,
// or those of all rules for "", and returns them.
func (c *Client) ClearThresholds(ctx context.Context, rule string, id int) ([]ThresholdInfo, error) {
	query := url.Values{}
	if rule == "" {
		query.Set("all", "1")
	} else {
		query.Set("rule", rule)
	}
	if id != 0 {
		query.Set("id", strconv.Itoa(id))
	}
	return send[[]ThresholdInfo](ctx, c, http.MethodDelete, "/v1/thresholds?"+query.Encode(), nil)
}

// ResetRatchet resets a rule's ratchet.
func (c *Client) ResetRatchet(ctx context.Context, rule string) error {
	query := url.Values{"rule": {rule}, "ratchet": {"1"}}
	_, err := send[[]ThresholdInfo](ctx, c, http.MethodDelete, "/v1/thresholds?"+query.Encode(), nil)
	return err
}

// Pause pauses a rule for a time, or until it is resumed.
func (c *Client) Pause(ctx context.Context, req *PauseRequest) error {
	_, err := send[struct{}](ctx, c, http.MethodPost, "/v1/pause", req)
	return err
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, rule string) error {
	_, err := send[struct{}](ctx, c, http.MethodPost, "/v1/resume", map[string]string{"rule": rule})
	return err
}
