package daemon

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/metrics"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
)

// listenMetrics listens for scrapes if metrics.listen is set.
func (d *daemon) listenMetrics() (err error) {
	c := &d.cfg.Metrics
	switch c.Listen {
	case "":
		return nil
	case "unix:" + d.cfg.Socket.Path:
		return fmt.Errorf("metrics.listen is socket.path, %s: choose another path", d.cfg.Socket.Path)
	}
	d.scrapes, err = metrics.Listen(&metrics.ListenOptions{
		Address: c.Listen, WebConfig: c.WebConfig, Group: d.cfg.Socket.Group, Log: d.log.Named("metrics"),
	})
	return err
}

func (d *daemon) closeMetrics() error {
	if d.scrapes == nil {
		return nil
	}
	return d.scrapes.Close()
}

// serveMetrics answers scrapes. It ends only with ctx: no scrape ends the daemon.
func (d *daemon) serveMetrics(ctx context.Context) error {
	d.log.Info("serving metrics", zap.String("address", d.scrapes.Address()), zap.String("path", metrics.Path))
	return d.scrapes.Serve(ctx, d.registry)
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
