package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// AlertsPath is where Alertmanager's webhook sends to.
const AlertsPath = "/v1/alertmanager"

// Limits of the webhook.
const (
	maxAlertsBody = 1 << 20 // bytes
	maxAlerts     = 1000    // of one request
	maxLabels     = 64      // of one alert
	webhookBurst  = 50
	webhookEvery  = 100 * time.Millisecond
	alertsVersion = "4"
	alertFiring   = "firing"
)

// AlertNotification is what Alertmanager's webhook sends (version 4 of its data), as far
// as tailcam reads it.
type AlertNotification struct {
	Version         string  `json:"version"`
	TruncatedAlerts uint64  `json:"truncatedAlerts"` // left out, by max_alerts of its configuration
	Alerts          []Alert `json:"alerts"`
}

// Alert is one alert. All of it may be anybody's text.
type Alert struct {
	Status      string            `json:"status"` // firing, resolved
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	Fingerprint string            `json:"fingerprint"` // of its labels
}

// AlertsTaken is the reply to an AlertNotification.
type AlertsTaken struct {
	Firing int `json:"firing"` // alerts, the rest is resolved
	Wanted int `json:"wanted"` // by how many rules, of all of these
	Fired  int `json:"fired"`  // rules that fired; others had taken the alert before, or were limited
}

// AlertBackend takes alerts.
type AlertBackend interface {
	// Alert passes an alert that is firing to the rules. It reports how many want it, and
	// how many fired.
	Alert(a *Alert) (wanted, fired int)
}

// AlertHandler answers Alertmanager's webhook alone, for listeners that others than the
// users of the socket reach. It limits requests, and leaves it to the listener who may
// send some.
func AlertHandler(backend AlertBackend, opts *ServeOptions) http.Handler {
	s := newServer(nil, opts)
	limiter := rate.NewLimiter(rate.Every(webhookEvery), webhookBurst)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+AlertsPath, func(w http.ResponseWriter, r *http.Request) {
		if !limiter.Allow() {
			s.fail(w, http.StatusTooManyRequests, errors.New("too many notifications: raise group_interval of Alertmanager"))
			return
		}
		s.alerts(w, r, backend)
	})
	return s.guarded(mux)
}

// ownAlerts are notifications on the socket. They count as triggers of their user.
func (s *server) ownAlerts(w http.ResponseWriter, r *http.Request) {
	if !s.mayTrigger(w, r) {
		return
	}
	s.alerts(w, r, s.backend)
}

// alerts takes a notification. Fields that a later version adds are ignored.
func (s *server) alerts(w http.ResponseWriter, r *http.Request, backend AlertBackend) {
	if !s.acceptsJSON(w, r, "alerts") {
		return
	}
	n := AlertNotification{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAlertsBody)).Decode(&n); err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("read notification: %w", err))
		return
	}
	if err := n.check(); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	if n.TruncatedAlerts > 0 {
		s.log.Warn("Alertmanager left alerts out: raise max_alerts of its webhook", zap.Uint64("alerts", n.TruncatedAlerts))
	}
	taken := AlertsTaken{}
	for i := range n.Alerts {
		if n.Alerts[i].Status != alertFiring {
			continue
		}
		taken.Firing++
		wanted, fired := backend.Alert(&n.Alerts[i])
		taken.Wanted += wanted
		taken.Fired += fired
	}
	s.reply(w, http.StatusOK, taken)
}

// acceptsJSON refuses what a page in a browser of this machine could send: that adds an
// origin, and asks before it sends JSON to another one.
func (s *server) acceptsJSON(w http.ResponseWriter, r *http.Request, what string) bool {
	if r.Header.Get("Origin") != "" {
		s.fail(w, http.StatusForbidden, fmt.Errorf("browsers may not send %s", what))
		return false
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		s.fail(w, http.StatusUnsupportedMediaType, errors.New("the content type must be application/json"))
		return false
	}
	return true
}

func (n *AlertNotification) check() error {
	switch {
	case n.Version != alertsVersion:
		return fmt.Errorf("version %q is not known: must be %s, as Alertmanager 0.5 and later send it", cut(n.Version), alertsVersion)
	case len(n.Alerts) > maxAlerts:
		return fmt.Errorf("%d alerts are too many: set max_alerts of the webhook to at most %d", len(n.Alerts), maxAlerts)
	}
	for i := range n.Alerts {
		if l := len(n.Alerts[i].Labels); l > maxLabels {
			return fmt.Errorf("an alert has %d labels: must be at most %d", l, maxLabels)
		}
	}
	return nil
}

// cut shortens what a client has sent.
func cut(s string) string { return s[:min(len(s), 40)] }
