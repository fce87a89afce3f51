package outbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/snapshot"
)

// packAll packs what waits.
func (o *Outbox) packAll(ctx context.Context) {
	for ctx.Err() == nil {
		o.mu.Lock()
		rescan := o.rescan && len(o.pending) == 0
		if rescan {
			o.rescan = false
		}
		var next pending
		if len(o.pending) > 0 {
			next, o.pending = o.pending[0], o.pending[1:]
		}
		o.mu.Unlock()
		switch {
		case next.id != "":
			o.packOne(ctx, next.id)
			next.done()
		case rescan:
			if err := o.find(ctx); err != nil {
				o.log.Warn("look for snapshots to send", zap.Error(err))
			}
		default:
			return
		}
	}
}

// find packs the snapshots of the store that are not known yet: those of before a crash,
// or of before uploads were configured.
func (o *Outbox) find(ctx context.Context) error {
	there, err := o.stored()
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(there)) { // the oldest first, by their clock
		if ctx.Err() != nil {
			return nil
		}
		o.packOne(ctx, id)
	}
	return nil
}

// countGone counts the snapshots of packs that were removed, as upload.redact has changed,
// which cannot be packed again. find packs the others.
func (o *Outbox) countGone(ids []string) {
	for _, id := range ids {
		if !exists(filepath.Join(o.opts.Snapshots, id)) {
			o.opts.Counts.lose(LostMissed, id)
			o.warn("snapshot not sent: it was removed before it was packed anew", zap.String("snapshot", id))
		}
	}
}

func (o *Outbox) stored() (map[string]bool, error) {
	entries, err := os.ReadDir(o.opts.Snapshots)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if id, err := snapshot.ParseID(e.Name()); err == nil && e.IsDir() && id.String() == e.Name() {
			there[e.Name()] = true
		}
	}
	return there, nil
}

func (o *Outbox) forget() error {
	there, err := o.stored()
	if err != nil {
		return err
	}
	return o.spool.Load().forget(there)
}

// packOne packs a snapshot that is not known. It is tried again if that fails.
func (o *Outbox) packOne(ctx context.Context, id string) {
	spool := o.spool.Load()
	if spool.known(id) {
		return
	}
	dir := filepath.Join(o.opts.Snapshots, id)
	dropped, err := spool.add(ctx, dir, id, limits{o.opts.Quota, o.free.Load()})
	if errors.Is(err, errNoRoom) {
		err = spool.mark(id)
		dropped = append(dropped, id)
	}
	if errors.Is(err, errNotRedacted) {
		o.opts.Counts.lose(LostRedaction, id)
		o.warn("snapshot not sent: it cannot be redacted", zap.String("snapshot", id), zap.Error(err))
		err = spool.mark(id)
	}
	for _, id := range dropped {
		o.opts.Counts.lose(LostQuota, id)
		o.warn("snapshot not sent: the spool is full", zap.String("snapshot", id))
	}
	switch {
	case err == nil:
		signal(o.more)
	case ctx.Err() != nil: // the next one finds it in the store
	case errors.Is(err, fs.ErrNotExist) && !exists(dir):
		o.opts.Counts.lose(LostMissed, id)
		o.warn("snapshot not sent: it was removed before it was packed", zap.String("snapshot", id))
	default:
		o.failed[id] = true
		o.warn("pack a snapshot for its upload", zap.String("snapshot", id), zap.Error(err), zap.Duration("retry", retryTime))
	}
}

// limitedWriter fails instead of filling a disk.
type limitedWriter struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (l *limitedWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > l.left {
		return 0, errNoRoom
	}
	n, err := l.w.Write(b)
	l.left -= int64(n)
	return n, err
}
