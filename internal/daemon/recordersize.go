package daemon

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/tracker"
)

// coverSample is how long events are counted for recorder.cover.
const coverSample = time.Second

// sizeRecorder sets the size of the recorder's rings.
func (d *daemon) sizeRecorder() (err error) {
	r := &d.cfg.Recorder
	if d.ringFor, err = ringReason(r); err != nil {
		return err
	}
	if d.ring = tracker.KeptRing(d.pins, d.ringFor); d.ring > 0 {
		return nil // measured by the daemon before
	}
	d.ring, err = d.ringSize(r)
	return err
}

// ringSize is the size of the recorder's rings: as configured, or for recorder.cover from
// the event rate of one second, whose records are discarded.
func (d *daemon) ringSize(r *config.Recorder) (int, error) {
	if !r.Enabled || r.Cover == 0 {
		return r.Size, nil
	}
	events, rate, err := countEvents(r)
	if err != nil {
		return 0, fmt.Errorf("count events for recorder.cover: %w", err)
	}
	cpus, err := tracker.PresentCPUs()
	if err != nil {
		return 0, err
	}
	size, limited := coverSize(r, rate, cpus)
	fields := []zap.Field{
		zap.Float64("events_per_second", events), zap.Int("bytes_per_cpu", size), zap.Int("cpus", cpus),
		zap.Duration("cover", r.Cover), zap.Duration("covers_at_this_rate", flight.Covers(r.Backend, size, rate)),
	}
	if limited {
		d.log.Warn("recorder.max_memory is too small for recorder.cover", append(fields, zap.String("to_change", "raise recorder.max_memory, or record fewer events"))...)
	} else {
		d.log.Info("sized the recorder", fields...)
	}
	return size, nil
}

// countEvents returns the event rate of the busiest CPU, and what its events take of
// a ring, both per second. Short ones that are alone count as whole ones.
func countEvents(r *config.Recorder) (events, bytes float64, err error) {
	k, err := tracker.New(nil, &tracker.Options{Groups: r.Events, Ring: 1, IRQFloor: r.IRQFloor, NoHistograms: true})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := k.Attach(); err != nil {
		return 0, 0, err
	}
	before, start := k.Recorded(), time.Now()
	time.Sleep(coverSample)
	took := time.Since(start).Seconds()
	for i, c := range k.Recorded() {
		places, pairs := float64(c.Recorded-before[i].Recorded)/took, float64(c.Paired-before[i].Paired)/took
		if n := flight.Bytes(r.Backend, max(places-pairs, 0), pairs); n > bytes {
			events, bytes = places+pairs, n
		}
	}
	return events, bytes, nil
}

// coverSize returns the ring size in bytes, a power of two, that covers the time at
// twice the rate, in bytes a second of one CPU, and whether recorder.max_memory limits it.
func coverSize(r *config.Recorder, rate float64, cpus int) (size int, limited bool) {
	const most = 512 << 20 // maximum of recorder.size
	size = r.Size
	for flight.Covers(r.Backend, size, 2*rate) < r.Cover {
		if next := 2 * size; next > most || int64(next)*int64(cpus) > r.MaxMemory {
			// Without the safety factor it may still suffice.
			return size, flight.Covers(r.Backend, size, rate) < r.Cover
		}
		size *= 2
	}
	return size, false
}

// coverWarnAfter is how long the history must be too short before a warning.
const coverWarnAfter = time.Minute

// checkCover warns once if the event rate has outgrown recorder.cover.
func (d *daemon) checkCover(now time.Time) {
	r := &d.now.Load().Recorder
	if r.Cover == 0 || d.coverLogged {
		return
	}
	for _, c := range d.recorder.Coverage() {
		if covers := time.Duration(c.CoversAtRateNS); c.EventsPerSecond > 0 && covers < r.Cover {
			if d.coverShort.IsZero() {
				d.coverShort = now
			}
			if now.Sub(d.coverShort) >= coverWarnAfter {
				d.coverLogged = true
				d.log.Warn("the history is shorter than recorder.cover: the event rate has increased",
					zap.Int("cpu", c.CPU), zap.Float64("events_per_second", c.EventsPerSecond), zap.Duration("covers", covers),
					zap.Duration("cover", r.Cover), zap.String("to_change", "reload with another recorder.cover or restart tailcam to measure again, or raise recorder.size"))
			}
			return
		}
	}
	d.coverShort = time.Time{}
}
