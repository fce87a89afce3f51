package daemon

import (
	"errors"
	"fmt"
	"time"

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

// load is rules.LoadSet with a deadline. It fails at once while an earlier call hangs.
func (r *ruleReader) load(before *rules.Set, paths []string) (*rules.Set, error) {
	select {
	case <-r.free:
	default:
		return nil, fmt.Errorf("an earlier read is still blocked: %w", errRulesHung)
	}
	done := make(chan *rules.Set, 1)
	go func() {
		set := rules.LoadSet(before, paths, &rules.LocalMachine{})
		r.free <- struct{}{}
		done <- set
	}()
	timeout := time.NewTimer(rulesTimeout)
	defer timeout.Stop()
	select {
	case set := <-done:
		return set, nil
	case <-timeout.C:
		return nil, errRulesHung
	}
}
