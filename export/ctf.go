package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// exportCTF copies the trace, or the part of it that is asked for.
func exportCTF(ctx context.Context, s *source, o *Options) (Result, error) {
	if o.Out == Stdout {
		return Result{}, errors.New("a CTF trace is a directory: specify one that does not exist")
	}
	if o.KeepGoing {
		return Result{}, errors.New("a damaged trace cannot be exported as CTF: choose another format")
	}
	if err := replaceable(o.Out, o.Force); err != nil {
		return Result{}, err
	}
	temp := temporary(o.Out)
	_, total := s.reader.Progress()
	opts := trace.CopyOptions{Span: s.span}
	if o.Progress != nil {
		opts.Read = func(read uint64) { o.Progress(read, total) }
	}
	n, err := trace.Copy(ctx, temp, filepath.Join(s.dir, snapshot.TraceDir), &opts)
	if err == nil && o.Force {
		err = removeTrace(o.Out)
	}
	if err == nil {
		err = renameNew(temp, o.Out)
	}
	if err != nil {
		return Result{}, errors.Join(err, os.RemoveAll(temp))
	}
	return Result{Events: n}, nil
}

// replaceable tells early what cannot be written: only a trace is ever replaced.
func replaceable(out string, force bool) error {
	_, err := os.Lstat(out)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("write trace: %w", err)
	case !force:
		return existsError(out)
	}
	return filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
		name, _ := filepath.Rel(out, path)
		switch {
		case d.IsDir() && (name == "." || name == "kernel"):
		case d.Type().IsRegular() && filepath.Dir(name) == "kernel" && (d.Name() == "metadata" || strings.HasPrefix(d.Name(), "kernel_")):
		default:
			return fmt.Errorf("will not replace %s: %s is not part of a trace; specify another directory", out, path)
		}
		return nil
	})
}

// removeTrace removes a directory that replaceable has allowed to.
func removeTrace(dir string) error {
	if err := replaceable(dir, true); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
