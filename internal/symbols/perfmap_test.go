package symbols

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// countingReader counts what is read of a text.
type countingReader struct {
	r io.ReaderAt
	n int64
}

func (c *countingReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.r.ReadAt(p, at)
	c.n += int64(n)
	return n, err
}

// nameIn is the name that a map gives to an address.
func nameIn(k *perfMaps, r io.ReaderAt, size int64, addr uint64, now time.Time) string {
	at := map[uint64]perfLine{addr: {}}
	k.find(r, fileID{ino: 1, size: size}, at, now)
	if at[addr].size == 0 {
		return ""
	}
	_, _, name := perfLineAt(r, at[addr].at)
	return name
}

func TestPerfMapIsReadOnce(t *testing.T) {
	var k perfMaps
	text := []byte("1000 100 first\n2000 100 second\n")
	now := time.Unix(1000, 0)
	look := func(addr uint64, want string, most int64) {
		t.Helper()
		r := &countingReader{r: bytes.NewReader(text)}
		assert.Check(t, is.Equal(nameIn(&k, r, int64(len(text)), addr, now), want), "0x%x", addr)
		if most += maxPerfMapLine + perfMapTail; r.n > most {
			t.Errorf("0x%x: read %d bytes, want at most %d", addr, r.n, most)
		}
	}
	look(0x1010, "first", int64(len(text)))
	look(0x2010, "second", 0)
	text = append(text, "1000 80 newer\n3000 10 torn"...)
	look(0x1010, "newer", 30)
	look(0x10f0, "first", 30)
	look(0x3000, "", 30)
	text = append(text, " line\n"...)
	look(0x3000, "torn line", 30)
	// Rewritten: the old names are wrong, and the new ones have to wait.
	text = []byte(strings.Repeat("4000 100 other\n", 10))
	look(0x1010, "", 0)
	look(0x4010, "", 0)
	now = now.Add(perfMapAgain)
	look(0x4010, "other", int64(len(text)))
}

// A map of 84 MB and 400,000 lines takes as much as a large one, and only once.
func TestPerfMapIsBounded(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("5000 1000 long ago\n")
	name := strings.Repeat("n", 195)
	for i := range 400_000 {
		fmt.Fprintf(&b, "%x 10 %s%d\n", i*16, name, i)
	}
	text := b.Bytes()
	assert.Assert(t, len(text) >= 80_000_000, "%d bytes", len(text))
	var k perfMaps
	now := time.Unix(1000, 0)
	for i := range 3 {
		r := &countingReader{r: bytes.NewReader(text)}
		most := int64(maxPerfMap + 1<<20) // the ends of chunks are read twice
		heap := int64(24 << 20)           // the list of lines as it grows: 3 MiB in the end
		if i > 0 {
			most, heap = 2*maxPerfMapLine, 2<<20
		}
		allocates(t, heap, func() {
			if got, want := nameIn(&k, r, int64(len(text)), 16*399_999, now), name+"399999"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
		assert.Check(t, r.n <= most, "lookup %d: read %d bytes, want at most %d", i, r.n, most)
	}
	// Many such maps do not add up, nor do many that are empty.
	for i := range uint64(100) {
		at := map[uint64]perfLine{16: {}}
		k.find(bytes.NewReader(text[:1<<20]), fileID{ino: 10 + i, size: 1 << 20}, at, now)
	}
	for i := range uint64(10_000) {
		k.find(bytes.NewReader(nil), fileID{ino: 1000 + i}, nil, now)
	}
	total := int64(0)
	for _, m := range k.maps {
		total += m.size
	}
	assert.Check(t, total == k.bytes && total <= maxPerfMapBytes && len(k.maps) <= maxPerfMaps,
		"%d maps of %d bytes are kept", len(k.maps), total)
	// One line without an end.
	text = bytes.Repeat([]byte("1 f "), maxPerfMap/2)
	r := &countingReader{r: bytes.NewReader(text)}
	allocates(t, 2<<20, func() { nameIn(&perfMaps{}, r, int64(len(text)), 1, now) })
	assert.Check(t, r.n <= maxPerfMap+1<<20, "read %d bytes of a single line", r.n)
}

// sleeper is a process of a user, with a file at the name of its map.
func sleeper(t *testing.T, uid int, place func(path string)) int {
	t.Helper()
	needRoot(t, "starts processes of other users")
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	path := fmt.Sprintf("/tmp/perf-%d.map", cmd.Process.Pid)
	t.Cleanup(func() { os.Remove(path) })
	place(path)
	return cmd.Process.Pid
}

// Nobody tells lies about frames of somebody else's process, and no file is
// shown that its process may not read.
func TestPerfMapOfOthers(t *testing.T) {
	const user, other = 65534, 65533
	write := func(owner int, mode os.FileMode) func(string) {
		return func(path string) {
			assert.NilError(t, os.WriteFile(path, []byte("1000 100 f\n"), 0o600))
			assert.NilError(t, os.Chmod(path, mode))
			assert.NilError(t, os.Chown(path, owner, owner))
		}
	}
	for name, test := range map[string]struct {
		place func(path string)
		good  bool
	}{
		"own":                    {write(user, 0o644), true},
		"own, group may write":   {write(user, 0o664), true},
		"own, anybody may write": {write(user, 0o666), false},
		"root's":                 {write(0, 0o600), true},
		"somebody else's":        {write(other, 0o644), false},
		"none":                   {func(string) {}, false},
		"link to root's": {func(path string) {
			assert.NilError(t, os.Symlink("/etc/shadow", path))
			assert.NilError(t, os.Lchown(path, user, user))
		}, false},
		"named pipe": {func(path string) {
			assert.NilError(t, unix.Mkfifo(path, 0o644))
			assert.NilError(t, os.Chown(path, user, user))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := NewOpener(nil).PerfMap(sleeper(t, user, test.place))
			if err == nil {
				f.Close()
			}
			assert.Check(t, (err == nil) == test.good, "got %v", err)
		})
	}
}
