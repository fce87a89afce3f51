package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// The daemon exits within 26 seconds, whatever hangs: all stages together, then the
// clean-up of each step, of which at most two can hang.
const (
	// stopTime exceeds that of actions: 10s to finish, 5s from SIGTERM to SIGKILL, 5s
	// to be reaped.
	stopTime = 22 * time.Second
	undoTime = 2 * time.Second
	// startGrace is how long a start-up step may continue after the daemon was told to
	// stop.
	startGrace = 2 * time.Second
)

var errHung = errors.New("timed out and was abandoned: a file system or process may not answer")

// stage is a running loop that can be stopped.
type stage struct {
	name  string
	stop  context.CancelFunc
	ended <-chan struct{}
}

// stop stops the stages in reverse order, one after the other. When stopTime is over it
// stops all of them and logs those that do not end.
func (d *daemon) stop(stages []stage) {
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
				d.log.Error("stop", zap.String("stage", s.name), zap.Error(errHung))
			}
		}
		return
	}
}

// undoStep runs a clean-up step and leaves it behind after the limit.
func undoStep(limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return errHung
	}
}

// runStep runs a start-up step. If ctx ends meanwhile it waits for startGrace only; the
// process then exits without cleaning up after that step.
func runStep(ctx context.Context, do func() error) error {
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
		return fmt.Errorf("%w: %w", context.Cause(ctx), errHung)
	}
}
