package pack

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
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

// forge writes a pack of any members.
func forge(t testing.TB, manifest any, members ...*tar.Header) []byte {
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out)
	assert.NilError(t, err)
	archive := tar.NewWriter(zip)
	data, ok := manifest.([]byte)
	if !ok {
		data, err = json.Marshal(manifest)
		assert.NilError(t, err)
	}
	assert.NilError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: id + "/" + manifestName, Size: int64(len(data)), Mode: 0o600}))
	_, err = archive.Write(data)
	assert.NilError(t, err)
	for _, h := range members {
		assert.NilError(t, archive.WriteHeader(h))
		_, err = io.CopyN(archive, zeros{}, h.Size)
		assert.NilError(t, err)
	}
	assert.NilError(t, archive.Close())
	assert.NilError(t, zip.Close())
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestHostile: a pack that leads elsewhere, lies or is a bomb is refused, and writes
// nothing outside of the directory, nor more than it said.
func TestHostile(t *testing.T) {
	one := func(name string, size int64) *Manifest {
		return &Manifest{Version: 1, ID: id, Files: []File{{Name: name, Bytes: size}}}
	}
	member := func(kind byte, name string, size int64) *tar.Header {
		return &tar.Header{Typeflag: kind, Name: name, Size: size, Mode: 0o600, Linkname: "/etc/passwd"}
	}
	damaged := forge(t, one("a", 4), member(tar.TypeReg, id+"/a", 4))
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":         {nil, "no packed snapshot"},
		"no zstd":         {[]byte("not a pack at all"), "no packed snapshot"},
		"above":           {forge(t, one("../../etc/cron.d/x", 1)), "bad name"},
		"absolute":        {forge(t, one("/etc/cron.d/x", 1)), "bad name"},
		"deep":            {forge(t, one("a/b/c/d/e", 1)), "bad name"},
		"control":         {forge(t, one("a\x1b[2J", 1)), "bad name"},
		"id above":        {forge(t, &Manifest{Version: 1, ID: ".."}), "bad id"},
		"newer":           {forge(t, &Manifest{Version: 2, ID: id}), "newer release"},
		"no JSON":         {forge(t, []byte("[")), "MANIFEST.json"},
		"twice":           {forge(t, &Manifest{Version: 1, ID: id, Files: []File{{Name: "a"}, {Name: "a"}}}), "twice"},
		"too large":       {forge(t, one("a", 1<<40)), "larger than"},
		"negative":        {forge(t, one("a", -1)), "larger than"},
		"no room":         {forge(t, one("a", 4<<30)), ""},
		"link":            {forge(t, one("a", 0), member(tar.TypeSymlink, id+"/a", 0)), "not what the manifest lists"},
		"hard link":       {forge(t, one("a", 0), member(tar.TypeLink, id+"/a", 0)), "not what the manifest lists"},
		"other":           {forge(t, one("a", 0), member(tar.TypeReg, id+"/b", 0)), "not what the manifest lists"},
		"bomb":            {forge(t, one("a", 10), member(tar.TypeReg, id+"/a", 1<<28)), "not what the manifest lists"},
		"fewer":           {forge(t, one("a", 10)), "unexpected EOF"},
		"wrong sum":       {damaged, "checksum is wrong"},
		"cut":             {damaged[:len(damaged)-8], ""},
		"large manifest":  {forge(t, bytes.Repeat([]byte(" "), maxManifest+1)), "no packed snapshot"},
		"window":          {window(t), ""},
		"not a manifest":  {other(t), "no packed snapshot"},
		"a file as a dir": {forge(t, &Manifest{Version: 1, ID: id, Files: []File{{Name: "a", SHA256: empty}, {Name: "a/b"}}}, member(tar.TypeReg, id+"/a", 0), member(tar.TypeReg, id+"/a/b", 0)), ""},
	} {
		into := t.TempDir()
		_, err := Read(bytes.NewReader(c.data), into)
		assert.Check(t, is.ErrorContains(err, c.want), name)
		total := int64(0)
		assert.NilError(t, filepath.WalkDir(into, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				st, err := d.Info()
				assert.NilError(t, err)
				total += st.Size()
			}
			assert.Check(t, err == nil && (d.IsDir() || d.Type().IsRegular()), "%s: %v", name, d)
			return nil
		}))
		assert.Check(t, total < 1<<20, "%s: left %d bytes", name, total)
	}
}

const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing

// window is a frame that wants more memory than any of ours.
func window(t testing.TB) []byte {
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out, zstd.WithWindowSize(256<<20))
	assert.NilError(t, err)
	_, err = io.CopyN(zip, zeros{}, 300<<20)
	assert.NilError(t, err)
	assert.NilError(t, zip.Close())
	return out.Bytes()
}

func other(t testing.TB) []byte {
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out)
	assert.NilError(t, err)
	archive := tar.NewWriter(zip)
	assert.NilError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o600}))
	assert.NilError(t, archive.Close())
	assert.NilError(t, zip.Close())
	return out.Bytes()
}

func FuzzRead(f *testing.F) {
	dir := snapshotDir(f, map[string]string{"snapshot.json": "{}", "trace/kernel/metadata": "x"})
	var packed bytes.Buffer
	_, err := Write(&packed, dir)
	assert.NilError(f, err)
	f.Add(packed.Bytes())
	f.Add(forge(f, &Manifest{Version: 1, ID: id}))
	f.Fuzz(func(t *testing.T, data []byte) {
		into := t.TempDir()
		got, err := Read(bytes.NewReader(data), into)
		assert.Check(t, err != nil || filepath.Dir(got) == into, "%s", got)
	})
}
