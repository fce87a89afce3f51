package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
)

// housekeeping samples the recorder every second and releases history whose outlier was
// lost on the way. Every minute it frees entries of threads whose exit was not seen.
func (d *daemon) housekeeping(ctx context.Context) error {
	tick, sweep := time.NewTicker(time.Second), time.NewTicker(time.Minute)
	defer tick.Stop()
	defer sweep.Stop()
	for {
		turn := d.everySecond
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			turn = func() error {
				_, err := d.kernel.Reclaim()
				return err
			}
		case <-tick.C:
		}
		if err := d.housekeeper.do(func() error { return d.survive(guard.Housekeeping, turn) }); err != nil {
			return err
		}
	}
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
	const unclaimed = 5 * time.Second
	if err := d.kernel.KeepTicking(); err != nil {
		return err
	}
	d.kernel.LookForNarrow()
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
