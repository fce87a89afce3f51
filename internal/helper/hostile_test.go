package helper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	support "github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// mostMemory is what a helper may have at its highest.
const mostMemory = 256 << 20

// watchMemory keeps the highest memory that any helper, and this process, have had.
func watchMemory(t *testing.T, h *Helper) (highest func() map[int]int64) {
	t.Helper()
	var mu sync.Mutex
	seen := map[int]int64{}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	look := func() {
		for _, pid := range append(h.Stats().PIDs, os.Getpid()) {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(text), "VmHWM:")
			kb, err := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
			mu.Lock()
			if err == nil {
				seen[pid] = max(seen[pid], kb<<10)
			}
			mu.Unlock()
		}
	}
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				look()
			}
		}
	}()
	return func() map[int]int64 {
		look()
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// bomb gives a program debug information of some ten kilobytes that becomes
// gigabytes when it is decoded: one abbreviation with tens of millions of
// attributes that take no room.
func bomb(t *testing.T, path string, attributes int) {
	t.Helper()
	if _, err := exec.LookPath("objcopy"); err != nil {
		t.Skipf("needs objcopy of binutils: %v", err)
	}
	var info bytes.Buffer
	body := []byte{4, 0, 0, 0, 0, 0, 8, 1} // version, abbreviations, size of addresses, one entry
	for range 2 {
		_ = binary.Write(&info, binary.LittleEndian, uint32(len(body)))
		info.Write(body)
	}
	dir := t.TempDir()
	table, err := os.Create(filepath.Join(dir, "abbrev"))
	assert.NilError(t, err)
	defer table.Close()
	const chunk = 1 << 16
	fmt.Fprint(table, "\x01\x11\x00")
	for range attributes / chunk {
		table.Write(bytes.Repeat([]byte("\x01\x19"), chunk))
	}
	fmt.Fprint(table, "\x00\x00\x00")
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "info"), info.Bytes(), 0o600))
	for _, args := range [][]string{
		{"--strip-debug"},
		{"--add-section", ".debug_abbrev=" + filepath.Join(dir, "abbrev"), "--add-section", ".debug_info=" + filepath.Join(dir, "info")},
		{"--compress-debug-sections=zlib"},
	} {
		text, err := exec.Command("objcopy", append(args, path)...).CombinedOutput()
		assert.NilError(t, err, "objcopy %q: %v\n%s", args, err, text)
	}
}

// named tells whether the innermost frame has its name.
func (p *target) named(h *Helper) bool {
	return strings.HasPrefix(h.User(p.pid, []uint64{p.ip}).Frames[0], "here+0x")
}

// A small program whose debug information takes gigabytes costs one helper,
// within its memory, and nobody else a name.
func TestBomb(t *testing.T) {
	h := newHelper(t, Options{})
	highest := watchMemory(t, h)
	path := build(t, "deep")
	victim := start(t, 1001, path)
	eventually(t, "the victim is named", func() bool { return victim.named(h) })
	hostile := build(t, "deep")
	bomb(t, hostile, 25<<20)
	st, err := os.Stat(hostile)
	assert.Assert(t, err == nil && st.Size() <= 1<<20, "the bomb: %v, %v", st, err)
	var bombs []*target
	for i := range 4 {
		bombs = append(bombs, start(t, 2000+i, hostile))
	}
	asked, unnamed := 0, 0
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var all sync.WaitGroup
		for _, b := range bombs {
			all.Go(func() { h.User(b.pid, []uint64{b.ip}) })
		}
		all.Go(func() {
			if asked++; !victim.named(h) {
				unnamed++
			}
		})
		all.Wait()
	}
	assert.Check(t, unnamed <= 0, "%d of %d stacks of the victim have no names", unnamed, asked)
	for pid, most := range highest() {
		assert.Check(t, most <= mostMemory, "process %d had %d MiB", pid, most>>20)
	}
	t.Logf("%d stacks of the victim; highest memory %v; %+v", asked, highest(), h.Stats())
}

// Programs on a file system that hangs keep nobody else waiting, and have
// their names once it answers.
func TestHungFileSystem(t *testing.T) {
	needRoot(t)
	path := build(t, "deep", "-static")
	fs := stuckfs.Mount(t, "deep", path)
	h := newHelper(t, Options{})
	victim := start(t, 1001, path)
	var far []*target
	for i := range 4 {
		far = append(far, start(t, 0, fs.Program(2000+i)...))
	}
	fs.Hang()
	defer fs.Answer()
	for round := range 3 {
		var all sync.WaitGroup
		for _, p := range far {
			all.Go(func() {
				f := h.User(p.pid, []uint64{p.ip}).Frames[0]
				assert.Check(t, strings.HasPrefix(f, "[unknown] "), "the file was read: %s", f)
			})
		}
		for range 20 {
			begin := time.Now()
			assert.Check(t, victim.named(h), "round %d: the victim has no name after %v", round, time.Since(begin))
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
	}
	n := strings.Count(support.States(os.Getpid()), "D")
	assert.Check(t, n <= 0, "%d threads of this process hang in the kernel", n)
	eventually(t, "the helper that hangs is replaced", func() bool { return h.Stats().Killed > 0 })
	s := h.Stats()
	assert.Check(t, s.Remote != 0, "got %+v", s)
	assert.Check(t, victim.named(h), "the victim has no name")
	fs.Answer()
	eventually(t, "names once it answers", func() bool { return far[0].named(h) })
}

// Memory of a process that is a file on a file system that hangs: neither its
// stack nor its command line keep others waiting.
func TestHungMemory(t *testing.T) {
	needRoot(t)
	program := build(t, "hungmem")
	fs := stuckfs.Mount(t, "file", build(t, "deep", "-static"))
	h := newHelper(t, Options{})
	victim := start(t, 1001, build(t, "deep"))
	args := fs.Program(2000)
	args[len(args)-1] = program
	hostile := start(t, 0, append(args, "/media/file")...)
	fs.Hang()
	defer fs.Answer()
	for range 5 {
		s := h.UserStack(hostile.thread(t))
		assert.Check(t, len(s.Addrs) == 1 && s.Addrs[0] == hostile.ip && s.Missing != "", "its stack is %#x, %s", s.Addrs, s.Missing)
		line, err := h.Cmdline(hostile.pid, 0)
		assert.Check(t, err != nil, "its command line is %q", line)
		line, err = h.Cmdline(victim.pid, 0)
		assert.Check(t, err == nil && strings.HasSuffix(line, "/deep"),
			"the victim's command line is %q, %v", line, err)
		s = h.UserStack(victim.thread(t))
		assert.Check(t, len(s.Addrs) >= 5 && s.Missing == "", "the victim's stack is %#x, %s", s.Addrs, s.Missing)
	}
	n := strings.Count(support.States(os.Getpid()), "D")
	assert.Check(t, n <= 0, "%d threads of this process hang in the kernel", n)
	s := h.Stats()
	assert.Check(t, s.Killed != 0 && s.Unread != 0 && s.Refused != 0, "got %+v", s)
	t.Logf("%+v", s)
}
