package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/internal/watchdog"
)

// A step of the start may take longer than TimeoutStartSec: systemd is asked every
// extendEvery for extendBy more, but not for longer than extendMost.
const (
	extendEvery = 10 * time.Second
	extendBy    = time.Minute
	extendMost  = 5 * time.Minute
)

// startStep is runStep with systemd told of it.
func (d *daemon) startStep(ctx context.Context, name string, do func() error) error {
	extend := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendBy.Microseconds())
	d.notify("STATUS=starting: "+name, extend)
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		tick := time.NewTicker(extendEvery)
		defer tick.Stop()
		for asked := extendEvery; asked <= extendMost; asked += extendEvery {
			select {
			case <-ended:
				return
			case <-tick.C:
				d.notify(fmt.Sprintf("STATUS=starting: %s (%s)", name, asked), extend)
			}
		}
	}()
	err := runStep(ctx, do)
	close(ended)
	<-told
	return err
}

// notifyReady tells systemd that the rules are loaded and attached, after the start or
// a reload.
func (d *daemon) notifyReady() {
	d.notify(sdnotify.SdNotifyReady, "STATUS="+d.statusLine(nil))
}

// notifyStopping tells systemd of the end. The watchdog gets its last message, which
// must do for the whole stop.
func (d *daemon) notifyStopping() {
	d.notify(sdnotify.SdNotifyStopping, "STATUS=stopping", sdnotify.SdNotifyWatchdog)
}

// notifyReloading tells systemd that a reload begins. Type=notify-reload (systemd 253+)
// compares the time with that of its signal; Type=notify ignores it.
func (d *daemon) notifyReloading() {
	d.notify(sdnotify.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", linux.Monotonic()/1000), "STATUS=reloading")
}

// notify sends a message of some assignments to systemd, if it started this process. It
// does not wait for systemd.
func (d *daemon) notify(assignments ...string) {
	select {
	case d.notices <- strings.Join(assignments, "\n"):
	default: // systemd has not read any for minutes
	}
}

// maxNotices is how many messages may wait for systemd.
const maxNotices = 64

// sendNotices sends messages in the background and returns a function that sends the
// last ones and ends that. It waits no longer than undoTime.
func (d *daemon) sendNotices() (finish func()) {
	send := func(text string) {
		if _, err := sdnotify.SdNotify(false, text); err != nil {
			d.log.Warn("cannot reach systemd", zap.Error(err))
		}
	}
	last, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case text := <-d.notices:
				send(text)
				continue
			default:
			}
			select {
			case text := <-d.notices:
				send(text)
			case <-last:
				return
			}
		}
	}()
	return func() {
		close(last)
		select {
		case <-sent:
		case <-time.After(undoTime):
		}
	}
}

// statusLine is the line of `systemctl status`: what works, what was found, and what
// does not work, with the parts of the daemon that do not get on.
func (d *daemon) statusLine(stuck []watchdog.Finding) string {
	var s []string
	inactive := len(d.kernel.Inactive())
	d.mu.Lock()
	list, reloaded := d.rules, d.reloaded
	d.mu.Unlock()
	rules := fmt.Sprintf("rules: %d watching", len(list)-inactive)
	if inactive > 0 {
		rules += fmt.Sprintf(" of %d", len(list))
	}
	if c := d.kernel.CallFunctions(); c.Attached+len(c.Failed) < c.Functions {
		rules += fmt.Sprintf(" (attaching to system calls: %d of %d)", c.Attached+len(c.Failed), c.Functions)
	}
	s = append(s, rules, "outliers: "+term.Count(d.tally.Outliers()))
	if shed := d.cost.shedParts(); len(shed) > 0 {
		s = append(s, "shed by the budget: "+strings.Join(shed, ", "))
	}
	for i := range stuck {
		s = append(s, stuckText(&stuck[i]))
	}
	if reloaded != nil && !reloaded.OK {
		s = append(s, fmt.Sprintf("errors of the last reload: %d, see tailcam status", len(reloadProblems(reloaded))))
	}
	return text.Clean(strings.Join(s, "; ")) // paths may have newlines
}
