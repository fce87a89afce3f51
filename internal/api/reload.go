package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Reload is the outcome of a reload, or of a check of what one would do. The JSON form
// is stable; fields are only added.
type Reload struct {
	Time    time.Time    `json:"time"`
	Check   bool         `json:"check,omitempty"`   // nothing was changed
	OK      bool         `json:"ok"`                // all that the files say is in effect
	Changed bool         `json:"changed"`           // a rule, an action or a key has changed
	Files   []ReloadFile `json:"files,omitempty"`   // rule files
	Rules   []ReloadRule `json:"rules,omitempty"`   // those that changed, or could not
	Keys    []ReloadKey  `json:"keys,omitempty"`    // of the configuration: those that changed, or could not
	Actions bool         `json:"actions,omitempty"` // those of no rule changed
	Dropped []string     `json:"dropped,omitempty"` // runtime settings that fit no rule any more
	Errors  []string     `json:"errors,omitempty"`  // of no rule file
}

// Outcomes of files, rules and keys.
const (
	ReloadRead    = "read"     // file: its rules are in use
	ReloadKept    = "kept"     // file: it has errors; its earlier rules are in use
	ReloadLeftOut = "left out" // file: it has errors, and no earlier rules
	ReloadAdded   = "added"
	ReloadChanged = "changed"
	ReloadRemoved = "removed"
	ReloadRefused = "refused" // rule or key: it is as before; a new rule is left out
)

// ReloadFile is the outcome of one rule file.
type ReloadFile struct {
	File     string   `json:"file"`
	Outcome  string   `json:"outcome"`
	Rules    []string `json:"rules,omitempty"`    // of it, in use
	Replaces []string `json:"replaces,omitempty"` // files of the same name in earlier directories
	Errors   []string `json:"errors,omitempty"`
}

// ReloadRule is the outcome of one rule.
type ReloadRule struct {
	Rule    string         `json:"rule"`
	Outcome string         `json:"outcome"`
	Source  string         `json:"source,omitempty"` // file:line
	Changes []ReloadChange `json:"changes,omitempty"`
	Reason  string         `json:"reason,omitempty"` // why it was refused
}

// ReloadChange is a key of a rule, as in snapshot.json, before and after.
type ReloadChange struct {
	Key    string `json:"key"`
	Before string `json:"before,omitempty"` // JSON; empty: absent
	After  string `json:"after,omitempty"`
}

// ReloadKey is the outcome of one key of the configuration.
type ReloadKey struct {
	Key     string `json:"key"`
	Outcome string `json:"outcome"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Reason  string `json:"reason,omitempty"` // why it was refused
}

func (s *server) reload(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Check bool `json:"check"`
	}
	if !s.read(w, r, &req) {
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil { // the kernel may take seconds
		s.fail(w, http.StatusInternalServerError, fmt.Errorf("reload: %w", err))
		return
	}
	if !req.Check {
		s.log.Info("reload requested", append(peerFields(r.Context()), zap.String("by", by(r.Context())))...)
	}
	s.reply(w, http.StatusOK, s.backend.Reload(req.Check))
}

// Reload reads the files again and applies what has changed; with check it only tells
// what that would be.
func (c *Client) Reload(ctx context.Context, check bool) (*Reload, error) {
	return send[*Reload](ctx, c, http.MethodPost, "/v1/reload", map[string]bool{"check": check})
}
