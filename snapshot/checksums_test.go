package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// written takes a snapshot with a trace of many records, as the daemon does.
func written(t *testing.T) (dir string) {
	t.Helper()
	s := testStore(t, StoreOptions{})
	m, err := New(Options{Recorder: newMemRecorder(1), Store: s})
	assert.NilError(t, err)
	now := ReadClock().Wall(linux.Monotonic())
	j := job{meta: Meta{Version: Version, Notes: []string{}, Rule: "r", Time: now, ID: s.NewID(now, "r")}}
	for cpu := range 2 {
		c := trace.CPU{CPU: cpu}
		for i := range 5000 {
			c.Records = append(c.Records, record(cpu, uint64(1000+i)))
		}
		j.cpus = append(j.cpus, c)
	}
	dir, release, err := m.write(&j)
	assert.NilError(t, err)
	release()
	return dir
}

func goodSums(t *testing.T, dir string) {
	t.Helper()
	bad, err := CheckSums(context.Background(), dir)
	assert.Assert(t, err == nil && len(bad) == 0, "%+v, %v", bad, err)
}

// Whatever bit of whatever file is flipped is found, and its file named.
func TestFlippedBitsAreFound(t *testing.T) {
	dir := written(t)
	goodSums(t, dir)
	if sha256sum, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.Command(sha256sum, "--check", "--strict", SumsFile)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		assert.Check(t, err, "sha256sum: %v\n%s", err, out)
	}
	random := rand.New(rand.NewPCG(1, 2))
	files, flips := 0, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		name, _ := filepath.Rel(dir, path)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if len(text) == 0 { // stacks.folded: nothing to flip
			return nil
		}
		at := []int{0, len(text) - 1}
		for range min(100, len(text)) {
			at = append(at, random.IntN(len(text)))
		}
		if name == SumsFile { // all of it
			at = nil
			for i := range text {
				at = append(at, i)
			}
		}
		for _, i := range at {
			bit := byte(1) << random.IntN(8)
			text[i] ^= bit
			if err := os.WriteFile(path, text, 0o600); err != nil {
				return err
			}
			bad, err := CheckSums(context.Background(), dir)
			if err != nil || len(bad) == 0 {
				return fmt.Errorf("bit %#x of byte %d of %s: not found, %w", bit, i, name, err)
			}
			if name != SumsFile && (len(bad) != 1 || bad[0].File != name) {
				return fmt.Errorf("byte %d of %s: found in %+v", i, name, bad)
			}
			text[i] ^= bit
			flips++
		}
		return os.WriteFile(path, text, 0o600)
	})
	assert.Check(t, err)
	assert.Check(t, files == 10 && flips >= 1000, "%d flips in %d files prove little", flips, files)
	goodSums(t, dir)
}

// What actions leave in a snapshot is theirs; what they do to its files is found.
func TestSumsOfAttackedSnapshots(t *testing.T) {
	dir := written(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"action-0.log", "core", "trace/notes"} {
		assert.NilError(t, os.WriteFile(in(name), []byte("x"), 0o600))
	}
	goodSums(t, dir)
	sums, err := os.ReadFile(in(SumsFile))
	assert.NilError(t, err)
	outside := filepath.Join(t.TempDir(), "outside")
	assert.NilError(t, os.WriteFile(outside, []byte("x"), 0o600))
	first, _, _ := strings.Cut(string(sums), "\n")
	for name, c := range map[string]struct {
		harm func() error
		file string
	}{
		"link":      {func() error { return os.Symlink(outside, in(FoldedFile)) }, FoldedFile},
		"pipe":      {func() error { return unix.Mkfifo(in(FoldedFile), 0o600) }, FoldedFile},
		"directory": {func() error { return os.Mkdir(in(FoldedFile), 0o700) }, FoldedFile},
		"missing":   {func() error { return nil }, FoldedFile},
		"huge": {func() error {
			return errors.Join(os.WriteFile(in(FoldedFile), nil, 0o600), os.Truncate(in(FoldedFile), 1<<42))
		}, FoldedFile},
		"leaves":   {func() error { return os.WriteFile(in(SumsFile), []byte(first[:66]+"../../x\n"), 0o600) }, SumsFile},
		"absolute": {func() error { return os.WriteFile(in(SumsFile), []byte(first[:66]+"/etc/passwd\n"), 0o600) }, SumsFile},
		"twice":    {func() error { return os.WriteFile(in(SumsFile), []byte(first+"\n"+first+"\n"), 0o600) }, SumsFile},
		"short":    {func() error { return os.WriteFile(in(SumsFile), []byte(first+"\n"), 0o600) }, SumsFile},
		"empty":    {func() error { return os.WriteFile(in(SumsFile), nil, 0o600) }, SumsFile},
		"sums pipe": {func() error {
			return errors.Join(os.Remove(in(SumsFile)), unix.Mkfifo(in(SumsFile), 0o600))
		}, SumsFile},
	} {
		t.Run(name, func(t *testing.T) {
			folded, err := os.ReadFile(in(FoldedFile))
			assert.NilError(t, err)
			defer func() {
				if err := errors.Join(os.RemoveAll(in(FoldedFile)), os.WriteFile(in(FoldedFile), folded, 0o600),
					os.RemoveAll(in(SumsFile)), os.WriteFile(in(SumsFile), sums, 0o600)); err != nil {
					t.Fatal(err)
				}
			}()
			if c.file == FoldedFile {
				assert.NilError(t, os.Remove(in(FoldedFile)))
			}
			assert.NilError(t, c.harm())
			bad, err := CheckSums(context.Background(), dir)
			assert.Check(t, err == nil && len(bad) != 0 && bad[0].File == c.file, "%+v, %v", bad, err)
		})
	}
	goodSums(t, dir)
	assert.NilError(t, os.Remove(in(SumsFile)))
	_, err = CheckSums(context.Background(), dir)
	assert.Check(t, is.ErrorIs(err, ErrNoSums), "without sums")
	// A directory that leads out is not followed, and its trace is not read.
	if err := errors.Join(os.WriteFile(in(SumsFile), sums, 0o600), os.Rename(in("trace/kernel"), outside+".d"), os.Symlink(outside+".d", in("trace/kernel"))); err != nil {
		t.Fatal(err)
	}
	bad, err := CheckSums(context.Background(), dir)
	assert.Check(t, err == nil && len(bad) == 3, "%+v, %v", bad, err)
	_, err = trace.Read(in(TraceDir))
	assert.Check(t, err != nil, "a trace that is elsewhere was read")
}
