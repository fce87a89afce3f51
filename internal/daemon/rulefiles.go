package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/rules"
)

// rulesTimeout bounds the reading of rule files, which are few and small.
const rulesTimeout = 5 * time.Second

// errRulesHung says that rule files lie where nobody answers.
var errRulesHung = errors.New("timed out reading rule files: check the file systems of rules: in tailcam.yaml")

// ruleReader reads rule files on a goroutine that is left behind if their file system
// hangs, at most one at a time.
type ruleReader struct{ free chan struct{} }

func newRuleReader() *ruleReader {
	r := &ruleReader{free: make(chan struct{}, 1)}
	r.free <- struct{}{}
	return r
}

type ruleList struct {
	rules []rules.Rule
	err   error
}

// load is loadRules with a deadline. It fails at once while an earlier call hangs.
func (r *ruleReader) load(cfg *config.Config) ([]rules.Rule, error) {
	select {
	case <-r.free:
	default:
		return nil, fmt.Errorf("an earlier read is still blocked: %w", errRulesHung)
	}
	done := make(chan ruleList, 1)
	go func() {
		list, err := loadRules(cfg)
		r.free <- struct{}{}
		done <- ruleList{list, err}
	}()
	timeout := time.NewTimer(rulesTimeout)
	defer timeout.Stop()
	select {
	case l := <-done:
		return l.rules, l.err
	case <-timeout.C:
		return nil, errRulesHung
	}
}
