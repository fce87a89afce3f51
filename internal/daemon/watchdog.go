package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/internal/watchdog"
)

// Without WatchdogSec= of systemd, parts are checked every checkEvery, and what hangs is
// only told. With it, they are checked checksPerWatchdog times within it.
const (
	checkEvery        = 5 * time.Second
	checksPerWatchdog = 6
	// reloadMost is how long a reload excuses what waits for it.
	reloadMost = 5 * time.Minute
)

// watchForHangs checks the daemon's parts. While all get on, it tells systemd, which
// restarts a daemon that has not told it for WatchdogSec=.
func (d *daemon) watchForHangs(ctx context.Context) error {
	limit, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("systemd does not watch this daemon", zap.Error(err))
	}
	every := checkEvery
	if limit > 0 {
		every = max(limit/checksPerWatchdog, 100*time.Millisecond)
	}
	h := &hangs{limit: limit, every: every, log: d.log, dog: watchdog.New(d.parts())}
	for {
		_ = d.survive(guard.Housekeeping, func() error { // a panic costs one message
			stuck, well := h.check()
			if well && limit > 0 {
				d.notify(sdnotify.SdNotifyWatchdog)
			}
			d.notify("STATUS=" + d.statusLine(stuck))
			return nil
		})
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(every):
		}
	}
}

// parts are those without which nothing is reported, nothing is saved, or nothing
// bounds the cost.
func (d *daemon) parts() []watchdog.Part {
	parts := []watchdog.Part{
		{Name: "kernel tick", State: d.tickState},
		{Name: "outlier reader", State: d.readerState},
		{Name: "housekeeping", State: func() watchdog.State { return d.loop(&d.housekeeper) }},
		{Name: "budget", State: func() watchdog.State { return d.loop(&d.budgeter) }},
		{Name: "explainer", State: d.explaining.state},
	}
	if d.manager == nil {
		return parts
	}
	return append(parts,
		watchdog.Part{Name: "recorder reader", State: func() watchdog.State {
			return watchdog.State{Done: d.manager.Progress().Turns, Work: "the recorder is checked every few seconds"}
		}},
		watchdog.Part{Name: "snapshot writer", State: d.writerState})
}

// tickState: the kernel side looks for work that is too old, at any timer that expires; the
// daemon's own do each second.
func (d *daemon) tickState() watchdog.State {
	s, err := d.kernel.Tick()
	if err != nil {
		return watchdog.State{Work: err.Error()}
	}
	// Without timeouts there is none, and one that never came comes no sooner after a restart.
	return watchdog.State{Done: s.Ticks, Idle: s.Ticks == 0, Work: "pending work is checked each second, or more often"}
}

func (d *daemon) readerState() watchdog.State {
	r := d.kernel.Reading()
	return watchdog.State{
		Done: r.Samples, Idle: r.Waiting && r.Unread == 0,
		Work: fmt.Sprintf("%d bytes wait in the ring buffer", r.Unread),
	}
}

func (d *daemon) writerState() watchdog.State {
	p := d.manager.Progress()
	s := watchdog.State{Done: p.Steps, Idle: p.Writing == "", Work: p.Writing}
	switch {
	case p.Disk != "":
		s.Waits = "the disk of the snapshots: " + p.Disk
	case p.Explaining:
		s.Waits = "the explainer"
	}
	return s
}

// loop is the state of a loop that may wait for a reload.
func (d *daemon) loop(l *loopState) watchdog.State {
	s := watchdog.State{Done: l.turns.Load(), Idle: !l.busy.Load(), Work: "a turn of its loop"}
	if since := d.reloadSince.Load(); since != 0 && time.Since(d.start)-time.Duration(since) < reloadMost {
		s.Waits = "a reload"
	}
	return s
}

// loopState counts the turns of a periodic loop.
type loopState struct {
	turns atomic.Uint64
	busy  atomic.Bool
}

// do runs a turn.
func (l *loopState) do(turn func() error) error {
	l.busy.Store(true)
	defer func() {
		l.busy.Store(false)
		l.turns.Add(1)
	}()
	return turn()
}

// hangs tells the log what the watchdog finds.
type hangs struct {
	limit, every time.Duration // limit 0: systemd does not watch
	log          *zap.Logger
	dog          *watchdog.Watchdog
	told         map[string]bool // hung, by part
}

// check returns the parts that do not get on, and whether none of them hangs.
func (h *hangs) check() (stuck []watchdog.Finding, well bool) {
	hung, waits := h.dog.Check()
	now := map[string]bool{}
	for i := range hung {
		f := &hung[i]
		now[f.Part] = true
		if h.told[f.Part] && h.limit == 0 {
			continue
		}
		fields := []zap.Field{zap.String("part", f.Part), zap.String("work", f.Work), zap.Duration("for", h.since(f))}
		advice := "restart tailcam, and please report this"
		if h.limit > 0 { // each time, so that the last line of a killed daemon has it
			advice = fmt.Sprintf("systemd restarts tailcam unless this ends within %s", h.limit)
		}
		h.log.Error(f.Part+" hangs", append(fields, zap.String("advice", advice))...)
	}
	for part := range h.told {
		if !now[part] {
			h.log.Warn(part+" works again", zap.String("part", part))
		}
	}
	h.told = now
	return append(hung, waits...), len(hung) == 0
}

// since is how long a part has made no progress, to the precision of the checks.
func (h *hangs) since(f *watchdog.Finding) time.Duration {
	return (time.Duration(f.Checks) * h.every).Round(time.Second)
}

// stuckText is a part that does not get on, in the line of `systemctl status`.
func stuckText(f *watchdog.Finding) string {
	if f.Waits != "" {
		return f.Part + " waits for " + f.Waits
	}
	return fmt.Sprintf("%s hangs (%s)", f.Part, f.Work)
}
