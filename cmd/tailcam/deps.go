package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/daemon"
	"github.com/tailcam/tailcam/internal/demo"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/internal/logs"
	"github.com/tailcam/tailcam/internal/pagecache"
	"github.com/tailcam/tailcam/internal/record"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// deps are the parts of tailcam that commands run. Tests replace them.
type deps struct {
	// stdin is read where a command is given "-" for a file.
	stdin io.Reader
	// loadRules reads and validates rule files.
	loadRules func(paths []string) ([]rules.Rule, error)
	// checkLoad loads and attaches rules on this kernel, then detaches them. Notes
	// say which rules may be left out, and are.
	checkLoad func(ctx context.Context, list []rules.Rule) (notes []string, err error)
	// checkActivities loads the kernel side of accounts with these groups, and takes it away.
	checkActivities func(groups []string) error
	// probes lists the kernel hooks that tailcam uses.
	probes func() ([]tracker.Probe, error)
	// events lists what the recorder can record, measured for length unless it is 0.
	events func(ctx context.Context, length time.Duration) ([]eventcost.Event, error)
	// accounts lists what accounts of activities hold, measured for length unless it is 0.
	accounts func(ctx context.Context, length time.Duration) ([]accounts.Group, error)
	// relaxTimers, unless nil, executes this program anew (linux.RelaxTimers) or returns.
	relaxTimers func() error
	// daemon runs until the context ends.
	daemon func(ctx context.Context, cfg *config.Config, l *logs.Logs) error
	// demo provokes latencies and prints what was caught.
	demo func(ctx context.Context, c *cli) error
	// record watches while a command runs.
	record func(ctx context.Context, o *record.Options) (*record.Report, error)
	// cache counts what happens to the page cache.
	cache func(ctx context.Context, f *cacheFlags, daemon *api.Client) (*pagecache.Report, error)
}

// newDeps returns the real ones.
func newDeps() deps {
	return deps{
		stdin: os.Stdin,
		loadRules: func(paths []string) ([]rules.Rule, error) {
			return rules.Load(paths, &rules.LocalMachine{})
		},
		checkLoad:       daemon.CheckLoad,
		checkActivities: daemon.CheckActivities,
		probes:          tracker.Probes,
		events: func(ctx context.Context, length time.Duration) ([]eventcost.Event, error) {
			if length == 0 {
				return eventcost.List()
			}
			return eventcost.Measure(ctx, length)
		},
		accounts: func(ctx context.Context, length time.Duration) ([]accounts.Group, error) {
			if length == 0 {
				return accounts.List()
			}
			return accounts.Measure(ctx, length)
		},
		daemon: daemon.Run,
		demo: func(ctx context.Context, c *cli) error {
			o := demo.Options{Out: c.out, Err: c.err, Dir: c.demoDir}
			if c.wantsData() {
				o.Print = func(r *demo.Result) error { return c.printData(r) }
			}
			return demo.Run(ctx, o)
		},
		record: record.Run,
		cache:  countCache,
	}
}
