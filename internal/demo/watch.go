package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/private"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// How long the demo waits for its daemon.
const (
	outlierTimeout  = 10 * time.Second
	snapshotTimeout = 20 * time.Second
	poll            = 20 * time.Millisecond
)

// watch is the demo's daemon, and its outliers.
type watch struct {
	daemon   *private.Daemon
	ending   chan struct{}        // closed by stop
	outliers chan *events.Outlier // closed at the end of the stream
}

// startWatch returns when the daemon is attached and no outlier will be missed.
func startWatch(ctx context.Context, cfg *config.Config, log *private.Tail) (*watch, error) {
	d, stream, err := private.Start(ctx, cfg, log, &api.EventsOptions{Follow: true})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	w := &watch{daemon: d, ending: make(chan struct{}), outliers: make(chan *events.Outlier, 256)}
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
			case <-w.ending:
				return
			}
		}
	}()
	return w, nil
}

// stop ends the daemon and waits until everything is detached.
func (w *watch) stop() error {
	close(w.ending)
	if err := w.daemon.Stop(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// stopped reports whether the daemon has returned.
func (w *watch) stopped() bool {
	select {
	case <-w.daemon.Ended():
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
