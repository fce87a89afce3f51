package symbols

import (
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// A file whose file system does not answer keeps nobody waiting for longer than
// the time limit, neither who asks for it nor who asks for others, and its
// names are there once it answers.
func TestStuckFile(t *testing.T) {
	source := build(t, "frames", "gcc", "-O0", "-no-pie", "testdata/frames.c")
	text, err := os.ReadFile(source)
	assert.NilError(t, err)
	fs := stuckfs.Mount(t, "prog", source)
	f, err := os.Open(fs.Path())
	assert.NilError(t, err)
	defer f.Close()
	fs.Hang()
	m, err := syscall.Mmap(int(f.Fd()), 0, len(text), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	defer func() { _ = syscall.Munmap(m) }()
	table, err := readTable(strings.NewReader(string(text)), 1000)
	assert.NilError(t, err)
	var at uint64 // in the mapping, whose offset in the file is 0
	for _, s := range table.symbols {
		if table.name(s.name, nil) == "local_function" {
			for _, g := range table.segments {
				if s.start >= g.addr && s.start-g.addr < g.size {
					at = uint64(reflect.ValueOf(m).Pointer()) + s.start - g.addr + g.offset + 2
				}
			}
		}
	}

	r := New(&Options{Timeout: 2 * time.Second})
	for got := ""; !strings.HasPrefix(got, "[unknown] (prog+0x"); {
		got = r.User(os.Getpid(), []uint64{at}).Frames[0]
		assert.Assert(t, !strings.HasPrefix(got, "local"), "the file was read: %s", got)
	}
	s := r.Stats()
	assert.Check(t, s.Timeouts != 0, "got %+v", s)
	p := start(t, exec.Command(build(t, "frames", "gcc", "-O0", "testdata/frames.c")), "libc")
	for got := ""; !strings.HasPrefix(got, "local_function+0x"); { // others are named meanwhile
		got = p.frame(t, r, "local_function", true)
	}
	fs.Answer()
	for got := ""; !strings.HasPrefix(got, "local_function+0x2 (prog)"); {
		got = r.User(os.Getpid(), []uint64{at}).Frames[0]
	}
}
