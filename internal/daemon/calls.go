package daemon

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// attachCalls attaches to functions of system calls while all else works.
func (d *daemon) attachCalls(ctx context.Context) error {
	begin := time.Now()
	d.kernel.RunCalls(ctx, func(s tracker.CallStatus) {
		for call, err := range s.Failed {
			d.log.Warn("not attached to a system call", zap.String("call", call), zap.Error(err))
		}
		if s.Attached > 0 {
			d.log.Info("attached to system calls", zap.Int("functions", s.Attached), zap.Duration("after", time.Since(begin)))
		}
	})
	return nil
}

// logInactive logs rules that this kernel cannot serve.
func (d *daemon) logInactive() {
	for name, why := range d.kernel.Inactive() {
		d.log.Warn("rule is inactive on this kernel", zap.String("rule", name), zap.Error(why))
	}
}

// attaching says of a syscall rule how far it is from working; empty: it works.
func attaching(r *rules.Rule, s *tracker.CallStatus) string {
	switch {
	case r.Track != rules.Syscall:
		return ""
	case s.Attached+len(s.Failed) < s.Functions:
		return fmt.Sprintf("attaching: %d of %d functions", s.Attached, s.Functions)
	case len(s.Failed) > 0:
		return fmt.Sprintf("attached to %d of %d functions: see the log", s.Attached, s.Functions)
	}
	return ""
}
