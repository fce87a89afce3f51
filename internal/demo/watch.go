package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/daemon"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/logs"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// How long the demo waits for its daemon.
const (
	startTimeout    = time.Minute // to load and attach; slow on emulated CPUs
	outlierTimeout  = 10 * time.Second
	snapshotTimeout = 20 * time.Second
	poll            = 20 * time.Millisecond
)

// watch is a daemon in this process, seen through its socket as any client does.
type watch struct {
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the daemon has returned
	err      error         // what it returned, after ended
	client   *api.Client
	outliers chan *events.Outlier // closed at the end of the stream
}

var errStartTimeout = fmt.Errorf("the daemon was not ready within %v", startTimeout)

// startWatch returns when the daemon is attached and no outlier will be missed.
func startWatch(ctx context.Context, cfg *config.Config, log *zap.Logger) (*watch, error) {
	running, cancel := context.WithCancel(ctx)
	w := &watch{
		cancel: cancel, ended: make(chan struct{}),
		client: api.NewClient(cfg.Socket.Path), outliers: make(chan *events.Outlier, 256),
	}
	go func() {
		defer close(w.ended)
		w.err = daemon.Run(running, cfg, logs.Quiet(log))
	}()
	stream, err := w.subscribe(running)
	if err != nil {
		if e := w.stop(); e != nil {
			err = e // the reason, not its consequence
		}
		return nil, err
	}
	go func() {
		defer close(w.outliers)
		defer stream.Close() //nolint:errcheck // only read
		for {
			e, err := stream.Next()
			if err != nil {
				return
			}
			if e.Outlier == nil || e.Outlier.Partial {
				continue // it comes again, complete
			}
			select {
			case w.outliers <- e.Outlier:
			case <-running.Done():
				return
			}
		}
	}()
	return w, nil
}

// subscribe waits for the daemon's answer: it serves when all is attached.
func (w *watch) subscribe(ctx context.Context) (*api.EventStream, error) {
	ctx, give := context.WithCancelCause(ctx)
	late := time.AfterFunc(startTimeout, func() { give(errStartTimeout) })
	defer late.Stop()
	for {
		stream, err := w.client.Events(ctx, &api.EventsOptions{Follow: true})
		if err == nil {
			return stream, nil
		}
		select {
		case <-w.ended:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// stop ends the daemon and waits until everything is detached. Its error is
// that of the daemon, and nil after an interruption.
func (w *watch) stop() error {
	w.cancel()
	<-w.ended
	w.client.Close()
	if w.err == nil || errors.Is(w.err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("demo: the daemon failed: %w", w.err)
}

// stopped reports whether the daemon has returned.
func (w *watch) stopped() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// await returns the outlier of an injected latency.
func (w *watch) await(ctx context.Context, truth *inject.Truth) (*events.Outlier, error) {
	timer := time.NewTimer(outlierTimeout)
	defer timer.Stop()
	others := 0
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, fmt.Errorf("no outlier of %s[%d] was reported within %v (%d others were)",
				truth.Comm, truth.TID, outlierTimeout, others)
		case o, ok := <-w.outliers:
			if !ok {
				return nil, errors.New("the daemon ended before it reported an outlier")
			}
			if belongs(o, truth) {
				return o, nil
			}
			others++
		}
	}
}

// belongs reports whether an outlier is of that task and overlaps that time.
func belongs(o *events.Outlier, truth *inject.Truth) bool {
	return o.Track == truth.Track && o.Task.TID == truth.TID &&
		o.StartMono <= truth.EndMono && o.EndMono >= truth.StartMono
}

// written waits until a snapshot's directory has its final name.
func (w *watch) written(ctx context.Context, dir string) error {
	deadline := time.Now().Add(snapshotTimeout)
	for {
		_, err := os.Stat(filepath.Join(dir, snapshot.MetaFile))
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wait for the snapshot: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("snapshot %s was not written within %v", filepath.Base(dir), snapshotTimeout)
		}
		if w.stopped() {
			return errors.New("the daemon ended before it wrote the snapshot")
		}
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
}
