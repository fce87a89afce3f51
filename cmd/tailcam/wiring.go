package main

import (
	"context"
	"time"

	"github.com/tailcam/tailcam/internal/daemon"
	"github.com/tailcam/tailcam/internal/demo"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// wiring names what each part of the command line runs.
func wiring() parts {
	return parts{
		loadRules: func(paths []string) ([]rules.Rule, error) {
			return rules.Load(paths, &rules.LocalHost{})
		},
		checkLoad: daemon.CheckLoad,
		probes:    tracker.Probes,
		events: func(ctx context.Context, length time.Duration) ([]eventcost.Event, error) {
			if length == 0 {
				return eventcost.List()
			}
			return eventcost.Measure(ctx, length)
		},
		daemon: daemon.Run,
		demo: func(ctx context.Context, c *cli) error {
			return demo.Run(ctx, demo.Options{Out: c.out, Err: c.err, JSON: c.output == jsonOutput, Dir: c.demoDir})
		},
	}
}
