package daemon

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/pins"
)

// openPins opens what keeps the kernel side if this process dies. That it cannot be used
// is no reason not to work. It comes before any other process is started, which would
// inherit what systemd has kept.
func (d *daemon) openPins() error {
	store, err := openPinStore(d.cfg)
	if err == nil {
		d.pins = store
		return nil
	}
	d.pinError = err.Error()
	level := zap.WarnLevel
	if errors.Is(err, errPerf) {
		level = zap.InfoLevel
	}
	d.log.Log(level, "nothing is pinned: history and pending work end with this process", zap.Error(err))
	return nil
}

var errPerf = errors.New("rings of recorder.backend: perf cannot be pinned: use mmap")

// openPinStore opens the store that the configuration names; nil: none.
func openPinStore(cfg *config.Config) (pins.Store, error) {
	perf := cfg.Recorder.Enabled && cfg.Recorder.Backend != flight.BackendMmap
	offered := pins.Offered()
	if cfg.Pin == config.PinAuto && offered && !perf {
		return pins.OpenSystemd()
	}
	if offered { // it may have what a daemon with another configuration has left
		if err := dropKept(); err != nil {
			return nil, err
		}
	}
	switch {
	case cfg.Pin == config.PinOff || cfg.Pin == config.PinAuto && !offered:
		return nil, nil //nolint:nilnil // nobody wants one
	case perf:
		return nil, errPerf
	default:
		return pins.OpenDir(cfg.Pin)
	}
}

func dropKept() error {
	store, err := pins.OpenSystemd()
	if err != nil {
		return err
	}
	return errors.Join(pins.Clear(store), store.Close())
}

func (d *daemon) closePins() error {
	if d.pins == nil {
		return nil
	}
	return d.pins.Close()
}

// logTakeover tells how the kernel side came about, if there was another daemon before.
func (d *daemon) logTakeover() {
	t := d.kernel.Takeover()
	switch d.notePinError(); {
	case d.kernel.PinError() != nil:
	case t.Taken:
		d.log.Info("took over the kernel side of the daemon before: history, pending work and counters go on",
			zap.String("of", t.Version), zap.Duration("gap", t.Gap), zap.Uint64("lost_in_gap", t.Lost))
		if t.Programs != "" {
			d.log.Info("the programs of this daemon have taken the place of those before", zap.String("reason", t.Programs), zap.Strings("begun_anew", t.Begun))
		}
	case t.Reason != "":
		d.log.Warn("loaded the kernel side anew: history and pending work of the daemon before are lost",
			zap.String("of", t.Version), zap.String("reason", t.Reason))
	}
}

// notePinError logs once why nothing is pinned any more: also a reload may find that out.
func (d *daemon) notePinError() {
	if err := d.kernel.PinError(); err != nil && !d.unpinLogged {
		d.unpinLogged = true
		d.log.Warn("nothing is pinned: history and pending work end with this process", zap.Error(err))
	}
}

// leaveKernel decides, at the end, whether the kernel side is left to the next daemon. A
// stop that was asked for leaves nothing, unless it is half of a restart.
func (d *daemon) leaveKernel(cause error) {
	leave := !errors.Is(cause, context.Canceled)
	if !leave && d.pins != nil && d.kernel.Pinned() {
		var err error
		if leave, err = d.pins.Lasting(); err != nil {
			d.log.Warn("this stop may be half of a restart", zap.Error(err))
		}
		if leave {
			d.log.Info("the kernel side is left to the next daemon")
		}
	}
	d.kernel.Leave(leave)
}

// noteGap logs once what was found in the ring buffer of a kernel side that was taken
// over, when all of it is read.
func (d *daemon) noteGap() {
	if d.gapLogged || !d.kernel.Takeover().Taken || d.kernel.Reading().Unread > 0 {
		return
	}
	d.gapLogged = true
	if n := d.kernel.Inherited(); n > 0 {
		d.log.Info("read the outliers that nobody had read", zap.Uint64("outliers", n))
	}
}

// pinStatus is what is pinned, and what was taken over; nil: nothing is.
func (d *daemon) pinStatus() *api.PinStatus {
	if d.pins == nil && d.pinError == "" {
		return nil
	}
	t := d.kernel.Takeover()
	s := &api.PinStatus{Error: d.pinError, Reason: t.Reason, TakenOver: t.Taken, From: t.Version}
	switch err := d.kernel.PinError(); {
	case err != nil:
		s.Error = err.Error()
	case d.kernel.Pinned():
		s.Where = d.pins.String()
	}
	if t.Taken {
		s.GapNS, s.Unread, s.Lost = t.Gap.Nanoseconds(), d.kernel.Inherited(), t.Lost
		s.Programs, s.Begun = t.Programs, t.Begun
	}
	return s
}

// ringReason is what the size of the rings is measured for; empty: it is as configured.
func ringReason(r *config.Recorder) (string, error) {
	if !r.Enabled || r.Cover == 0 {
		return "", nil
	}
	cpus, err := tracker.PresentCPUs()
	return fmt.Sprint(r.Size, r.Cover, r.MaxMemory, r.Events, r.IRQFloor, cpus), err
}
