package outbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/internal/redacted"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// errNotRedacted means that a snapshot cannot be redacted, now or later.
var errNotRedacted = errors.New("it cannot be redacted")

// redaction is what becomes of names in packs. It is part of their file names, here and at
// the target, so that a file is never taken for one with other names in it.
type redaction struct {
	kinds []redact.Kind // nil: nothing is replaced
	tag   string        // of file names; empty: nothing is replaced
	guard *guard.Guard  // nil: panics are only recovered
}

func newRedaction(kinds []redact.Kind, g *guard.Guard) *redaction {
	r := &redaction{kinds: kinds, guard: g}
	has := func(k redact.Kind) bool { return slices.Contains(kinds, k) }
	switch {
	case kinds == nil:
	case !slices.ContainsFunc(redact.Kinds, func(k redact.Kind) bool { return !has(k) }):
		r.tag = "all"
	case !slices.ContainsFunc(redact.Kinds, func(k redact.Kind) bool { return has(k) != slices.Contains(redact.Usual, k) }):
		r.tag = "usual"
	default:
		for _, k := range redact.Kinds { // in one order, whatever that of kinds
			if has(k) {
				r.tag = strings.TrimPrefix(r.tag+"-"+string(k), "-")
			}
		}
	}
	return r
}

// tagMark begins the tag in a file name. No id has it.
const tagMark = ".redacted-"

// fileName is that of a snapshot's pack.
func (r *redaction) fileName(id string) string {
	if r.tag == "" {
		return id + pack.Ext
	}
	return id + tagMark + r.tag + pack.Ext
}

// idOf returns the snapshot of a pack's file name; false: it is none, or of another redaction.
func (r *redaction) idOf(name string) (string, bool) {
	id, tag, ok := split(name)
	return id, ok && tag == r.tag
}

// split returns what a pack's file name says.
func split(name string) (id, tag string, ok bool) {
	id, ok = strings.CutSuffix(name, pack.Ext)
	id, tag, _ = strings.Cut(id, tagMark)
	parsed, err := snapshot.ParseID(id)
	return id, tag, ok && err == nil && parsed.String() == id
}

// removeOthers removes packs of another redaction. Their snapshots are packed again.
func (s *spool) removeOthers() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, queueDir))
	for _, e := range entries {
		id, tag, ok := split(e.Name())
		if !ok || tag == s.redact.tag {
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, queueDir, e.Name())))
		s.before = append(s.before, id)
	}
	return err
}

// slack is by how much a redacted trace may be larger, and what its other files need, in bytes.
const slack = 1 << 20

// room is an upper bound of what a redacted copy of a snapshot needs besides its pack.
func (r *redaction) room(dir string, raw int64) (int64, error) {
	if r.tag == "" {
		return 0, nil
	}
	at, err := snapshot.TracePath(dir)
	if err != nil {
		return 0, r.failed(dir, err)
	}
	plain, err := trace.PlainBytes(at)
	if err != nil {
		return 0, r.failed(dir, err)
	}
	return raw + plain + plain/8 + slack, nil
}

// copy makes a redacted copy of a snapshot below a directory, and returns that of the copy,
// which remove removes. Without redaction, it is the snapshot itself.
func (r *redaction) copy(ctx context.Context, dir, below string) (to string, s *redact.Summary, remove func(), err error) {
	if r.tag == "" {
		return dir, nil, func() {}, nil
	}
	into, err := os.MkdirTemp(below, "redacted-")
	if err != nil {
		return "", nil, nil, err
	}
	remove = func() { _ = os.RemoveAll(into) } // else openSpool does
	to = filepath.Join(into, filepath.Base(dir))
	err = r.guard.Mapped(guard.Upload, func() error {
		s, err = redacted.Copy(ctx, to, dir, r.kinds)
		return err
	})
	if err == nil && s == nil {
		err = errors.New("nothing says what was replaced")
	}
	if err != nil {
		remove()
		if ctx.Err() != nil {
			return "", nil, nil, ctx.Err()
		}
		return "", nil, nil, r.failed(dir, err)
	}
	return to, s, remove, nil
}

// failed tells what can be tried again, such as a full disk or a snapshot that is gone, from
// what cannot: a trace that is damaged, or a file that is none of ours.
func (r *redaction) failed(dir string, err error) error {
	var e syscall.Errno
	switch {
	case !exists(dir):
		return fmt.Errorf("redact: %w", fs.ErrNotExist)
	case errors.As(err, &e) && e != syscall.ENOENT:
		return err
	}
	return fmt.Errorf("%w: %w", errNotRedacted, err)
}
