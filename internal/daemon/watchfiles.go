package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/pulse"
)

const (
	// watchQuiet is how long files must rest before they are reloaded: editors and
	// package managers write several, in several steps.
	watchQuiet = time.Second
	// watchAgain is how often directories are looked for that were not there.
	watchAgain = 10 * time.Second
)

// watchFiles reloads when files change (reload.watch).
func (d *daemon) watchFiles(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Error("cannot watch files: reload with tailcam reload, or raise fs.inotify.max_user_instances", zap.Error(err))
		return nil // all else works
	}
	defer w.Close() //nolint:errcheck // only read from
	again := pulse.After(watchAgain)
	quiet := time.NewTimer(watchQuiet)
	quiet.Stop()
	defer quiet.Stop()
	d.watchDirs(w)
	d.log.Info("watching files for changes", zap.Strings("directories", w.WatchList()))
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if d.concerns(e) {
				quiet.Reset(watchQuiet)
			}
		case err := <-w.Errors: // such as too many changes at once
			d.log.Debug("watch files", zap.Error(err))
			quiet.Reset(watchQuiet)
		case <-again:
			again = pulse.After(watchAgain)
			if d.watchDirs(w) {
				quiet.Reset(watchQuiet)
			}
		case <-quiet.C:
			d.watchDirs(w)
			d.log.Info("files have changed: reloading")
			d.Reload(false)
			d.watchDirs(w)
		}
	}
}

// watchDirs watches the directories of all files that a reload reads, and reports
// whether any was not watched before.
func (d *daemon) watchDirs(w *fsnotify.Watcher) (fresh bool) {
	for _, path := range d.watchedPaths() {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			path = filepath.Dir(path)
		}
		if slices.Contains(w.WatchList(), path) {
			continue
		}
		err := w.Add(path)
		switch {
		case err == nil:
			fresh = true
		case errors.Is(err, os.ErrNotExist):
		default:
			d.log.Warn("cannot watch a directory", zap.String("directory", path), zap.Error(err))
		}
	}
	return fresh
}

// watchedPaths are the files and directories that a reload reads.
func (d *daemon) watchedPaths() []string {
	d.reloading.Lock()
	paths := slices.Clone(d.running.Rules)
	d.reloading.Unlock()
	if d.cfg.File != "" {
		paths = append(paths, d.cfg.File, filepath.Join(filepath.Dir(d.cfg.File), "conf.d"))
	}
	return paths
}

// concerns reports whether a change is one of files that a reload reads: of YAML files,
// of one that is named, or of the link that Kubernetes turns to new contents.
func (d *daemon) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	name := filepath.Base(e.Name)
	yaml := !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name))
	return yaml || name == "..data" || slices.Contains(d.watchedPaths(), e.Name)
}
