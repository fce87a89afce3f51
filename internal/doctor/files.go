package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
)

func checkConfig(_ context.Context, o *Options, f facts) (facts, []Result) {
	cfg, err := o.Config()
	if err != nil {
		return f, mistakes(err, "the daemon does not start, or keeps what it has", "correct it, then: tailcam check")
	}
	f.cfg = &cfg
	if f.socket == "" {
		f.socket = cfg.Socket.Path
	}
	what := "the defaults: there is no " + config.DefaultFile
	if len(cfg.Files) > 0 {
		what = strings.Join(cfg.Files, ", ")
	}
	return f, []Result{pass(what)}
}

func checkRules(_ context.Context, o *Options, f facts) (facts, []Result) {
	if f.cfg == nil {
		return f, nil
	}
	list, err := o.LoadRules(f.cfg.Rules)
	if err != nil {
		return f, mistakes(err, "the daemon does not start, or keeps the earlier rules of the file",
			"correct it, then: tailcam check")
	}
	f.rules = list
	return f, []Result{pass(fmt.Sprintf("%d valid in %s", len(list), strings.Join(f.cfg.Rules, ", ")))}
}

// mistakes is a result for each error of files.
func mistakes(err error, why, do string) []Result {
	list, ok := errors.AsType[rules.Errors](err)
	if !ok {
		return []Result{fail(err.Error(), why, do)}
	}
	var results []Result
	for _, e := range list {
		results = append(results, fail(e.Error(), why, do))
	}
	return results
}

// checkSnapshots looks whether snapshots can be written.
func checkSnapshots(_ *Options, f facts) []Result {
	switch {
	case f.daemon != nil:
		return append(retention(&f.daemon.Snapshots), snapshotDir(f.daemon.Snapshots.Dir, f.daemon.Snapshots.DirID, f)...)
	case f.cfg != nil:
		return snapshotDir(f.cfg.Snapshots.Dir, "", f)
	}
	return nil
}

// snapshotDir checks a directory, or the one above that it will be made in. id: as the
// daemon sees it.
func snapshotDir(dir, id string, f facts) []Result {
	if id != "" && api.DirID(dir) != id {
		return []Result{pass("the daemon's directory "+dir+" is not visible from here",
			"it runs in a container, or this user may not see it")}
	}
	at := dir
	for _, err := os.Stat(at); errors.Is(err, os.ErrNotExist) && at != "/"; _, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	info, err := os.Stat(at)
	switch {
	case err != nil:
		return []Result{warn("cannot look at "+at+": "+err.Error(), "", "sudo tailcam doctor")}
	case !info.IsDir():
		return []Result{fail(at+" is not a directory", "no snapshot can be written", "set snapshots.dir")}
	}
	if f.privileged {
		if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
			return []Result{fail(at+" cannot be written: "+err.Error(),
				"no snapshot can be written", "set snapshots.dir, or remount it: mount -o remount,rw")}
		}
	}
	least := uint64(0)
	if f.cfg != nil {
		least = uint64(f.cfg.Snapshots.MinFree)
	}
	if err := snapshot.CheckSpace(at, least, 0); err != nil {
		return []Result{fail(err.Error(),
			"no snapshot can be written", "tailcam snapshots prune --keep-count 20, or lower snapshots.min_free")}
	}
	what := dir
	if at != dir {
		what += " will be made"
	}
	var fs unix.Statfs_t
	if unix.Statfs(at, &fs) == nil {
		what += fmt.Sprintf(", %s and %s inodes free", term.Bytes(fs.Bavail*uint64(fs.Bsize)), term.Count(fs.Ffree))
	}
	return []Result{pass(what)}
}

// retention tells how full the store is.
func retention(s *api.SnapshotsStatus) []Result {
	var list []Result
	if s.Failed > 0 {
		list = append(list, warn(fmt.Sprintf("%d snapshots could not be taken", s.Failed),
			"the history before these outliers is lost", "journalctl -u tailcam -p warning"))
	}
	if s.Keep == nil {
		return list
	}
	what := fmt.Sprintf("%d of %d snapshots, %s of %s", s.Count, s.Keep.Count,
		term.Bytes(s.Bytes), term.Bytes(s.Keep.Bytes))
	if s.Pinned >= s.Keep.Count {
		return append(list, warn(what+", all pinned",
			"there is no room for new ones", "tailcam snapshots unpin, or raise snapshots.keep.count"))
	}
	return append(list, pass(what))
}
