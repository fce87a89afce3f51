package daemon

import (
	"fmt"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/linux"
)

// notifyReloading tells systemd that a reload begins. Type=notify-reload (systemd 253+)
// compares the time with that of its signal; Type=notify ignores it.
func (d *daemon) notifyReloading() {
	d.notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sdnotify.SdNotifyReloading, linux.Monotonic()/1000))
}

// notifyReloaded tells systemd that the reload has ended, and how.
func (d *daemon) notifyReloaded(out *api.Reload) {
	status := "watching"
	if n := len(reloadProblems(out)); n > 0 {
		status = fmt.Sprintf("watching; the last reload had %d errors: see tailcam status", n)
	}
	d.notify(sdnotify.SdNotifyReady + "\nSTATUS=" + status)
}

// notify sends a message to systemd, if it started this process.
func (d *daemon) notify(message string) {
	if _, err := sdnotify.SdNotify(false, message); err != nil {
		d.log.Warn("cannot tell systemd of the reload", zap.Error(err))
	}
}
