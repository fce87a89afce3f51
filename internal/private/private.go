// Package private runs a daemon inside this process, beside any other: with a socket,
// a store and rings of its own, and nothing pinned. `tailcam demo` and `tailcam record`
// are made of it.
package private

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/daemon"
	"github.com/tailcam/tailcam/internal/logs"
)

const (
	startTimeout = time.Minute // to load and attach; slow on emulated CPUs
	poll         = 20 * time.Millisecond
	// minFree is what snapshots leave of a file system, which may be a small one in memory.
	minFree = 64 << 20
)

var errStartTimeout = fmt.Errorf("the daemon was not ready within %v", startTimeout)

// Config is the configuration of a private daemon whose socket lies in the directory work.
// It reads no file, variable or flag: what these ask for, such as uploads and metrics, is
// the business of the daemon that runs all day.
func Config(work string) config.Config {
	cfg := config.Default()
	cfg.Socket.Path = filepath.Join(work, "tailcam.sock")
	cfg.Hidden = true
	cfg.Pin = config.PinOff
	cfg.Snapshots.MinFree = minFree
	cfg.Recorder.Size = ringSize(runtime.NumCPU())
	cfg.Recorder.Cover = 0 // nothing to measure: it needs some seconds, and ringSize is enough
	cfg.Budget.CPU = 0     // it runs for a while, under the load that it is to watch
	return cfg
}

// ringSize spends at most 64 MiB on the rings of all CPUs, but no less than
// the daemon does by default.
func ringSize(cpus int) int {
	size := 4 << 20
	for size > 2<<20 && size*cpus > 64<<20 {
		size /= 2
	}
	return size
}

// Daemon is a daemon in this process, seen through its socket as any client does.
type Daemon struct {
	Client *api.Client
	cancel context.CancelFunc
	ended  chan struct{} // closed when the daemon has returned
	err    error         // what it returned, after ended
}

// Start starts a daemon and returns when it has attached, with a stream that misses no
// outlier from then on. The caller closes the stream, and stops the daemon. ctx bounds the
// start alone.
func Start(ctx context.Context, cfg *config.Config, log *Tail, events *api.EventsOptions) (*Daemon, *api.EventStream, error) {
	// What systemd offers a service is not for this daemon.
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, nil, fmt.Errorf("unset %s: %w", name, err)
		}
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &Daemon{Client: api.NewClient(cfg.Socket.Path), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		d.err = daemon.Run(running, cfg, logs.Quiet(log.Logger()))
	}()
	stream, err := d.subscribe(ctx, running, events)
	if err != nil {
		if e := d.Stop(); e != nil {
			err = e // the reason, not its consequence
		}
		return nil, nil, err
	}
	return d, stream, nil
}

// subscribe waits for the daemon's answer: it serves when all is attached.
func (d *Daemon) subscribe(ctx, running context.Context, o *api.EventsOptions) (*api.EventStream, error) {
	opening, give := context.WithCancelCause(running) // the stream lives as long
	late := time.AfterFunc(startTimeout, func() { give(errStartTimeout) })
	defer late.Stop()
	defer context.AfterFunc(ctx, func() { give(context.Cause(ctx)) })()
	for {
		stream, err := d.Client.Events(opening, o)
		if err == nil {
			return stream, nil
		}
		select {
		case <-d.ended:
			return nil, err
		case <-opening.Done():
			return nil, context.Cause(opening)
		case <-time.After(poll):
		}
	}
}

// Stop ends the daemon and waits until everything is detached. Its error is that of the
// daemon, and nil if it had none. It may be called more than once.
func (d *Daemon) Stop() error {
	d.cancel()
	<-d.ended
	d.Client.Close()
	if d.err == nil || errors.Is(d.err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("the daemon failed: %w", d.err)
}

// Ended is closed when the daemon has returned.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }
