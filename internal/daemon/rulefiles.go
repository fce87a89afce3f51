package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/rules"
)

// ruleTime is how long rule files may take to be read. They are few and small:
// what takes longer does not answer.
const ruleTime = 5 * time.Second

// errRulesHang says that rule files lie where nobody answers.
var errRulesHang = errors.New("timed out reading rule files: check the file systems of rules: in tailcam.yaml")

// ruleReader reads rule files on a thread that is left behind if their file
// system does not answer: one at most, however often they are asked for.
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

// load is loadRules with a deadline. While an earlier one has not come back it fails at once.
func (r *ruleReader) load(cfg *config.Config) ([]rules.Rule, error) {
	select {
	case <-r.free:
	default:
		return nil, fmt.Errorf("an earlier read is still blocked: %w", errRulesHang)
	}
	done := make(chan ruleList, 1)
	go func() {
		list, err := loadRules(cfg)
		r.free <- struct{}{}
		done <- ruleList{list, err}
	}()
	timeout := time.NewTimer(ruleTime)
	defer timeout.Stop()
	select {
	case l := <-done:
		return l.rules, l.err
	case <-timeout.C:
		return nil, errRulesHang
	}
}
