package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/snapshot"
)

// daemonRole runs an outbox in a process that can be killed.
const daemonRole = "tailcam-test-outbox"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == Verb:
		os.Exit(Main())
	case len(os.Args) > 2 && os.Args[1] == confinedRole:
		tryConfined(os.Args[2])
		os.Exit(0)
	case len(os.Args) > 2 && os.Args[1] == daemonRole:
		var opts Options
		if err := json.Unmarshal([]byte(os.Args[2]), &opts); err != nil {
			panic(err)
		}
		o, err := New(&opts)
		if err != nil {
			panic(err)
		}
		o.Run(context.Background())
	}
	os.Exit(m.Run())
}

// store makes snapshots, each of one small file and one of bytes of noise.
func store(t testing.TB, dir string, n, bytes int, rule string) (ids []string) {
	t.Helper()
	for i := range n {
		id := snapshot.ID{Time: time.Unix(1_800_000_000, int64(i)), Rule: rule, Number: uint64(i + 1)}.String()
		ids = append(ids, id)
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, id), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, id, "snapshot.json"), []byte(id), 0o644))
		if bytes > 0 {
			noise := make([]byte, bytes)
			for i := range noise {
				noise[i] = byte(rand.Uint32())
			}
			assert.NilError(t, os.WriteFile(filepath.Join(dir, id, "noise"), noise, 0o644))
		}
	}
	return ids
}

func options(t testing.TB, target string) *Options {
	dir := t.TempDir()
	o := &Options{
		Spool: filepath.Join(dir, "spool"), Snapshots: filepath.Join(dir, "snapshots"), Target: target, Host: "web/1",
		Quota: 1 << 40, Age: time.Hour, FirstPause: 10 * time.Millisecond, LongestPause: 200 * time.Millisecond, Stall: 20 * time.Second,
		Counts: &Counts{},
	}
	assert.NilError(t, os.Mkdir(o.Snapshots, 0o755))
	return o
}

// run runs an outbox until stop is called or the test ends.
func run(t testing.TB, opts *Options) (o *Outbox, stop func()) {
	o, err := New(opts)
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return o, stop
}

// until waits for what must come, for two minutes: longer than any disturbance.
func until(t testing.TB, o *Outbox, what string, ok func(Status) bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(o.Status()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", what, o.Status())
		}
	}
}

// unpacked checks that the target has a snapshot, as it is in the store.
func unpacked(t *testing.T, to received, opts *Options, id string) {
	t.Helper()
	data, ok := to.get(t, HostDir(opts.Host)+"/"+id+pack.Ext)
	assert.Assert(t, ok, "%s is not there", id)
	dir, err := pack.Read(bytes.NewReader(data), t.TempDir())
	assert.NilError(t, err)
	want, err := os.ReadFile(filepath.Join(opts.Snapshots, id, "snapshot.json"))
	assert.NilError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "snapshot.json"))
	assert.Check(t, err == nil && bytes.Equal(got, want), "%s: %q, %v", id, got, err)
}

// eachTarget runs a test with each kind of target.
func eachTarget(t *testing.T, test func(t *testing.T, opts *Options, to received)) {
	t.Run("http", func(t *testing.T) {
		w := newWebServer(t)
		w.auth = "Bearer the-secret-key"
		opts := options(t, w.URL+"/")
		opts.Credentials = filepath.Join(t.TempDir(), "token")
		assert.NilError(t, os.WriteFile(opts.Credentials, []byte(w.auth+"\n"), 0o600))
		test(t, opts, w)
	})
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		test(t, options(t, "file://"+dir), localDir(dir))
	})
	t.Run("s3", func(t *testing.T) {
		s := newS3Server(t)
		opts := options(t, "s3://slow/")
		opts.S3Endpoint, opts.S3Region = s.URL, "us-east-1"
		test(t, opts, s)
	})
	t.Run("sftp", func(t *testing.T) {
		s := newSSHServer(t)
		opts := options(t, s.url())
		opts.Credentials, opts.KnownHosts = s.key, s.known
		test(t, opts, s)
	})
}

// TestTargets: each takes small and large packs whole; what it has, it is not sent again.
func TestTargets(t *testing.T) {
	eachTarget(t, func(t *testing.T, opts *Options, to received) {
		small := store(t, opts.Snapshots, 3, 100, "wakeup")
		large := store(t, opts.Snapshots, 1, 20<<20, "block")
		o, stop := run(t, opts) // finds these
		late := store(t, opts.Snapshots, 1, 10, "manual")
		released := make(chan struct{})
		o.Add(late[0], func() { close(released) })
		<-released
		until(t, o, "send", func(s Status) bool { return s.Sent == 5 && s.State == StateIdle })
		for _, id := range slices.Concat(small, large, late) {
			unpacked(t, to, opts, id)
		}
		s := o.Status()
		assert.Check(t, s.Waiting == 0 && s.Bytes == 0 && s.Existed == 0 && s.SentBytes > 20<<20 && !s.Last.IsZero(), "%+v", s)
		stop()
		left, err := os.ReadDir(filepath.Join(opts.Spool, queueDir))
		assert.Check(t, err == nil && len(left) == 0, "%v, %v", left, err)

		// Without its memory, it asks the target.
		assert.NilError(t, os.RemoveAll(opts.Spool))
		opts.Counts = &Counts{}
		o, _ = run(t, opts)
		until(t, o, "ask again", func(s Status) bool { return s.Sent == 5 })
		s = o.Status()
		assert.Check(t, s.Existed == 5 && s.SentBytes == 0, "%+v", s)
	})
}

// TestOutage: ten thousand snapshots while the target is down arrive once each, when it is
// back; none is lost, whatever retention has removed meanwhile.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short")
	}
	w := newWebServer(t)
	w.down = true
	opts := options(t, w.URL)
	const n = 10_000
	if dir, err := os.MkdirTemp("/dev/shm", "tailcam-outbox"); err == nil { // a disk takes longer, and finds no more
		t.Cleanup(func() { os.RemoveAll(dir) })
		opts.Spool, opts.Snapshots = filepath.Join(dir, "spool"), filepath.Join(dir, "snapshots")
		assert.NilError(t, os.Mkdir(opts.Snapshots, 0o755))
	}
	o, stop := run(t, opts)
	ids := store(t, opts.Snapshots, n, 0, "wakeup")
	began := time.Now()
	for _, id := range ids {
		o.Add(id, nil)
	}
	took := time.Since(began)
	until(t, o, "pack", func(Status) bool { n, _ := o.spool.Load().sizeIfOpen(); return n == len(ids) })
	t.Logf("%d added in %s, packed in %s", n, took, time.Since(began))
	for _, id := range ids[:n/2] {
		assert.NilError(t, os.RemoveAll(filepath.Join(opts.Snapshots, id)))
	}
	stop()
	o, _ = run(t, opts)
	until(t, o, "fail", func(s Status) bool { return s.State == StateWaiting && s.Failed > 1 })
	w.set(func() { w.down = false })
	back := time.Now()
	until(t, o, "send", func(s Status) bool { return s.Sent == n && s.Waiting == 0 })
	t.Logf("sent in %s", time.Since(back))
	w.set(func() {
		assert.Check(t, is.Len(w.files, n))
		for name, puts := range w.puts {
			assert.Check(t, puts == 1, "%s came %d times", name, puts)
		}
	})
	for _, cause := range Causes {
		assert.Check(t, is.Len(opts.Counts.Lost(cause), 0), cause)
	}
}

// TestQuota: what the spool cannot hold is counted, the rule that takes most pays, and the
// rest arrives.
func TestQuota(t *testing.T) {
	w := newWebServer(t)
	w.down = true
	opts := options(t, w.URL)
	opts.Quota = 100 << 10
	rare := store(t, opts.Snapshots, 2, 4<<10, "rare")
	noisy := store(t, opts.Snapshots, 50, 4<<10, "noisy")
	huge := store(t, opts.Snapshots, 1, 200<<10, "huge")
	o, stop := run(t, opts)
	until(t, o, "pack", func(Status) bool {
		n, _ := o.spool.Load().sizeIfOpen()
		return n > 0 && n+int(lost(opts, LostQuota)) == 53
	})
	s := o.Status()
	assert.Check(t, s.Bytes <= opts.Quota && s.Bytes > opts.Quota/2, "%+v", s)
	by := opts.Counts.Lost(LostQuota)
	assert.Check(t, by["rare"] == 0 && by["noisy"] > 20 && by["huge"] == 1, "%v", by)
	stop()
	o, _ = run(t, opts) // counts none of them again
	w.set(func() { w.down = false })
	until(t, o, "send", func(s Status) bool { return s.Sent+lost(opts, LostQuota) == 53 && s.Waiting == 0 })
	for _, id := range rare {
		unpacked(t, w, opts, id)
	}
	unpacked(t, w, opts, noisy[len(noisy)-1])
	_, there := w.get(t, HostDir(opts.Host)+"/"+huge[0]+pack.Ext)
	assert.Check(t, !there)
}

// sizeIfOpen is size of a spool that may not be open yet.
func (s *spool) sizeIfOpen() (int, int64) {
	if s == nil {
		return 0, 0
	}
	return s.size()
}

func lost(opts *Options, cause string) (n uint64) {
	for _, k := range opts.Counts.Lost(cause) {
		n += k
	}
	return n
}

// TestFullDisk: what must stay free stays free.
func TestFullDisk(t *testing.T) {
	w := newWebServer(t)
	opts := options(t, w.URL)
	opts.MinFree = 1 << 60
	store(t, opts.Snapshots, 3, 10, "wakeup")
	o, _ := run(t, opts)
	until(t, o, "give up", func(Status) bool { return lost(opts, LostQuota) == 3 })
	assert.Check(t, o.Status().Sent == 0)
}

// TestExpiry: what has waited for too long is counted, and no clock that is set makes it so.
func TestExpiry(t *testing.T) {
	w := newWebServer(t)
	w.down = true
	opts := options(t, w.URL)
	store(t, opts.Snapshots, 3, 10, "wakeup")
	o, stop := run(t, opts)
	until(t, o, "pack", func(s Status) bool { return s.Waiting == 3 && s.Failed > 0 })
	assert.Check(t, lost(opts, LostExpired) == 0)
	stop()
	opts.Age = time.Nanosecond
	o, _ = run(t, opts)
	until(t, o, "expire", func(s Status) bool {
		o.mu.Lock()
		o.rescan = true
		o.mu.Unlock()
		return lost(opts, LostExpired) >= 2 // one may be under way
	})
	assert.Check(t, lost(opts, LostMissed) == 0)

	opts = options(t, w.URL)
	assert.NilError(t, os.MkdirAll(opts.Spool, 0o700))
	s, err := openSpool(opts.Spool, &redaction{})
	assert.NilError(t, err)
	s.started = s.started.Add(-time.Hour)
	assert.NilError(t, s.close())
	s, err = openSpool(opts.Spool, &redaction{})
	assert.NilError(t, err)
	assert.Check(t, s.now() >= time.Hour && s.now() < 2*time.Hour, "%s", s.now())
	assert.NilError(t, s.close())
}

// TestMissed: a snapshot that retention was faster to remove is counted.
func TestMissed(t *testing.T) {
	opts := options(t, "file://"+t.TempDir())
	o, _ := run(t, opts)
	released := make(chan struct{})
	o.Add(snapshot.ID{Time: time.Now(), Rule: "wakeup", Number: 7}.String(), func() { close(released) })
	<-released
	until(t, o, "count", func(Status) bool { return opts.Counts.Lost(LostMissed)["wakeup"] == 1 })
}

// TestHangs: a server that never answers costs one attempt, and a sender that stands still
// is replaced.
func TestHangs(t *testing.T) {
	w := newWebServer(t)
	hang := make(chan struct{})
	inner := w.Config.Handler
	hangs := true
	w.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		wait := hangs
		w.mu.Unlock()
		if wait {
			<-hang
		}
		inner.ServeHTTP(out, r)
	})
	opts := options(t, w.URL)
	opts.Stall = 300 * time.Millisecond
	ids := store(t, opts.Snapshots, 2, 100, "wakeup")
	o, _ := run(t, opts)
	until(t, o, "give up", func(s Status) bool { return s.Failed > 1 })
	w.set(func() { hangs = false })
	close(hang)
	until(t, o, "send", func(s Status) bool { return s.Sent == 2 })

	pid := o.Status().PID
	assert.NilError(t, syscall.Kill(pid, syscall.SIGSTOP))
	late := store(t, opts.Snapshots, 3, 100, "block")
	for _, id := range late {
		o.Add(id, nil)
	}
	until(t, o, "replace the sender", func(s Status) bool { return s.Sent == 5 })
	assert.Check(t, o.Status().PID != pid)
	for _, id := range append(ids, late...) {
		unpacked(t, w, opts, id)
	}
}

// TestSecrets: credentials are in no error, status, or log, and go to no other server.
func TestSecrets(t *testing.T) {
	core, logged := observer.New(zap.DebugLevel)
	elsewhere := newWebServer(t)
	eachTarget(t, func(t *testing.T, opts *Options, to received) {
		opts.Log = zap.New(core)
		switch s := to.(type) {
		case *webServer:
			s.auth = "Bearer another"
		case *s3Server:
			s.fail = func(*http.Request) bool { return true }
		case *sshServer:
			opts.KnownHosts = filepath.Join(t.TempDir(), "none")
			assert.NilError(t, os.WriteFile(opts.KnownHosts, nil, 0o644))
		default:
			return
		}
		store(t, opts.Snapshots, 1, 0, "wakeup")
		o, _ := run(t, opts)
		until(t, o, "fail", func(s Status) bool { return s.Failed > 0 })
		s := o.Status()
		t.Logf("%s", s.Error)
		assert.Check(t, !strings.Contains(fmt.Sprintf("%+v", s), "the-secret-key") && !strings.Contains(s.Error, "\x1b") && s.Error != "", "%+v", s)
		if _, ok := to.(*sshServer); ok {
			assert.Check(t, is.Contains(s.Error, "ssh-keyscan"))
		}
	})
	for _, e := range logged.All() {
		assert.Check(t, !strings.Contains(fmt.Sprint(e.Message, e.ContextMap()), "the-secret-key"), "%v", e)
	}
	assert.Check(t, logged.Len() > 0)

	redirects := newWebServer(t)
	redirects.Config.Handler = http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect)
	opts := options(t, redirects.URL)
	opts.Credentials = filepath.Join(t.TempDir(), "token")
	assert.NilError(t, os.WriteFile(opts.Credentials, []byte("Bearer the-secret-key"), 0o600))
	store(t, opts.Snapshots, 1, 0, "wakeup")
	o, _ := run(t, opts)
	until(t, o, "fail", func(s Status) bool { return strings.Contains(s.Error, "307") })
	elsewhere.set(func() { assert.Check(t, len(elsewhere.files) == 0 && elsewhere.refused == 0) })
}

// TestParse: a target that cannot be meant is refused, and no secret is repeated.
func TestParse(t *testing.T) {
	for target, want := range map[string]string{
		"": "does not begin", "bucket": "does not begin", "ftp://x/": "does not begin", "https://u:secret@x/": "has a user",
		"sftp://u:secret@x/": "has a user or a password", "https://x/?sig=secret": "has a query", "file://host/x": "absolute path", "file://": "absolute path",
		"s3://": "no host", "s3://B/": "bucket name", "sftp://host/x": "has no user", "https:///x": "no host", "https://x/#secret": "fragment",
		"s3://slow/a": "", "https://x/a": "", "sftp://u@x:22/a": "", "file:///a": "",
	} {
		_, err := Parse(target)
		if want == "" {
			assert.Check(t, err, target)
			continue
		}
		assert.Check(t, is.ErrorContains(err, want), target)
		assert.Check(t, err == nil || !strings.Contains(err.Error(), "secret"), "%v", err)
	}
	assert.Equal(t, HostDir("../web/1 ü"), "_web_1__")
	assert.Equal(t, HostDir(".."), "localhost")
	for target, want := range map[string]string{
		"s3://slow/a": "s3://slow/a/web_1/ID.tailcam", "https://x:8443/a%20b/": "https://x:8443/a%20b/web_1/ID.tailcam", "http://x": "http://x/web_1/ID.tailcam",
		"sftp://u@x:22/a": "", "file:///a": "", "": "", "https://u:secret@x/": "",
	} {
		assert.Equal(t, Link(target, "web/1", "ID", nil), want, target)
		assert.Equal(t, Link(target, "web/1", "ID", redact.Usual), strings.Replace(want, "ID.", "ID.redacted-usual.", 1), target)
	}
}

// TestHostileDir: a directory where others write leads nowhere else.
func TestHostileDir(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	opts := options(t, "file://"+dir)
	assert.NilError(t, os.Symlink(outside, filepath.Join(dir, HostDir(opts.Host))))
	store(t, opts.Snapshots, 1, 0, "wakeup")
	o, _ := run(t, opts)
	until(t, o, "refuse", func(s Status) bool { return s.Failed > 0 })
	assert.NilError(t, os.Remove(filepath.Join(dir, HostDir(opts.Host))))
	until(t, o, "send", func(s Status) bool { return s.Sent == 1 })
	left, err := os.ReadDir(outside)
	assert.Check(t, err == nil && len(left) == 0)
}

// TestResume: an upload that was interrupted goes on where it was, with SFTP and S3.
func TestResume(t *testing.T) {
	const size = 30 << 20
	file, err := os.Create(filepath.Join(t.TempDir(), "pack"))
	assert.NilError(t, err)
	defer file.Close()
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	_, err = file.Write(noise)
	assert.NilError(t, err)
	send := func(to target, most int64) (sent int64, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := &object{file: file, bytes: size, sha256: "sum"}
		o.body = func(ctx context.Context, from int64) io.Reader {
			return &body{ctx: ctx, in: io.NewSectionReader(file, from, size-from), progress: func() {
				if sent += chunk; sent > most {
					cancel()
				}
			}}
		}
		_, err = to.put(ctx, "host/pack", o)
		to.close()
		return sent, err
	}
	for name, c := range map[string]func(t *testing.T) (target, received, string){
		"sftp": func(t *testing.T) (target, received, string) {
			s := newSSHServer(t)
			j := &job{Target: s.url(), Credentials: s.key, KnownHosts: s.known, Stall: time.Minute}
			to, err := newTarget(j)
			assert.NilError(t, err)
			return to, s, "host/pack"
		},
		"s3": func(t *testing.T) (target, received, string) {
			s := newS3Server(t)
			to, err := newTarget(&job{Target: "s3://slow/a", S3Endpoint: s.URL, S3Region: "us-east-1", Stall: time.Minute})
			assert.NilError(t, err)
			return to, s, "a/host/pack"
		},
	} {
		t.Run(name, func(t *testing.T) {
			to, server, file := c(t)
			first, err := send(to, size*2/3)
			assert.Assert(t, err != nil, "sent %d", first)
			second, err := send(to, 2*size)
			assert.NilError(t, err)
			t.Logf("%d bytes, then %d of %d", first, second, size)
			assert.Check(t, second < size*2/3)
			data, ok := server.get(t, file)
			assert.Check(t, ok && bytes.Equal(data, noise))
			third, err := send(to, 2*size)
			assert.Check(t, err == nil && third == 0, "%v", err)
		})
	}
}

// TestResumeAnother: a pack that was made anew does not go on where another one of its name
// was interrupted.
func TestResumeAnother(t *testing.T) {
	s := newSSHServer(t)
	to, err := newTarget(&job{Target: s.url(), Credentials: s.key, KnownHosts: s.known, Stall: time.Minute})
	assert.NilError(t, err)
	defer to.close()
	const size = 8 << 20
	send := func(fill byte, most int64) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		data, sent := bytes.Repeat([]byte{fill}, size), int64(0)
		o := &object{bytes: size, sha256: strings.Repeat(string(fill), 64)}
		o.body = func(ctx context.Context, from int64) io.Reader {
			return &body{ctx: ctx, in: bytes.NewReader(data[from:]), progress: func() {
				if sent += chunk; sent > most {
					cancel()
				}
			}}
		}
		_, err := to.put(ctx, "host/pack", o)
		to.close()
		return err
	}
	assert.Assert(t, send('a', size/2) != nil)
	assert.NilError(t, send('b', 2*size))
	data, ok := s.get(t, "host/pack")
	assert.Check(t, ok && bytes.Equal(data, bytes.Repeat([]byte{'b'}, size)), "a mixture of both")
}

// TestBandwidth: the limit is kept.
func TestBandwidth(t *testing.T) {
	w := newWebServer(t)
	opts := options(t, w.URL)
	opts.Bandwidth = 256 << 10
	store(t, opts.Snapshots, 1, 512<<10, "wakeup")
	began := time.Now()
	o, _ := run(t, opts)
	until(t, o, "send", func(s Status) bool { return s.Sent == 1 })
	assert.Check(t, time.Since(began) > 1500*time.Millisecond, "%s", time.Since(began))
}
