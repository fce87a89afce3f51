// Command tailcam is a dashcam for Linux tail latency. This package is its
// command line: one small file per command; deps.go names what they run.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/outbox"
	"github.com/tailcam/tailcam/snapshot/action"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == inject.Verb {
		os.Exit(inject.Main(os.Args[2:])) // a child of `tailcam demo`
	}
	if len(os.Args) > 1 && os.Args[1] == helper.Verb {
		os.Exit(helper.Main(os.Args[2:])) // started by the daemon
	}
	if len(os.Args) > 1 && os.Args[1] == action.Verb {
		os.Exit(action.Supervise(os.Args[2:])) // a child of `tailcam run`
	}
	if len(os.Args) > 1 && os.Args[1] == outbox.Verb {
		os.Exit(outbox.Main()) // started by the daemon
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	real := newDeps()
	real.relaxTimers = linux.RelaxTimers
	os.Exit(execute(ctx, newCLI(os.Stdout, os.Stderr, real), os.Args[1:]))
}
