package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// SumsFile holds the SHA-256 checksums of a snapshot's files in the format of
// sha256sum. Files added by actions are not listed.
const SumsFile = "SHA256SUMS"

// maxSums bounds the size of SHA256SUMS: enough for 4,096 streams.
const maxSums = 1 << 20

// maxSummed bounds the size of a file to verify.
const maxSummed = 4 << 30

// checksums computes the checksums of files as they are written.
type checksums struct {
	progress func(what string)
	files    []checksum
}

type checksum struct {
	name string
	hash hash.Hash
}

// newChecksums returns an empty set; progress is called after each write.
func newChecksums(progress func(what string)) *checksums { return &checksums{progress: progress} }

// file returns a writer that must receive the same bytes as the file.
func (s *checksums) file(name string) io.Writer {
	h := sha256.New()
	s.files = append(s.files, checksum{name, h})
	return progressHash{h, func() { s.progress("write " + name) }}
}

// progressHash reports progress. It is written to after the file, when that write has
// succeeded.
type progressHash struct {
	hash.Hash
	wrote func()
}

func (t progressHash) Write(b []byte) (int, error) {
	t.wrote()
	return t.Hash.Write(b)
}

// write writes SHA256SUMS.
func (s *checksums) write(w io.Writer) error {
	for _, f := range s.files {
		if _, err := fmt.Fprintf(w, "%s  %s\n", hex.EncodeToString(f.hash.Sum(nil)), f.name); err != nil {
			return err
		}
	}
	return nil
}

// BadSum is a file that differs from its checksum.
type BadSum struct {
	File string
	What string
}

// ErrNoSums means that a snapshot of an earlier release has no checksums.
var ErrNoSums = errors.New("it has no " + SumsFile)

// CheckSums verifies the files listed in SHA256SUMS and returns those that are damaged
// or missing, SHA256SUMS included. It follows no symlinks, does not wait on pipes and
// never leaves dir. It returns early with the context's error.
func CheckSums(ctx context.Context, dir string) (bad []BadSum, err error) {
	data, err := ReadFile(filepath.Join(dir, SumsFile), maxSums)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoSums
	}
	if err != nil {
		return []BadSum{{SumsFile, reasonOf(err)}}, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read from
	seen := map[string]bool{}
	for line := range bytes.Lines(data) {
		want, name, ok := parseSum(string(line))
		if !ok || seen[name] {
			return append(bad, BadSum{SumsFile, fmt.Sprintf("line %d is malformed", len(seen)+1)}), nil
		}
		seen[name] = true
		if what := checkSum(ctx, root, name, want); what != "" {
			bad = append(bad, BadSum{name, what})
		}
		if err := ctx.Err(); err != nil {
			return bad, err
		}
	}
	for _, name := range []string{MetaFile, ExplainJSONFile, ExplainTextFile, TasksFile, FoldedFile, TraceDir + "/kernel/metadata"} {
		if !seen[name] {
			bad = append(bad, BadSum{SumsFile, "does not name " + name})
		}
	}
	return bad, nil
}

// parseSum parses one line, which must be exactly as written by write.
func parseSum(line string) (sum, name string, ok bool) {
	rest, ok := strings.CutSuffix(line, "\n")
	if !ok || len(rest) <= 2*sha256.Size+2 {
		return "", "", false
	}
	sum, name = rest[:2*sha256.Size], rest[2*sha256.Size+2:]
	if _, err := hex.DecodeString(sum); err != nil || strings.ToLower(sum) != sum || rest[2*sha256.Size:2*sha256.Size+2] != "  " {
		return "", "", false
	}
	return sum, name, filepath.IsLocal(name) && filepath.Clean(name) == name
}

// checkSum returns what is wrong with a file, or "".
func checkSum(ctx context.Context, root *os.Root, name, want string) string {
	// os.Root would follow a symlinked directory within the root.
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if st, err := root.Lstat(dir); err == nil && !st.IsDir() {
			return dir + " is not a directory"
		}
	}
	st, err := root.Lstat(name)
	if err != nil {
		return reasonOf(err)
	}
	if !st.Mode().IsRegular() {
		return "is not a regular file"
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return reasonOf(err)
	}
	defer f.Close()
	st, err = f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return "is not a regular file"
	}
	if st.Size() > maxSummed {
		return fmt.Sprintf("is larger than %d bytes", int64(maxSummed))
	}
	h := sha256.New()
	if _, err := io.Copy(h, contextReader{ctx, f}); err != nil {
		return reasonOf(err)
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		return "checksum differs from that in " + SumsFile
	}
	return ""
}

// contextReader fails when the context is done.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// reasonOf returns the error without the path, which is shown next to it.
func reasonOf(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
