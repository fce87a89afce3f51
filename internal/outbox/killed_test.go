package outbox

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestKilled: the daemon, its sender, the server and their connections are killed at any
// time, and servers refuse; each snapshot arrives once, small ones and those that S3 takes in
// parts.
func TestKilled(t *testing.T) {
	eachTarget(t, func(t *testing.T, opts *Options, to received) {
		ids := store(t, opts.Snapshots, 40, 30<<10, "wakeup")
		opts.Bandwidth = 1 << 20
		switch to.(type) {
		case *s3Server, *sshServer: // an upload goes on where it was
			opts.Bandwidth = 16 << 20
			ids = append(ids, store(t, opts.Snapshots, 1, partSize+1<<20, "block")...)
		}
		host := HostDir(opts.Host)
		count := to.counting(t, host)
		end := to.trouble(t)
		defer end()
		opts.Log, opts.Guard, opts.Counts = nil, nil, nil
		line, err := json.Marshal(opts)
		assert.NilError(t, err)
		kills := 0
		for all := false; !all || kills < 3; kills++ {
			assert.Assert(t, kills < 500)
			cmd := exec.Command("/proc/self/exe", daemonRole, string(line))
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			assert.NilError(t, cmd.Start())
			time.Sleep(100*time.Millisecond + rand.N(300*time.Millisecond+time.Duration(kills)*20*time.Millisecond))
			if kills%2 == 0 { // the sender, too, at any place
				for _, pid := range descendants(cmd.Process.Pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				time.Sleep(rand.N(50 * time.Millisecond))
			}
			assert.NilError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			all = !slices.ContainsFunc(ids, func(id string) bool { return !exists(filepath.Join(opts.Spool, doneDir, id)) })
		}
		t.Logf("killed %d times", kills)
		end()
		for _, id := range ids {
			unpacked(t, to, opts, id)
		}
		want := map[string]int{}
		for _, id := range ids {
			want[newRedaction(nil, nil).fileName(id)] = 1
		}
		assert.Check(t, is.DeepEqual(count(), want))
	})
}

// descendants lists the processes below one.
func descendants(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range tasks {
		list, _ := os.ReadFile(f)
		for _, child := range strings.Fields(string(list)) {
			var n int
			if _, err := fmt.Sscan(child, &n); err == nil && n > 1 {
				pids = append(append(pids, n), descendants(n)...)
			}
		}
	}
	return pids
}

// faults lets a handler fail in each way that a client may see, while it is on.
type faults struct {
	handler                     http.Handler
	on                          atomic.Bool
	refused, cut, half, unheard atomic.Int64
}

// ServeHTTP implements http.Handler.
func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := 100
	if f.on.Load() {
		n = rand.N(100)
	}
	switch {
	case n < 10:
		f.refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case n < 17: // before anything was read
		f.cut.Add(1)
	case n < 24: // in the middle
		f.half.Add(1)
		_, _ = io.CopyN(io.Discard, r.Body, rand.N(max(1, r.ContentLength)))
	case n < 34: // after all was done, which the client does not learn
		f.unheard.Add(1)
		f.handler.ServeHTTP(httptest.NewRecorder(), r)
	default:
		f.handler.ServeHTTP(w, r)
		return
	}
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

func (f *faults) begin(t *testing.T) (end func()) {
	f.on.Store(true)
	return sync.OnceFunc(func() {
		f.on.Store(false)
		t.Logf("%d requests refused, %d cut before, %d in the middle, %d after they were done", f.refused.Load(), f.cut.Load(), f.half.Load(), f.unheard.Load())
		assert.Check(t, f.refused.Load()+f.cut.Load()+f.half.Load()+f.unheard.Load() > 0, "nothing failed: this proves nothing")
	})
}

func (w *webServer) trouble(t *testing.T) func() { return w.faults.begin(t) }
func (s *s3Server) trouble(t *testing.T) func()  { return s.faults.begin(t) }
func (localDir) trouble(*testing.T) func()       { return func() {} }

// trouble kills sshd with its connections, and starts it again.
func (s *sshServer) trouble(t *testing.T) (end func()) {
	stop, ended, restarts := make(chan struct{}), make(chan error), 0
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(50*time.Millisecond + rand.N(400*time.Millisecond)):
			}
			s.stop()
			time.Sleep(rand.N(100 * time.Millisecond))
			if err := s.tryStart(); err != nil {
				ended <- err
				return
			}
			restarts++
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		assert.Check(t, <-ended)
		t.Logf("sshd was killed %d times", restarts)
		assert.Check(t, restarts > 0, "nothing failed: this proves nothing")
	})
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// namesBelow returns what was counted by paths, by names below a directory.
func namesBelow(dir string, counts map[string]int) map[string]int {
	names := map[string]int{}
	for path, n := range counts {
		names[strings.TrimPrefix(path, dir)] = n
	}
	return names
}

func (w *webServer) counting(_ *testing.T, dir string) func() map[string]int {
	return func() (n map[string]int) {
		w.set(func() { n = namesBelow("/"+dir+"/", w.puts) })
		return n
	}
}

func (s *s3Server) counting(_ *testing.T, dir string) func() map[string]int {
	return func() map[string]int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return namesBelow("/slow/"+dir+"/", s.puts)
	}
}

// counting counts how often a final name is made, whoever does so.
func (d localDir) counting(t *testing.T, dir string) func() map[string]int {
	at := filepath.Join(string(d), dir)
	assert.NilError(t, os.MkdirAll(at, 0o755))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	assert.NilError(t, err)
	in := os.NewFile(uintptr(fd), "inotify")
	_, err = unix.InotifyAddWatch(fd, at, unix.IN_MOVED_TO|unix.IN_CREATE) // sshd links the final name
	assert.NilError(t, err)
	counts, mu, ended := map[string]int{}, sync.Mutex{}, make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 64<<10)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return // closed
			}
			mu.Lock()
			for at := 0; at < n; {
				event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
				name := buf[at+unix.SizeofInotifyEvent:][:event.Len]
				if name := strings.TrimRight(string(name), "\x00"); filepath.Ext(name) != partExt {
					counts[name]++ // "": the queue was too long
				}
				at += unix.SizeofInotifyEvent + int(event.Len)
			}
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-ended
	})
	return func() map[string]int {
		time.Sleep(100 * time.Millisecond) // the kernel has queued all, and the reader reads on
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}
