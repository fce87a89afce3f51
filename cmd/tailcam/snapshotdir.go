package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot"
)

// dirEnv and dirFlag name the snapshot directory.
const (
	dirEnv  = "TAILCAM_SNAPSHOTS_DIR"
	dirFlag = "snapshots-dir"
)

// addDir adds the flags of the commands that read a snapshot directory, which
// need no daemon.
func (c *cli) addDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.dir, dirFlag, "", "snapshot `directory` (default: the daemon's, or that of the configuration)")
	cmd.Flags().String("config", "", "configuration `file` with the directory")
	c.addSocket(cmd)
	_ = cmd.MarkFlagDirname(dirFlag) // the only error is that of a flag that does not exist
}

// snapshotsDir returns the snapshot directory that a command works on.
func (c *cli) snapshotsDir(ctx context.Context, cmd *cobra.Command) (string, error) {
	if c.dir != "" {
		return filepath.Abs(c.dir)
	}
	if !cmd.Flags().Changed("config") && os.Getenv(dirEnv) == "" {
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		status, err := c.client().Status(asking)
		switch {
		case err == nil && status.Snapshots.Dir != "":
			return localDir(&status.Snapshots)
		case asking.Err() != nil:
			return "", fmt.Errorf("cannot ask the daemon for its snapshot directory: use --snapshots-dir: %w", err)
		}
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return "", err
	}
	return filepath.Abs(cfg.Snapshots.Dir)
}

// errOtherDir: the daemon's directory has another path here.
var errOtherDir = errors.New("is not the daemon's directory here: " +
	"if the daemon runs in a container, use --snapshots-dir, such as --snapshots-dir /proc/PID/root/…")

// localDir returns the daemon's directory if its path is the same directory here.
func localDir(s *api.SnapshotsStatus) (string, error) {
	if id := api.DirID(s.Dir); id != s.DirID && s.DirID != "" {
		return s.Dir, fmt.Errorf("%s %w", s.Dir, errOtherDir)
	}
	return s.Dir, nil
}

// dirError adds advice to an error about a directory.
func dirError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot read %s: permission denied: use sudo", dir)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %s does not exist: set the snapshot directory with --snapshots-dir", dir)
	}
	return err
}

// ids lists the snapshots in the snapshot directory.
func (c *cli) ids(ctx context.Context, cmd *cobra.Command) (dir string, ids []string, err error) {
	if dir, err = c.snapshotsDir(ctx, cmd); err != nil {
		return "", nil, err
	}
	if ids, err = snapshot.IDs(dir); err != nil {
		return "", nil, dirError(dir, err)
	}
	return dir, ids, nil
}

// latest names the newest snapshot.
const latest = "latest"

// pick finds the snapshots that arguments name, each once and in their order.
func pick(dir string, ids, args []string) ([]string, error) {
	var picked []string
	seen := map[string]bool{}
	for _, arg := range args {
		if arg == latest {
			if len(ids) == 0 {
				return nil, nothingf("no snapshots in %s", dir)
			}
			arg = ids[len(ids)-1]
		}
		id, err := snapshot.Find(ids, arg)
		if errors.Is(err, snapshot.ErrNoSnapshot) {
			return nil, fmt.Errorf("%w in %s: see \"tailcam snapshots list\"", err, dir)
		}
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			picked = append(picked, id)
		}
	}
	return picked, nil
}

// picked finds the snapshots that arguments name, and the directory that they are in.
func (c *cli) picked(cmd *cobra.Command, args []string) (dir string, picked []string, err error) {
	dir, ids, err := c.ids(cmd.Context(), cmd)
	if err != nil {
		return "", nil, err
	}
	picked, err = pick(dir, ids, args)
	return dir, picked, err
}

// findSnapshot finds the directory of one snapshot by its id, a unique prefix of
// it, latest, or a path. A packed one is unpacked; - is one on standard input.
func (c *cli) findSnapshot(ctx context.Context, cmd *cobra.Command, arg string) (string, error) {
	if arg == stdinName {
		return c.unpacked(ctx, arg)
	}
	if st, err := os.Stat(arg); err == nil && !st.IsDir() && (strings.ContainsRune(arg, os.PathSeparator) || c.dir == "") {
		return c.unpacked(ctx, arg)
	}
	if strings.ContainsRune(arg, os.PathSeparator) || arg == "." || arg == ".." {
		return filepath.Abs(arg)
	}
	if st, err := os.Stat(arg); err == nil && st.IsDir() && c.dir == "" && arg != latest {
		return filepath.Abs(arg) // below the working directory
	}
	dir, ids, err := c.ids(ctx, cmd)
	if err != nil {
		return "", err
	}
	picked, err := pick(dir, ids, []string{arg})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, picked[0]), nil
}

// completeIDs completes the ids of up to most snapshots, newest first, and latest.
func (c *cli) completeIDs(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most || strings.ContainsRune(begin, os.PathSeparator) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		_, ids, err := c.ids(cmd.Context(), cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		if begin != "" && strings.HasPrefix(latest, begin) && len(ids) > 0 {
			out = append(out, cobra.CompletionWithDesc(latest, "the newest"))
		}
		for i := len(ids) - 1; i >= 0; i-- {
			if id, err := snapshot.ParseID(ids[i]); err == nil && strings.HasPrefix(ids[i], begin) {
				ago := term.Duration(max(0, int64(time.Since(id.Time))))
				out = append(out, cobra.CompletionWithDesc(term.Clean(ids[i]), term.Clean(id.Rule)+", "+ago+" ago"))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeDirs completes ids, and directories for arguments that look like a path.
func (c *cli) completeDirs(most int) cobra.CompletionFunc {
	ids := c.completeIDs(most)
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) < most && (strings.ContainsRune(begin, os.PathSeparator) || strings.HasPrefix(begin, ".")) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return ids(cmd, args, begin)
	}
}
