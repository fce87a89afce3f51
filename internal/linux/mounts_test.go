package linux

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestMounts: names that others chose are taken as they are, and no line hides another.
func TestMounts(t *testing.T) {
	text := `23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
nonsense
24 23 0:x / /bad rw - tmpfs none rw
25 23 0:30 / /a rw
26 23 0:31 /sub\040dir /mnt\134040\011x rw master:1 propagate_from:2 - cgroup2 none rw,nsdelegate
27 23 0:32 / /with` + "\u00a0" + `space rw - fuse.x\040- evil rw
28 23 0:33 / /none rw -  tmpfs
29 23 0:34 / /bare rw - tmpfs
18446744073709551615 1 4294967295:4294967295 / /high rw - proc proc rw,hidepid=invisible` + "\n"
	var got []Mount
	assert.NilError(t, Mounts(strings.NewReader(text), func(m *Mount) { got = append(got, *m) }))
	assert.DeepEqual(t, got, []Mount{
		{23, unix.Mkdev(254, 0), "/", "/", "ext4", "rw"},
		{26, unix.Mkdev(0, 31), "/sub dir", "/mnt\\040\tx", "cgroup2", "rw,nsdelegate"},
		{27, unix.Mkdev(0, 32), "/", "/with\u00a0space", `fuse.x\040-`, "rw"},
		{28, unix.Mkdev(0, 33), "/", "/none", "", ""},
		{29, unix.Mkdev(0, 34), "/", "/bare", "tmpfs", ""},
		{1<<64 - 1, unix.Mkdev(1<<32-1, 1<<32-1), "/", "/high", "proc", "rw,hidepid=invisible"},
	})
	one := "23 1 254:0 / / rw - ext4 /dev/vda rw," + strings.Repeat("x", maxMountLine/2) + "\n"
	n := 0
	assert.NilError(t, Mounts(strings.NewReader(strings.Repeat(one, 100)), func(*Mount) { n++ }))
	assert.Check(t, n == maxMounts/len(one) || n == maxMounts/len(one)+1, "%d of 100 lines", n)
	err := Mounts(strings.NewReader(strings.Repeat("x", 2*maxMountLine)), func(*Mount) {})
	assert.ErrorContains(t, err, "too long")

	n = 0
	assert.NilError(t, MountsOf("/proc/self/mountinfo", func(m *Mount) {
		if m.Point == "/proc" && m.Type == "proc" {
			n++
		}
	}))
	assert.Check(t, n > 0, "this machine has no /proc")
}

func FuzzMounts(f *testing.F) {
	f.Add([]byte("23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"))
	f.Add([]byte(`26 23 0:31 /sub\040dir /mnt\134040 rw - cgroup2 none rw`))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := bytes.Count(text, []byte("\n")) + 1
		n := 0
		if err := Mounts(bytes.NewReader(text), func(m *Mount) { n++; _ = fmt.Sprint(*m) }); err == nil && n > lines {
			t.Errorf("%d mounts of %d lines", n, lines)
		}
	})
}
