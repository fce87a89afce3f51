// Package forged makes packed snapshots that nobody should trust. It writes them by itself:
// internal/pack writes none of these.
package forged

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"gotest.tools/v3/assert"
)

// ID is that of the forged snapshots.
const ID = "20261121T231502.123456789Z-wakeup-000042"

const (
	manifestName = "MANIFEST.json"
	maxManifest  = 4 << 20 // more is refused
	ofNothing    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// Manifest is the first member of a pack.
type Manifest struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Files   []File `json:"files"`
}

// File is a file of a manifest.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Member is a member of the archive; without Data, of zeros.
type Member struct {
	tar.Header
	Data []byte
}

// Pack writes a pack of any members. The manifest is its bytes, or what its JSON is of.
func Pack(t testing.TB, manifest any, members ...Member) []byte {
	t.Helper()
	data, ok := manifest.([]byte)
	if !ok {
		var err error
		data, err = json.Marshal(manifest)
		assert.NilError(t, err)
	}
	first := Member{tar.Header{Typeflag: tar.TypeReg, Name: ID + "/" + manifestName, Size: int64(len(data)), Mode: 0o600}, data}
	return zipped(t, func(out io.Writer) {
		archive := tar.NewWriter(out)
		for _, m := range append([]Member{first}, members...) {
			assert.NilError(t, archive.WriteHeader(&m.Header))
			var in io.Reader = zeros{}
			if m.Data != nil {
				in = bytes.NewReader(m.Data)
			}
			_, err := io.CopyN(archive, in, m.Size)
			assert.NilError(t, err)
		}
		assert.NilError(t, archive.Close())
	})
}

// Valid packs files as they should be packed, whatever is in them.
func Valid(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	m := &Manifest{Version: 1, ID: ID}
	var members []Member
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := files[name]
		sum := sha256.Sum256(data)
		m.Files = append(m.Files, File{name, int64(len(data)), hex.EncodeToString(sum[:])})
		members = append(members, Member{tar.Header{Typeflag: tar.TypeReg, Name: ID + "/" + name, Size: int64(len(data)), Mode: 0o600}, data})
	}
	return Pack(t, m, members...)
}

func zipped(t testing.TB, write func(io.Writer), opts ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out, opts...)
	assert.NilError(t, err)
	write(zip)
	assert.NilError(t, zip.Close())
	return out.Bytes()
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Case is a pack that must be refused.
type Case struct {
	Name string
	Data []byte
	Want string // that the error has
}

// Hostile makes packs that lead elsewhere, lie, or are bombs.
func Hostile(t testing.TB) []Case {
	one := func(name string, size int64) *Manifest {
		return &Manifest{Version: 1, ID: ID, Files: []File{{Name: name, Bytes: size}}}
	}
	member := func(kind byte, name string, size int64) Member {
		return Member{Header: tar.Header{Typeflag: kind, Name: name, Size: size, Mode: 0o600, Linkname: "/etc/passwd"}}
	}
	const other = "not what the manifest lists"
	damaged := Pack(t, one("a", 4), member(tar.TypeReg, ID+"/a", 4))
	return []Case{
		{"nothing", nil, "no packed snapshot"},
		{"no zstd", []byte("not a pack at all"), "no packed snapshot"},
		{"above", Pack(t, one("../../etc/cron.d/x", 1)), "bad name"},
		{"absolute", Pack(t, one("/etc/cron.d/x", 1)), "bad name"},
		{"deep", Pack(t, one("a/b/c/d/e", 1)), "bad name"},
		{"control", Pack(t, one("a\x1b[2J", 1)), "bad name"},
		{"id above", Pack(t, &Manifest{Version: 1, ID: ".."}), "bad id"},
		{"newer", Pack(t, &Manifest{Version: 2, ID: ID}), "newer release"},
		{"no JSON", Pack(t, []byte("[")), manifestName},
		{"twice", Pack(t, &Manifest{Version: 1, ID: ID, Files: []File{{Name: "a"}, {Name: "a"}}}), "twice"},
		{"too large", Pack(t, one("a", 1<<40)), "larger than"},
		{"negative", Pack(t, one("a", -1)), "larger than"},
		{"no room", Pack(t, one("a", 4<<30)), ""},
		{"link", Pack(t, one("a", 0), member(tar.TypeSymlink, ID+"/a", 0)), other},
		{"hard link", Pack(t, one("a", 0), member(tar.TypeLink, ID+"/a", 0)), other},
		{"character device", Pack(t, one("a", 0), member(tar.TypeChar, ID+"/a", 0)), other},
		{"block device", Pack(t, one("a", 0), member(tar.TypeBlock, ID+"/a", 0)), other},
		{"pipe", Pack(t, one("a", 0), member(tar.TypeFifo, ID+"/a", 0)), other},
		{"directory", Pack(t, one("a", 0), member(tar.TypeDir, ID+"/a/", 0)), other},
		{"member above", Pack(t, one("a", 0), member(tar.TypeReg, ID+"/../../a", 0)), other},
		{"absolute member", Pack(t, one("a", 0), member(tar.TypeReg, "/tmp/a", 0)), other},
		{"member of another snapshot", Pack(t, one("a", 0), member(tar.TypeReg, "b/a", 0)), other},
		{"member twice", Pack(t, &Manifest{Version: 1, ID: ID, Files: []File{{Name: "a", SHA256: ofNothing}, {Name: "b", SHA256: ofNothing}}},
			member(tar.TypeReg, ID+"/a", 0), member(tar.TypeReg, ID+"/a", 0)), other},
		{"link, then a file through it", Pack(t, &Manifest{Version: 1, ID: ID, Files: []File{{Name: "a", SHA256: ofNothing}, {Name: "a/passwd", SHA256: ofNothing}}},
			Member{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: ID + "/a", Linkname: "/etc", Mode: 0o600}},
			member(tar.TypeReg, ID+"/a/passwd", 0)), other},
		{"other", Pack(t, one("a", 0), member(tar.TypeReg, ID+"/b", 0)), other},
		{"bomb", Pack(t, one("a", 10), member(tar.TypeReg, ID+"/a", 1<<28)), other},
		{"fewer", Pack(t, one("a", 10)), "unexpected EOF"},
		{"wrong sum", damaged, "checksum is wrong"},
		{"cut", damaged[:len(damaged)-8], ""},
		{"large manifest", Pack(t, bytes.Repeat([]byte(" "), maxManifest+1)), "no packed snapshot"},
		{"nested manifest", Pack(t, bytes.Repeat([]byte("["), maxManifest)), manifestName},
		{"files of nothing", Pack(t, listOf(`{"version":1,"id":"`+ID+`","files":[`, "0", maxManifest, "]}")), manifestName},
		{"window", window(t), ""}, // of more memory than any of ours
		{"not a manifest", zipped(t, func(out io.Writer) {
			archive := tar.NewWriter(out)
			assert.NilError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o600}))
			assert.NilError(t, archive.Close())
		}), "no packed snapshot"},
		{"a file as a dir", Pack(t, &Manifest{Version: 1, ID: ID, Files: []File{{Name: "a", SHA256: ofNothing}, {Name: "a/b"}}},
			member(tar.TypeReg, ID+"/a", 0), member(tar.TypeReg, ID+"/a/b", 0)), ""},
	}
}

func window(t testing.TB) []byte {
	return zipped(t, func(out io.Writer) {
		_, err := io.CopyN(out, zeros{}, 300<<20)
		assert.NilError(t, err)
	}, zstd.WithWindowSize(256<<20))
}

// listOf is begin, elements up to a size, and end.
func listOf(begin, element string, size int, end string) []byte {
	b := []byte(begin + element)
	for len(b)+len(element)+1+len(end) <= size {
		b = append(append(b, ','), element...)
	}
	return append(b, end...)
}

// Inside makes packs that are valid, of a snapshot of which one file is hostile. files has
// those of a real one, with a compressed trace.
func Inside(t testing.TB, files map[string][]byte) []Case {
	with := func(name string, data []byte) []byte {
		changed := maps.Clone(files)
		changed[name] = data
		return Valid(t, changed)
	}
	const most = 64 << 20
	frame := func(size int64, opts ...zstd.EOption) []byte {
		return zipped(t, func(out io.Writer) {
			_, err := io.CopyN(out, zeros{}, size)
			assert.NilError(t, err)
		}, opts...)
	}
	encoder, err := zstd.NewWriter(nil)
	assert.NilError(t, err)
	known := encoder.EncodeAll(make([]byte, 4<<20), nil) // its size is in its header
	const meta, tasks, why, stream = "snapshot.json", "tasks.json", "explain.json", "trace/kernel/kernel_0.zst"
	assert.Assert(t, files[meta] != nil && files[stream] != nil, "%v", slices.Sorted(maps.Keys(files)))
	begin := `{"version":1,"id":"` + ID + `",`
	return []Case{
		{"nested " + meta, with(meta, bytes.Repeat([]byte("["), most)), ""},
		{"outliers of nothing", with(meta, listOf(begin+`"outliers":[`, "0", most, "]}")), ""},
		{"empty rules", with(meta, listOf(begin+`"rules":[`, "{}", most, "]}")), ""},
		{"frames of nothing", with(meta, listOf(begin+`"outliers":[{"stacks":{"sources":{"user":[`, "0", most, "]}}}]}")), ""},
		{"tasks of nothing", with(tasks, listOf(begin+`"tasks":[`, "0", most, "]}")), ""},
		{"results of nothing", with(why, listOf(begin+`"outliers":[`, "0", 4*most, "]}")), ""},
		{"as many outliers as are taken", with(meta, listOf(begin+`"outliers":[`, "{}", 3<<17, "]}")), ""},
		{"as many frames as are taken", with(meta, listOf(begin+`"outliers":[{"stacks":{"sources":{"user":[`, "{}", 3<<20-200, "]}}}]}")), ""},
		{"bomb as a trace", with(stream, frame(1<<30)), ""},
		{"many bombs as a trace", with(stream, bytes.Repeat(known, 512)), ""},
	}
}
