package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/pulse"
)

// housekeeping samples the recorder every second and releases history whose outlier was
// lost on the way; it keeps the timers of timeouts alive, and, less often, the socket. Every
// minute it frees entries of threads whose exit was not seen. What fails, for lack of memory or
// descriptors, is logged and tried again.
func (d *daemon) housekeeping(ctx context.Context) error {
	tick, calm, sweep := pulse.After(time.Second), pulse.After(pulse.Calm), pulse.After(time.Minute)
	var everySecond, whenCalm, everyMinute complaint
	for {
		turn, failed := d.everySecond, &everySecond
		select {
		case <-ctx.Done():
			return nil
		case <-calm:
			calm = pulse.After(pulse.Calm)
			turn, failed = d.restoreSocket, &whenCalm
		case <-sweep:
			sweep = pulse.After(time.Minute)
			failed = &everyMinute
			turn = func() error {
				_, err := d.kernel.Reclaim()
				return err
			}
		case <-tick:
			tick = pulse.After(time.Second)
		}
		err := d.housekeeper.do(func() error { return d.survive(guard.Housekeeping, turn) })
		if ctx.Err() == nil && failed.isNew(err, time.Now()) {
			d.log.Warn("housekeeping failed and is tried again", zap.Error(err))
		}
	}
}

// complaint is an error that comes again and again, to be logged once in a while.
type complaint struct {
	text string
	next time.Time
}

// isNew reports whether err is another error than the last one, or the same a minute later.
func (c *complaint) isNew(err error, now time.Time) bool {
	if err == nil {
		c.text = ""
		return false
	}
	if err.Error() == c.text && now.Before(c.next) {
		return false
	}
	c.text, c.next = err.Error(), now.Add(time.Minute)
	return true
}

// survive is guard.Do for one iteration of a loop; a panic, which is logged, does not
// end the loop.
func (d *daemon) survive(p guard.Place, turn func() error) error {
	err := d.guard.Do(p, turn)
	if _, ok := errors.AsType[*guard.PanicError](err); ok {
		return nil
	}
	return err
}

func (d *daemon) everySecond() error {
	d.kernel.LookForNarrow()
	d.noteGap()
	d.notePinError()
	// Each on its own: what fails must not keep the rest from being done.
	return errors.Join(d.kernel.NoteAlive(), d.kernel.KeepTicking(), d.kernel.KeepSampling(), d.watchRecorder())
}

// restoreSocket listens again where somebody has removed the socket.
func (d *daemon) restoreSocket() error {
	if d.cfg.Hidden {
		return nil
	}
	restored, err := d.socket.Restore()
	if restored {
		d.log.Warn("the socket was removed: listening again", zap.String("socket", d.socket.Path))
	}
	if err != nil {
		return fmt.Errorf("keep the socket: %w", err)
	}
	return nil
}

func (d *daemon) watchRecorder() error {
	const unclaimed = 5 * time.Second
	if d.recorder == nil {
		return nil
	}
	d.recorder.Sample()
	d.checkCover(time.Now())
	frozen, since, err := d.kernel.Frozen()
	if err != nil {
		return err
	}
	if frozen && int64(linux.Monotonic()-since) > int64(unclaimed) {
		d.releaseRecorder()
	}
	return nil
}
