package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// The daemon ends in 26 seconds at most, whatever hangs: stages together, then
// the clean-up of each step, of which at most two can hang.
const (
	// stopTime is more than the actions' own (10 s to end by themselves, 5 s
	// from SIGTERM to SIGKILL, 5 s for the kernel to let them go).
	stopTime = 22 * time.Second
	undoTime = 2 * time.Second
	// startGrace is how long a step of the start may go on when the daemon is told to stop.
	startGrace = 2 * time.Second
)

var errHangs = errors.New("timed out and was abandoned: a file system or process may not answer")

// stopping is a stage that can be told to stop.
type stopping struct {
	name  string
	stop  context.CancelFunc
	ended <-chan struct{}
}

// stop stops the stages in the reverse order, each when the one before has ended.
// When the time is over it tells all of them, and says which go on.
func (d *daemon) stop(stages []stopping) {
	timeout := time.NewTimer(stopTime)
	defer timeout.Stop()
	for i := len(stages) - 1; i >= 0; i-- {
		s := stages[i]
		s.stop()
		select {
		case <-s.ended:
			continue
		case <-timeout.C:
		}
		for _, rest := range stages[:i] {
			rest.stop()
		}
		for _, s := range stages[:i+1] {
			select {
			case <-s.ended:
			default:
				d.log.Error("stop", zap.String("stage", s.name), zap.Error(errHangs))
			}
		}
		return
	}
}

// undoWithin runs a step of the end, and leaves it behind if it takes too long.
func undoWithin(limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return errHangs
	}
}

// begin runs a step of the start. Told to stop meanwhile, it waits a little for
// the step, whose clean-up is then left to the end of the process.
func begin(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(startGrace):
		return fmt.Errorf("%w: %w", context.Cause(ctx), errHangs)
	}
}
