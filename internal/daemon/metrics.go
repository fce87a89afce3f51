package daemon

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/metrics"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
)

// listenMetrics listens for scrapes if metrics.listen is set.
func (d *daemon) listenMetrics() error { return d.serveMetrics(&d.cfg.Metrics) }

// serveMetrics answers scrapes as a configuration says, and no longer as the one before.
func (d *daemon) serveMetrics(c *config.Metrics) error {
	switch c.Listen {
	case "":
		return d.closeMetrics()
	case "unix:" + d.cfg.Socket.Path:
		return fmt.Errorf("metrics.listen is socket.path, %s: choose another path", d.cfg.Socket.Path)
	}
	if err := d.closeMetrics(); err != nil { // the new one may have the same port
		return err
	}
	server, err := metrics.Listen(&metrics.ListenOptions{
		Address: c.Listen, WebConfig: c.WebConfig, Group: d.cfg.Socket.Group, Log: d.log.Named("metrics"),
	})
	if err != nil {
		return err
	}
	d.scrapes = server
	d.metrics.replace(func(ctx context.Context) {
		d.log.Info("serving metrics", zap.String("address", server.Address()), zap.String("path", metrics.Path))
		if err := server.Serve(ctx, d.registry); err != nil { // no scrape ends the daemon
			d.log.Error("serve metrics", zap.Error(err))
		}
	})
	return nil
}

// closeMetrics ends scrapes in progress and stops listening.
func (d *daemon) closeMetrics() error {
	if d.scrapes == nil {
		return nil
	}
	d.metrics.replace(nil)
	server := d.scrapes
	d.scrapes = nil
	return server.Close()
}

// ActionStats implements metrics.Source.
func (d *daemon) ActionStats() action.Stats { return d.actions.Stats() }

// SnapshotStats implements metrics.Source.
func (d *daemon) SnapshotStats() snapshot.Stats {
	if d.manager == nil {
		return snapshot.Stats{}
	}
	return d.manager.Stats()
}

var _ metrics.Source = (*daemon)(nil)
