package trigger

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/rules"
)

// Alert is one alert of Prometheus that is firing. All of it may be anybody's text.
type Alert struct {
	Fingerprint string
	StartsAt    time.Time
	Labels      map[string]string
	Summary     string // of its annotations; empty: none
}

// maxSeen bounds how many alerts or traces a rule remembers.
const maxSeen = 1024

// seen are the alerts or traces that a rule has taken: Alertmanager sends an alert again and
// again while it fires, and a trace may be slow on many hosts. The oldest is forgotten first.
type seen struct {
	keys  map[string]bool
	order []string
}

// isNew reports whether one was not seen before, and remembers it.
func (s *seen) isNew(key string) bool {
	if s.keys[key] {
		return false
	}
	if s.keys == nil {
		s.keys = map[string]bool{}
	}
	if len(s.order) >= maxSeen {
		delete(s.keys, s.order[0])
		s.order = s.order[1:]
	}
	s.keys[key] = true
	s.order = append(s.order, key)
	return true
}

// alerts is the source of rules that Alert fires.
type alerts struct{}

func (alerts) watch(ctx context.Context, _ func(*Event)) error {
	<-ctx.Done()
	return nil
}

func (alerts) close() {}

// Alert passes an alert to the rules that want it. Each takes the same alert once, until
// it fires anew. It reports how many rules want it, and how many of these fired now.
func (e *Engine) Alert(a *Alert) (wanted, fired int) {
	e.mu.Lock()
	var list []*watch
	for i := range e.list {
		if r := &e.list[i]; r.Trigger.Alert != nil && r.Trigger.Alert.Matches(a.Labels) && e.watches[r.Name] != nil {
			list = append(list, e.watches[r.Name])
		}
	}
	e.mu.Unlock()
	key := a.Fingerprint + a.StartsAt.UTC().Format(time.RFC3339Nano)
	for _, w := range list {
		w.mu.Lock()
		fresh := w.seen.isNew(key)
		w.mu.Unlock()
		if fresh && e.fire(w, a.event()) {
			fired++
		}
	}
	return len(list), fired
}

// event is what rules report of an alert.
func (a *Alert) event() *Event {
	reason := "alert " + cmp.Or(a.Labels["alertname"], "without a name")
	if s := a.Labels["severity"]; s != "" {
		reason += " (" + s + ")"
	}
	if a.Summary != "" {
		reason += ": " + a.Summary
	}
	return &Event{Reason: notice(fmt.Sprintf("%s, since %s", notice(reason), a.StartsAt.UTC().Format(time.RFC3339))), Target: a.target()}
}

// target is what the labels say of whose time it is; nil: nothing.
func (a *Alert) target() *rules.Target {
	if pid, err := strconv.ParseUint(a.Labels["pid"], 10, 22); err == nil && pid > 0 { // PID_MAX_LIMIT
		return &rules.Target{PID: uint32(pid)}
	}
	exactly := func(name string, ok func(string) bool) []string {
		v := a.Labels[name]
		if v == "" || strings.ContainsAny(v, "*?") || !ok(v) {
			return nil // a glob is the rule's to write
		}
		return []string{v}
	}
	whatever := func(string) bool { return true }
	t := &rules.Target{Places: rules.Places{
		Cgroup:    exactly("cgroup", func(v string) bool { return strings.HasPrefix(v, "/") }),
		Unit:      exactly("unit", func(v string) bool { return strings.Contains(v, ".") }),
		Container: exactly("container", whatever), Pod: exactly("pod", whatever), Namespace: exactly("namespace", whatever),
	}}
	if !t.Named() {
		return nil
	}
	return t
}
