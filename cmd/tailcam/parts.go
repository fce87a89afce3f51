package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// parts are what the verbs run and do not do themselves; wiring fills them in,
// tests fill in others.
type parts struct {
	// loadRules reads and validates rule files.
	loadRules func(paths []string) ([]rules.Rule, error)
	// checkLoad loads and attaches rules on this kernel, and takes them off again.
	checkLoad func(ctx context.Context, list []rules.Rule) error
	// probes lists the kernel hooks that tailcam uses.
	probes func() ([]tracker.Probe, error)
	// events lists what the recorder can record, measured for that long if it is not 0.
	events func(ctx context.Context, length time.Duration) ([]eventcost.Event, error)
	// daemon runs until the context ends.
	daemon func(ctx context.Context, cfg *config.Config, log *zap.Logger) error
	// demo provokes latencies and prints what was caught.
	demo func(ctx context.Context, c *cli) error
}
