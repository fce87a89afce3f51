// Package pack makes one file of a snapshot's directory, and the directory of such a
// file: a tar archive, compressed with zstd, whose first member lists the others with
// their checksums. tar --zstd opens it, too.
package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/redact"
)

// Ext is the extension of packed snapshots.
const Ext = ".tailcam"

// manifestName is the first member of a pack, below the snapshot's id like the others.
const manifestName = "MANIFEST.json"

// Limits of a pack, which anybody may have written.
const (
	maxFiles    = 8192
	maxManifest = 4 << 20
	maxBytes    = 4 << 30 // of all files
	maxWindow   = 8 << 20 // of zstd; as much memory
	minWindow   = 64 << 10
	maxDepth    = 4
	maxName     = 255
)

const version = 1

// Manifest is the first member of a pack.
type Manifest struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // of the snapshot
	Files   []File `json:"files"`
	// Redacted says what was replaced; nil: nothing.
	Redacted *redact.Summary `json:"redacted,omitempty"`
}

// File is one file of a pack.
type File struct {
	Name   string `json:"name"` // below the snapshot's directory
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Write packs a snapshot's directory: regular files alone, of at most 4 GiB. It follows
// no symlinks, and fails if a file changes meanwhile.
func Write(out io.Writer, dir string) (*Manifest, error) { return WriteRedacted(out, dir, nil) }

// WriteRedacted is Write for a redacted copy, of which the manifest then says so.
func WriteRedacted(out io.Writer, dir string, redacted *redact.Summary) (*Manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read from
	m, err := list(root, filepath.Base(dir))
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	m.Redacted = redacted
	zip, err := zstd.NewWriter(out, zstd.WithWindowSize(m.window()), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	archive := tar.NewWriter(zip)
	err = m.write(archive, root)
	if err = errors.Join(err, archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	return m, nil
}

// window is the window for what the pack holds: it is memory, too.
func (m *Manifest) window() int {
	total, window := int64(0), int64(minWindow)
	for _, f := range m.Files {
		total += f.Bytes
	}
	for window < total && window < maxWindow {
		window *= 2
	}
	return int(window)
}

// list reads every file for its checksum.
func list(root *os.Root, id string) (*Manifest, error) {
	m := &Manifest{Version: version, ID: id}
	total := int64(0)
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f := File{Name: name}
		in, err := open(root, name)
		if err != nil {
			return err
		}
		defer in.Close()
		h := sha256.New()
		if f.Bytes, err = io.Copy(h, io.LimitReader(in, maxBytes+1-total)); err != nil {
			return err
		}
		if total += f.Bytes; total > maxBytes {
			return fmt.Errorf("it is larger than %d GiB", maxBytes>>30)
		}
		f.SHA256 = hex.EncodeToString(h.Sum(nil))
		m.Files = append(m.Files, f)
		return nil
	})
	if err == nil {
		err = m.check()
	}
	return m, err
}

// open opens a regular file without waiting for one that has become a pipe.
func open(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, f.Close(), fmt.Errorf("%s is not a regular file", name))
	}
	return f, nil
}

func (m *Manifest) write(archive *tar.Writer, root *os.Root) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	member := func(name string, size int64, in io.Reader) error {
		err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(m.ID, name), Size: size, Mode: 0o640, Format: tar.FormatPAX,
		}) // without times: the same files are the same bytes
		if err != nil {
			return err
		}
		_, err = io.CopyN(archive, in, size)
		return err
	}
	if err := member(manifestName, int64(len(data)), bytes.NewReader(data)); err != nil {
		return err
	}
	for _, f := range m.Files {
		in, err := open(root, f.Name)
		if err != nil {
			return err
		}
		h := sha256.New()
		err = errors.Join(member(f.Name, f.Bytes, io.TeeReader(in, h)), in.Close())
		if err == nil && hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
			err = errors.New("it has changed meanwhile: pack it again")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// check refuses what Write does not write.
func (m *Manifest) check() error {
	if m.Version != version {
		return fmt.Errorf("version %d of the format is not known: it is of a newer release", m.Version)
	}
	if !plain(m.ID) {
		return fmt.Errorf("bad id %q", m.ID)
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("it has more than %d files", maxFiles)
	}
	total, seen := int64(0), map[string]bool{}
	for _, f := range m.Files {
		parts := strings.Split(f.Name, "/")
		switch {
		case len(parts) > maxDepth || slices.ContainsFunc(parts, func(p string) bool { return !plain(p) }):
			return fmt.Errorf("bad name %q", f.Name)
		case seen[f.Name] || f.Name == manifestName:
			return fmt.Errorf("%q is there twice", f.Name)
		case f.Bytes < 0 || f.Bytes > maxBytes-total:
			return fmt.Errorf("it is larger than %d GiB", maxBytes>>30)
		}
		seen[f.Name] = true
		total += f.Bytes
	}
	return nil
}

// plain reports whether a name is one of a file, and cannot lead anywhere else.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxName &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' || r == '/' || r == '\\' })
}
