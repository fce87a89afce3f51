package pagecache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/bpfobjects"
	"github.com/tailcam/tailcam/test/support/provoke"
)

var page = os.Getpagesize()

// disk is a directory for files that are not in memory alone, as those of TMPDIR may be.
func disk(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", ".pagecache-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	dir, err = filepath.Abs(dir)
	assert.NilError(t, err)
	return dir
}

// watch counts until the end of the test.
func watch(t *testing.T, o *Options) *Watch {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	w, err := Open(o)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, w.Close()) })
	return w
}

// told is the row of a file; since: what was told before.
func told(t *testing.T, w *Watch, path string) File {
	t.Helper()
	assert.NilError(t, w.Read())
	for _, f := range w.Report(ColumnTotal, 0).Files {
		if f.Path == path {
			return f
		}
	}
	t.Fatalf("%s is not told", path)
	return File{}
}

// write makes a file of pages, all of them clean on the disk.
func write(t *testing.T, path string, pages int) *os.File {
	t.Helper()
	f, err := os.Create(path)
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	for range pages {
		_, err = f.Write(bytes.Repeat([]byte{'x'}, page))
		assert.NilError(t, err)
	}
	assert.NilError(t, f.Sync())
	return f
}

// drop removes a file's pages from the cache.
func drop(t *testing.T, f *os.File) {
	t.Helper()
	assert.NilError(t, f.Sync())
	assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

func readAll(t *testing.T, f *os.File, chunk int) {
	t.Helper()
	_, err := f.Seek(0, io.SeekStart)
	assert.NilError(t, err)
	for buf := make([]byte, chunk); ; {
		n, err := f.Read(buf)
		if n == 0 {
			assert.Assert(t, err == io.EOF, "%v", err)
			return
		}
	}
}

// near allows one percent, and what others have done.
func near(t *testing.T, what string, got, want, others uint64) {
	t.Helper()
	off := max(got, want) - min(got, want)
	assert.Check(t, off <= want/100+others, "%s: %d, not %d, %d by others", what, got, want, others)
}

// byOthers is how many pages others have evicted: the kernel, if somebody needs memory or
// it is to give memory back.
func byOthers(f *File) (n uint64) {
	for _, r := range f.RemovedBy {
		if r.PID != os.Getpid() {
			n += r.Pages
		}
	}
	return n
}

// diff is what has happened since an earlier row.
func diff(now, before *File) (out File) {
	less := func(a, b *uint64) *uint64 {
		if a == nil {
			return nil
		}
		n := *a
		if b != nil {
			n -= *b
		}
		return &n
	}
	out = *now
	out.Hits, out.Lookups = less(now.Hits, before.Hits), less(now.Lookups, before.Lookups)
	out.Written, out.Dirtied = less(now.Written, before.Written), less(now.Dirtied, before.Dirtied)
	out.Misses -= before.Misses
	out.Evicted -= before.Evicted
	out.Removed -= before.Removed
	return out
}

// cached asks the kernel how many pages of a file are cached.
func cached(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var got unix.Cachestat_t
	err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &got, 0)
	if err == unix.ENOSYS { // before 6.5
		return uint64(resident(t, f))
	}
	assert.NilError(t, err)
	return got.Cache
}

func resident(t *testing.T, f *os.File) (n int) {
	t.Helper()
	info, err := f.Stat()
	assert.NilError(t, err)
	if info.Size() == 0 {
		return 0
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	defer unix.Munmap(m)
	in := make([]byte, (len(m)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&in[0])))
	assert.Assert(t, errno == 0, "%v", errno)
	for _, b := range in {
		n += int(b & 1)
	}
	return n
}

// TestCounts: a file is written, dropped, read cold and warm, dirtied, cut and removed, and
// each page is told once, as what it was. Reads are of any size.
func TestCounts(t *testing.T) {
	const pages, kept = 4096, 512 // the largest folio has 512
	for _, chunk := range []int{page, 3*page + 100, 1 << 20} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			path := filepath.Join(disk(t), "file")
			w := watch(t, nil)
			var before File
			others := uint64(0)
			step := func(what string, f *os.File) File {
				t.Helper()
				now, there := told(t, w, path), cached(t, f)
				for now.CachedPages != there { // others are at it, or were after it was told
					next := told(t, w, path)
					if byOthers(&next) == byOthers(&now) {
						break
					}
					now, there = next, cached(t, f)
				}
				others = byOthers(&now)
				d := diff(&now, &before)
				before = now
				assert.Check(t, now.ErrorPages == 0, "%s: %d more", what, now.ErrorPages)
				assert.Check(t, now.CachedPages == there, "%s: %d cached, %d told", what, there, now.CachedPages)
				if d.Hits == nil { // a kernel without these hooks
					none := uint64(0)
					d.Hits, d.Lookups = &none, nil
				}
				return d
			}
			f := write(t, path, pages)
			d := step("written", f)
			assert.Check(t, d.Misses == 0 && *d.Written == pages && *d.Hits == 0, "written: %+v", d)
			near(t, "dirtied", *d.Dirtied, pages, 0)

			drop(t, f)
			d = step("dropped", f)
			near(t, "evicted", d.Evicted, pages, others)
			assert.Check(t, d.Removed == 0 && d.Misses == 0, "dropped: %+v", d)

			readAll(t, f, chunk)
			d = step("cold", f)
			near(t, "misses", d.Misses, pages, others)
			assert.Check(t, *d.Dirtied == 0 && d.Evicted <= others, "cold: %+v", d)
			again := uint64(0) // pages of which two reads have a part
			if chunk%page != 0 {
				again = uint64(pages * page / chunk)
			}
			if d.Lookups != nil {
				near(t, "lookups", *d.Lookups, pages+again, 0)
				near(t, "first lookups", *d.Lookups-*d.Hits, pages, others)
			}

			readAll(t, f, chunk)
			d = step("warm", f)
			assert.Check(t, d.Misses <= others, "warm: %+v", d)
			if d.Lookups != nil {
				near(t, "hits", *d.Hits, pages+again, others)
			}

			_, err := f.WriteAt(make([]byte, pages*page), 0)
			assert.NilError(t, err)
			d = step("dirtied", f)
			near(t, "dirtied", *d.Dirtied, pages, 0)
			assert.Check(t, d.Misses+*d.Written <= others, "dirtied: %+v", d)

			assert.NilError(t, f.Truncate(int64(kept*page)))
			d = step("cut", f)
			near(t, "removed", d.Removed, pages-kept, others)
			assert.Check(t, d.Evicted <= others && d.CachedPages+others >= kept && d.CachedPages <= kept, "cut: %+v", d)

			assert.NilError(t, os.Remove(path))
			assert.NilError(t, f.Close())
			now := told(t, w, path)
			d = diff(&now, &before)
			near(t, "removed", d.Removed, kept, byOthers(&now))
			assert.Check(t, d.CachedPages == 0, "removed: %+v", d)
			own := func(how string) bool {
				return slices.ContainsFunc(now.RemovedBy, func(r Remover) bool { return r.How == how && r.PID == os.Getpid() })
			}
			assert.Check(t, own("invalidate") && own("truncate") && own("unlink"), "%+v", now.RemovedBy)
		})
	}
}

// TestFaults: pages that are touched through a mapping are asked for by faults.
func TestFaults(t *testing.T) {
	const pages = 1024
	path := filepath.Join(disk(t), "mapped")
	f := write(t, path, pages)
	drop(t, f)
	w := watch(t, nil)
	touch := func() {
		m, err := unix.Mmap(int(f.Fd()), 0, pages*page, unix.PROT_READ, unix.MAP_SHARED)
		assert.NilError(t, err)
		sum := 0
		for i := 0; i < len(m); i += page {
			sum += int(m[i])
		}
		assert.Check(t, sum == pages*'x')
		assert.NilError(t, unix.Munmap(m))
	}
	touch()
	cold := told(t, w, path)
	near(t, "misses", cold.Misses, pages, byOthers(&cold))
	touch()
	warm := told(t, w, path)
	assert.Check(t, warm.Misses <= cold.Misses+byOthers(&warm))
	if warm.Hits == nil {
		return // a kernel without these hooks
	}
	assert.Check(t, *cold.Lookups > 0 && *cold.Lookups <= pages, "%d lookups of %d pages", *cold.Lookups, pages)
	// A fault maps what is around it, too: at most 16 pages, or a folio that is larger.
	d := *warm.Hits - *cold.Hits
	assert.Check(t, d > 0 && d <= pages && d+byOthers(&warm) >= *warm.Lookups-*cold.Lookups, "%d hits of %d lookups", d, *warm.Lookups-*cold.Lookups)
}

// TestMany: with fewer counters than files, each row has its true number between what is told
// and that with the error; and the files with most are told.
func TestMany(t *testing.T) {
	const files, counters = 10000, 200
	dir := disk(t)
	truth := map[string]uint64{}
	buf := make([]byte, 10)
	for i := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), buf, 0o600))
	}
	w := watch(t, &Options{Files: counters, File: dir + "/*", Every: 50 * time.Millisecond})
	if w.lacks(ColumnHits) {
		return // a kernel that does not tell of reads; TestSummaryBounds goes on
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for i := range files {
		name := filepath.Join(dir, fmt.Sprint(i*7919%files)) // in no order that matters
		f, err := os.Open(name)
		assert.NilError(t, err)
		for range 1 + 20000/(i*7919%files+1) {
			n, err := f.ReadAt(buf, 0)
			assert.Assert(t, n == len(buf) && (err == nil || err == io.EOF), "%v", err)
			truth[name]++
		}
		f.Close()
	}
	stop()
	assert.NilError(t, <-done)
	r := w.Report(ColumnHits, 0)
	sum := uint64(0)
	for _, n := range truth {
		sum += n
	}
	near(t, "lookups of all", *r.Total.Lookups+r.LostPages, sum, 0) // not hits: the kernel may drop pages in between
	assert.Check(t, len(r.Files) == counters, "%d rows", len(r.Files))
	rows := map[string]bool{}
	worst := uint64(0)
	for i := range r.Files {
		f := &r.Files[i]
		n, ok := truth[f.Path]
		assert.Check(t, ok && *f.Lookups <= n && n <= *f.Lookups+f.ErrorPages, "%v: %d told, up to %d more; it was %d", f, *f.Lookups, f.ErrorPages, n)
		rows[f.Path] = true
		worst = max(worst, f.ErrorPages)
	}
	for name, n := range truth {
		assert.Check(t, rows[name] || n <= sum/counters+r.LostPages, "%s with %d of %d pages is not told", name, n, sum)
	}
	t.Logf("%d pages of %d files with %d counters: up to %d more, %d lost", sum, files, counters, worst, r.LostPages)
}

// TestNames: names of any bytes and depth, the same name twice, and a number that is used again.
func TestNames(t *testing.T) {
	dir := disk(t)
	w := watch(t, nil)
	deep := dir
	for range 40 {
		deep = filepath.Join(deep, strings.Repeat("d", 90))
		if os.Mkdir(deep, 0o700) != nil {
			break // PATH_MAX
		}
	}
	deep = filepath.Dir(deep)
	names := []string{"\x1b[2J\x1b]0;x\a", "line\nline", "\xff\xfe", "\u202egnp.exe", " ", "...", "(deleted)", strings.Repeat("n", 255), "a'b\"c\\"}
	read := func(path string) {
		assert.NilError(t, os.WriteFile(path, []byte("text"), 0o600))
		_, err := os.ReadFile(path)
		assert.NilError(t, err)
	}
	for _, n := range names {
		read(filepath.Join(dir, n))
	}
	for _, d := range []string{"one", "two"} {
		assert.NilError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
		read(filepath.Join(dir, d, "same"))
	}
	read(filepath.Join(deep, "bottom"))
	assert.NilError(t, w.Read())
	seen, bottom := map[string]int{}, ""
	for _, f := range w.Report(ColumnTotal, 0).Files {
		seen[f.Path]++
		if strings.HasSuffix(f.Path, "/bottom") {
			bottom = f.Path
			assert.Check(t, !f.Here)
		}
	}
	for _, n := range append(names, "one/same", "two/same") {
		assert.Check(t, seen[filepath.Join(dir, n)] == 1, "%q: %d times", n, seen[filepath.Join(dir, n)])
	}
	assert.Check(t, strings.HasPrefix(bottom, ".../ddd"), "%q", bottom)
	for range 2 { // ext4 uses the number at once again
		assert.NilError(t, os.Remove(filepath.Join(dir, "one/same")))
		read(filepath.Join(dir, "one/same"))
	}
	assert.NilError(t, w.Read())
	again := 0
	for _, f := range w.Report(ColumnTotal, 0).Files {
		if f.Path == filepath.Join(dir, "one/same") {
			again++
			assert.Check(t, *f.Dirtied == 1, "%v: %d dirtied", &f, *f.Dirtied)
		}
	}
	assert.Check(t, again == 3, "%d files of that name", again)
}

// TestFile: what does not match is not told.
func TestFile(t *testing.T) {
	dir := disk(t)
	for pattern, want := range map[string]string{
		"*.log": "a.log", dir + "/*.log": "a.log", dir + "/**": "a.log b.txt sub/c.log", "c.log": "sub/c.log", "/no/such/**": "",
	} {
		t.Run(pattern, func(t *testing.T) {
			w := watch(t, &Options{File: pattern})
			assert.NilError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
			for _, n := range []string{"a.log", "b.txt", "sub/c.log"} {
				assert.NilError(t, os.WriteFile(filepath.Join(dir, n), []byte(n), 0o600))
			}
			assert.NilError(t, w.Read())
			var got []string
			for _, f := range w.Report(ColumnTotal, 0).Files {
				if n, err := filepath.Rel(dir, f.Path); err == nil && !strings.HasPrefix(n, "..") {
					got = append(got, n)
				} else {
					assert.Check(t, strings.HasSuffix(pattern, ".log"), "%s is told", f.Path) // somebody else's log
				}
			}
			slices.Sort(got)
			want := strings.Fields(want)
			if pattern == "*.log" {
				want = append(want, "sub/c.log") // by its name, wherever it is
			}
			assert.DeepEqual(t, got, append([]string(nil), want...))
		})
	}
}

// TestWho: a neighbour in the same cgroup, others that delete and cut are told as such.
func TestWho(t *testing.T) {
	dir := disk(t)
	victim, large, gone, cut := filepath.Join(dir, "victim"), filepath.Join(dir, "large"), filepath.Join(dir, "gone"), filepath.Join(dir, "cut")
	for path, pages := range map[string]int{victim: 2048, large: 32768, gone: 300, cut: 400} {
		f := write(t, path, pages)
		drop(t, f)
		f.Close() // who has it open when it is deleted removes its pages
	}
	g := provoke.NewCgroup(t, "memory")
	g.Set(t, "memory.limit_in_bytes", "memory.max", fmt.Sprint(24<<20))
	w := watch(t, &Options{File: dir + "/*"})
	inGroup := func(path string) int {
		cmd := exec.Command("sh", "-c", `echo $$ >"$1/cgroup.procs" && exec cat "$2"`, "sh", g.Dir, path)
		out, err := cmd.StderrPipe()
		assert.NilError(t, err)
		assert.NilError(t, cmd.Start())
		text, _ := io.ReadAll(out)
		assert.NilError(t, cmd.Wait(), "%s", text)
		return cmd.Process.Pid
	}
	inGroup(victim)
	neighbour := inGroup(large)
	for _, args := range [][]string{{"cat", gone}, {"cat", cut}, {"rm", gone}, {"truncate", "-s", "0", cut}} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		assert.NilError(t, err, "%s", out)
	}
	by := func(path string) []Remover { f := told(t, w, path); return f.RemovedBy }
	has := func(path, how, comm string, pid int, owner string) uint64 {
		t.Helper()
		for _, r := range by(path) {
			if r.How == how && r.Comm == comm && (pid == 0 || r.PID == pid) && (owner == "" || strings.HasSuffix(r.Owner, owner)) {
				return r.Pages
			}
		}
		t.Errorf("%s: no %s by %s: %+v", path, how, comm, by(path))
		return 0
	}
	evicted := has(victim, "cgroup-reclaim", "cat", neighbour, "/"+filepath.Base(g.Dir))
	f := told(t, w, victim)
	assert.Check(t, evicted > 0 && evicted <= f.Evicted && f.CachedPages == 2048-f.Evicted && f.Misses == 2048, "%+v", f)
	assert.Check(t, has(gone, "unlink", "rm", 0, "") == 300)
	assert.Check(t, has(cut, "truncate", "truncate", 0, "") == 400)
}

// TestLeavesNothing: what Open has loaded goes with Close, also with one that is busy.
func TestLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	before := bpfobjects.Held(t, os.Getpid())
	for range 5 {
		w, err := Open(nil)
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(filepath.Join(disk(t), "x"), []byte("x"), 0o600))
		assert.NilError(t, w.Read())
		assert.Check(t, len(bpfobjects.Held(t, os.Getpid())) > len(before))
		assert.NilError(t, w.Close())
		assert.NilError(t, w.Close())
	}
	runtime.GC()
	assert.DeepEqual(t, bpfobjects.Held(t, os.Getpid()), before)
}
