package daemon

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/metrics"
	"github.com/tailcam/tailcam/internal/trigger"
)

// listenAlerts listens for Alertmanager's webhook if alerts.listen is set.
func (d *daemon) listenAlerts() error { return d.serveAlerts(&d.cfg.Alerts) }

// serveAlerts takes alerts as a configuration says, and no longer as the one before.
func (d *daemon) serveAlerts(c *config.Alerts) error {
	switch c.Listen {
	case "":
		return d.closeAlerts()
	case "unix:" + d.cfg.Socket.Path:
		return fmt.Errorf("alerts.listen is socket.path, %s: leave it empty, as that takes alerts anyway", d.cfg.Socket.Path)
	}
	if err := d.closeAlerts(); err != nil { // the new one may have the same port
		return err
	}
	log := d.log.Named("alerts")
	server, err := metrics.Listen(&metrics.ListenOptions{
		Key: "alerts", Address: c.Listen, WebConfig: c.WebConfig, Group: d.cfg.Socket.Group, Log: log,
	})
	if err != nil {
		return err
	}
	d.webhook = server
	d.alerts.replace(func(ctx context.Context) {
		d.log.Info("taking alerts", zap.String("address", server.Address()), zap.String("path", api.AlertsPath))
		handler := api.AlertHandler(d, &api.ServeOptions{Log: log, Guard: d.guard})
		if err := server.ServeHandler(ctx, handler); err != nil { // no alert ends the daemon
			d.log.Error("take alerts", zap.Error(err))
		}
	})
	return nil
}

// closeAlerts ends requests in progress and stops listening.
func (d *daemon) closeAlerts() error {
	if d.webhook == nil {
		return nil
	}
	d.alerts.replace(nil)
	server := d.webhook
	d.webhook = nil
	return server.Close()
}

// Alert implements api.Backend.
func (d *daemon) Alert(a *api.Alert) (wanted, fired int) {
	return d.triggers.Alert(&trigger.Alert{
		Fingerprint: a.Fingerprint, StartsAt: a.StartsAt, Labels: a.Labels, Summary: a.Annotations["summary"],
	})
}
