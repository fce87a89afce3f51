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
	var told32 string
	d.kernel.RunCalls(ctx, func(s tracker.CallStatus) {
		for _, failed := range []map[string]error{s.Failed, s.Part32.Failed} {
			for function, err := range failed {
				d.log.Warn("not attached to a system call", zap.String("function", function), zap.Error(err))
			}
		}
		if s.Attached > 0 {
			d.log.Info("attached to system calls", zap.Int("functions", s.Attached), zap.Duration("after", time.Since(begin)))
		}
		if text := calls32(&s); text != told32 {
			d.log.Info("32-bit calls: " + text)
			told32 = text
		}
	})
	return nil
}

// calls32 says whether calls of 32-bit programs are attached to; empty: no rule is
// for any, or rules are attached to all calls.
func calls32(s *tracker.CallStatus) string {
	p := &s.Part32
	switch {
	case p.Functions == 0:
		return ""
	case s.Err32 != nil:
		return "not attached: " + s.Err32.Error()
	case !s.Seen32:
		return "not attached: no 32-bit program has been seen"
	case p.Attached+len(p.Failed) < p.Functions:
		return fmt.Sprintf("attaching: %d of %d functions", p.Attached, p.Functions)
	case len(p.Failed) > 0:
		return fmt.Sprintf("attached: %d of %d functions: see the log", p.Attached, p.Functions)
	}
	return fmt.Sprintf("attached: %d functions", p.Attached)
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
