package pack

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/tailcam/tailcam/internal/linux"
)

// Read unpacks a pack into the directory into, which must exist, and returns that of the
// snapshot. It writes what the manifest lists and nothing else: no links, no devices, no
// path outside, no more bytes than the file system has room for. On error, into may hold
// some of the files.
func Read(in io.Reader, into string) (dir string, err error) {
	zip, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	defer zip.Close()
	archive := tar.NewReader(zip)
	m, err := readManifest(archive)
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	if err := m.fits(into); err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	defer root.Close() //nolint:errcheck // each file is closed
	for _, f := range m.Files {
		if err := m.extract(archive, root, &f); err != nil {
			return "", fmt.Errorf("unpack %s: %w", f.Name, err)
		}
	}
	if err := root.MkdirAll(m.ID, 0o700); err != nil { // without any file
		return "", fmt.Errorf("unpack: %w", err)
	}
	return filepath.Join(into, m.ID), nil
}

func readManifest(archive *tar.Reader) (*Manifest, error) {
	h, err := archive.Next()
	if err != nil {
		return nil, fmt.Errorf("it is no packed snapshot: %w", err)
	}
	if path.Base(h.Name) != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return nil, fmt.Errorf("it is no packed snapshot: it begins with %q", h.Name)
	}
	data, err := io.ReadAll(io.LimitReader(archive, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", manifestName, err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", manifestName, err)
	}
	return m, m.check()
}

// fits fails if the files would leave less than a tenth of the free room of a directory.
func (m *Manifest) fits(dir string) error {
	total := int64(0)
	for _, f := range m.Files {
		total += f.Bytes
	}
	room, err := linux.FreeBytes(dir)
	if err != nil {
		return err
	}
	if total > room-room/10 {
		return fmt.Errorf("it has %d MiB, and %s has room for %d: set TMPDIR to a larger one", total>>20, dir, room>>20)
	}
	return nil
}

// extract writes the next member, which must be the next file of the manifest.
func (m *Manifest) extract(archive *tar.Reader, root *os.Root, f *File) error {
	h, err := archive.Next()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if h.Name != path.Join(m.ID, f.Name) || h.Typeflag != tar.TypeReg || h.Size != f.Bytes {
		return fmt.Errorf("%q is not what the manifest lists", h.Name)
	}
	if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
		return err
	}
	out, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(out, sum), archive, f.Bytes)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return errors.New("its checksum is wrong: the file is damaged")
	}
	return nil
}
