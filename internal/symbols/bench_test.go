package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// measured runs addresses of a process through resolvers, new ones and then one
// that knows them, and reports what came of it.
func measured(b *testing.B, pid int, addrs []uint64) {
	b.Helper()
	report := func(b *testing.B, addrs []uint64, s Stack, r *Resolver) {
		named, lined, inlined := 0, 0, 0
		for i, f := range s.Frames {
			if !strings.HasPrefix(f, "[unknown]") {
				named++
			}
			if len(s.Sources) > i && s.Sources[i].known() {
				lined++
				inlined += len(s.Sources[i].Inlined)
			}
		}
		n := float64(len(addrs))
		b.ReportMetric(float64(named)/n*100, "%named")
		b.ReportMetric(float64(lined)/n*100, "%lines")
		b.ReportMetric(float64(inlined), "inlined")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/frame")
		stats := r.Stats()
		b.ReportMetric(float64(stats.Bytes)/1024, "KiB-names")
		b.ReportMetric(float64(stats.LineBytes)/1024, "KiB-lines")
	}
	first := func(addrs []uint64) func(b *testing.B) {
		return func(b *testing.B) {
			var s Stack
			var r *Resolver
			for b.Loop() {
				r = New(&Options{Timeout: time.Minute})
				s = r.User(pid, addrs)
				for _, f := range r.lines.files { // else they stay open for a while
					f.busy <- struct{}{}
					f.close()
					<-f.busy
				}
			}
			report(b, addrs, s, r)
		}
	}
	b.Run("one-cold", first(addrs[:1]))
	b.Run("all-cold", first(addrs))
	b.Run("all-warm", func(b *testing.B) {
		r := New(&Options{Timeout: time.Minute})
		s := r.User(pid, addrs)
		for b.Loop() {
			s = r.User(pid, addrs)
		}
		report(b, addrs, s, r)
	})
}

// startBench starts a program that waits for the end of its input.
func startBench(b *testing.B, path string, args ...string) int {
	b.Helper()
	p := child.Talk(b, exec.Command(path, args...))
	time.Sleep(200 * time.Millisecond) // the loader maps its libraries
	return p.Process.Pid
}

// functionsOf are addresses in functions of a mapped file.
func functionsOf(b *testing.B, pid int, module string, most int) []uint64 {
	b.Helper()
	maps, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	assert.NilError(b, err)
	defer maps.Close()
	var out []uint64
	_ = scanMaps(maps, func(m mapping) bool {
		if !m.executable || filepath.Base(m.name) != module {
			return true
		}
		f, err := os.Open(m.name)
		assert.NilError(b, err)
		defer f.Close()
		t, err := readTable(f, 1<<20)
		assert.NilError(b, err)
		for _, s := range t.symbols {
			for _, g := range t.segments {
				if at := s.start + min(uint64(s.size)/2, 4); g.executable && at >= g.addr && at-g.addr < g.size {
					if a := at - g.addr + g.offset; a >= m.offset && a-m.offset < m.end-m.start {
						out = append(out, m.start+a-m.offset)
					}
				}
			}
		}
		return true
	})
	assert.Assert(b, len(out) != 0, "process %d has no %s", pid, module)
	step := max(len(out)/most, 1)
	picked := out[:0]
	for i := 0; i < len(out) && len(picked) < most; i += step {
		picked = append(picked, out[i])
	}
	return picked
}

// BenchmarkResolve takes stacks' worth of addresses of real programs: the C
// library with its debug package, a Go program, and what else there is.
func BenchmarkResolve(b *testing.B) {
	b.Run("libc", func(b *testing.B) {
		pid := startBench(b, "/bin/cat")
		measured(b, pid, functionsOf(b, pid, "libc.so.6", 500))
	})
	b.Run("go", func(b *testing.B) {
		self, err := os.Executable()
		assert.NilError(b, err)
		measured(b, os.Getpid(), functionsOf(b, os.Getpid(), filepath.Base(self), 500))
	})
	b.Run("node", func(b *testing.B) {
		path, err := exec.LookPath("node")
		if err != nil {
			b.Skip(err)
		}
		pid := startBench(b, path, "-i")
		measured(b, pid, functionsOf(b, pid, filepath.Base(path), 500))
	})
}

// BenchmarkVmlinux wants the path of a real vmlinux with debug information in
// TAILCAM_VMLINUX, and looks 500 of its functions up.
func BenchmarkVmlinux(b *testing.B) {
	path := os.Getenv("TAILCAM_VMLINUX")
	if path == "" {
		b.Skip("TAILCAM_VMLINUX is not set")
	}
	f, err := os.Open(path)
	assert.NilError(b, err)
	defer f.Close()
	t, err := readTable(f, 1<<21)
	assert.NilError(b, err)
	var addrs []uint64
	for i := 0; i < len(t.symbols); i += len(t.symbols)/500 + 1 {
		if s := t.symbols[i]; s.size > 16 {
			addrs = append(addrs, s.start+4)
		}
	}
	l := newLineCache(128<<20, 1)
	where := lineOrigin{file: contentID{"vmlinux", 0}, table: &table{hasLines: true}, open: func() (*mapped, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return mapFile(f)
	}}
	look := func(addrs []uint64) (known, inlined int) {
		for _, s := range l.get(b.Context(), where, addrs) {
			if s != nil && s.known() {
				known++
				inlined += len(s.Inlined)
			}
		}
		return known, inlined
	}
	for b.Loop() {
		begin := time.Now()
		look(addrs[:1])
		first := time.Since(begin)
		begin = time.Now()
		known, inlined := look(addrs)
		b.ReportMetric(float64(first.Milliseconds()), "ms-first")
		b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(len(addrs)), "us/frame")
		b.ReportMetric(float64(known)/float64(len(addrs))*100, "%lines")
		b.ReportMetric(float64(inlined), "inlined")
		b.ReportMetric(float64(l.bytes())/1024, "KiB-lines")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapInuse)/(1<<20), "MiB-heap")
	}
}
