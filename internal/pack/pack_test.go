package pack

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/forged"
)

const id = "20261121T231502.123456789Z-wakeup-000042"

func snapshotDir(t testing.TB, files map[string]string) string {
	dir := filepath.Join(t.TempDir(), id)
	for name, text := range files {
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// TestPack: what is unpacked is what was packed, and nothing but regular files is.
func TestPack(t *testing.T) {
	files := map[string]string{
		"snapshot.json": "{}", "trace/kernel/metadata": "/* CTF 1.8 */", "trace/kernel/channel0_0": strings.Repeat("x", 1<<20), "action-0.log": "",
	}
	dir := snapshotDir(t, files)
	assert.NilError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	assert.NilError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	var packed bytes.Buffer
	m, err := Write(&packed, dir)
	assert.NilError(t, err)
	assert.Check(t, m.ID == id && len(m.Files) == len(files) && packed.Len() < 1<<12, "%+v in %d bytes", m, packed.Len())

	into := t.TempDir()
	got, err := Read(&packed, into)
	assert.NilError(t, err)
	assert.Check(t, got == filepath.Join(into, id), "%s", got)
	found := 0
	assert.NilError(t, filepath.WalkDir(into, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		name, err := filepath.Rel(got, p)
		text, err2 := os.ReadFile(p)
		assert.Check(t, err == nil && err2 == nil && string(text) == files[name], "%s", name)
		return nil
	}))
	assert.Check(t, found == len(files), "%d files", found)
}

// TestHostile: a pack that leads elsewhere, lies or is a bomb is refused, and writes
// nothing outside of the directory, nor more than it said.
func TestHostile(t *testing.T) {
	for _, c := range forged.Hostile(t) {
		into := t.TempDir()
		_, err := Read(bytes.NewReader(c.Data), into)
		assert.Check(t, is.ErrorContains(err, c.Want), c.Name)
		total := int64(0)
		assert.NilError(t, filepath.WalkDir(into, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				st, err := d.Info()
				assert.NilError(t, err)
				total += st.Size()
			}
			assert.Check(t, err == nil && (d.IsDir() || d.Type().IsRegular()), "%s: %v", c.Name, d)
			return nil
		}))
		assert.Check(t, total < 1<<20, "%s: left %d bytes", c.Name, total)
	}
}

func FuzzRead(f *testing.F) {
	dir := snapshotDir(f, map[string]string{"snapshot.json": "{}", "trace/kernel/metadata": "x"})
	var packed bytes.Buffer
	_, err := Write(&packed, dir)
	assert.NilError(f, err)
	f.Add(packed.Bytes())
	f.Add(forged.Pack(f, &Manifest{Version: 1, ID: id}))
	f.Fuzz(func(t *testing.T, data []byte) {
		into := t.TempDir()
		got, err := Read(bytes.NewReader(data), into)
		assert.Check(t, err != nil || filepath.Dir(got) == into, "%s", got)
	})
}
