package daemon

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/outbox"
)

// archive takes what is PUT, counts it by name, and keeps nothing of it.
type archive struct {
	mu   sync.Mutex
	puts map[string]int
	size map[string]int64
}

// ServeHTTP implements http.Handler.
func (a *archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	name := strings.TrimSuffix(path.Base(r.URL.Path), ".tailcam")
	switch {
	case err != nil:
	case r.Method == http.MethodPut:
		a.puts[name]++
		a.size[name] = n
		w.WriteHeader(http.StatusCreated)
	case a.puts[name] == 0:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("Content-Length", strconv.FormatInt(a.size[name], 10))
	}
}

// TestTriggersWhileTheTargetIsDown: of the snapshots that triggers take while nobody listens
// at the target, each arrives once when somebody does, or is counted as lost: 300, or TRIGGERS
// of them (`make triggers`).
func TestTriggersWhileTheTargetIsDown(t *testing.T) {
	needRoot(t)
	n := 300
	if s := os.Getenv("TRIGGERS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		assert.NilError(t, err)
	}
	for _, c := range []struct {
		name, quota string
		n           int
	}{{"room for all", "10GiB", n}, {"room for some", "1MiB", n / 3}} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			assert.NilError(t, err)
			address := l.Addr().String()
			assert.NilError(t, l.Close()) // the target is down
			h := newHome(t, rulesFile(napRule("nap", newUID())))
			d := h.start(t, "--upload-target", "http://"+address, "--upload-spool", h.dir+"/spool", "--upload-quota", c.quota, "--recorder-size", "128KiB")

			client, accepted, refused := api.NewClient(d.socket), map[string]bool{}, 0
			began := time.Now()
			for i := 0; len(accepted) < c.n; i++ {
				req := &api.TriggerRequest{Reason: "request " + strconv.Itoa(i) + " was slow", NoWait: true}
				if i%4 == 0 {
					req.PID, req.Last = os.Getpid(), "100ms"
				}
				reply, err := client.Trigger(t.Context(), req)
				if err != nil {
					text := err.Error() // both are no promise
					assert.Assert(t, strings.Contains(text, "already in progress: try again later") || strings.Contains(text, "too many triggers: root has "), text)
					refused++
					time.Sleep(10 * time.Millisecond)
					continue
				}
				accepted[reply.ID] = true
			}
			took := time.Since(began)
			u := d.status().Upload
			assert.Check(t, u.Sent == 0 && u.Failed > 0, "the target is down: %+v", u)

			lost := func() (total uint64, by map[string]uint64) {
				by = map[string]uint64{}
				s := d.status()
				for _, cause := range append([]string{"snapshot_failed"}, outbox.Causes...) {
					for _, l := range s.Losses {
						if l.Cause == cause {
							by[cause] += l.Count
							total += l.Count
						}
					}
				}
				return total, by
			}
			a := &archive{puts: map[string]int{}, size: map[string]int64{}}
			l, err = net.Listen("tcp", address)
			assert.NilError(t, err)
			server := &http.Server{Handler: a}
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			progress, last := time.Now(), uint64(0)
			for {
				missing, _ := lost()
				u = d.status().Upload
				if u.Sent+missing >= uint64(len(accepted)) && u.Waiting == 0 {
					break
				}
				if u.Sent+missing != last {
					progress, last = time.Now(), u.Sent+missing
				}
				if u.Next != nil && u.Next.After(progress) { // the longer the outage was, the later it tries again
					progress = *u.Next
				}
				assert.Assert(t, time.Since(progress) < hang, "%d of %d: %+v", last, len(accepted), u)
				time.Sleep(100 * time.Millisecond)
			}
			missing, by := lost()
			a.mu.Lock()
			defer a.mu.Unlock()
			t.Logf("%d triggers accepted in %s, %d refused; %d sent, %d lost: %v", len(accepted), took.Round(time.Millisecond), refused, len(a.puts), missing, by)
			assert.Check(t, len(a.puts)+int(missing) == len(accepted), "each is sent or counted")
			assert.Check(t, int(d.status().Upload.Sent) == len(a.puts))
			for id, times := range a.puts {
				assert.Check(t, times == 1 && accepted[id], "%s came %d times", id, times)
			}
			assert.Check(t, c.quota == "1MiB" || by[outbox.LostQuota] == 0, "%v", by)
			assert.Check(t, c.quota != "1MiB" || by[outbox.LostQuota] > 0, "%v", by)
		})
	}
}

// TestTriggersAcrossRestarts: what was taken while the daemon and the target are stopped and
// killed at random, and was told to be on disk, arrives once: 100 snapshots, or a third of
// TRIGGERS (`make triggers`).
func TestTriggersAcrossRestarts(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "systemd starts a service again that was killed")
	n := 100
	if s := os.Getenv("TRIGGERS"); s != "" {
		many, err := strconv.Atoi(s)
		assert.NilError(t, err)
		n = max(n, many/3)
	}
	a := &archive{puts: map[string]int{}, size: map[string]int64{}}
	target := newOutage(t, a)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	args := []string{"--upload-target", "http://" + target.address, "--upload-spool", h.dir + "/spool", "--upload-quota", "10GiB", "--recorder-size", "128KiB",
		"--snapshots-keep-count", strconv.Itoa(20 * n), "--snapshots-keep-bytes", "100GiB"}
	taken := map[string]bool{}
	began, kills, stops := time.Now(), 0, 0
	for len(taken) < n {
		d := h.start(t, args...)
		var mu sync.Mutex
		var asking sync.WaitGroup
		most, enough := 1+rand.N(max(n/8, 20)), make(chan struct{})
		got := 0
		for range 4 {
			asking.Go(func() {
				client := api.NewClient(d.socket)
				for i := 0; ; i++ {
					reply, err := client.Trigger(t.Context(), &api.TriggerRequest{Reason: "request " + strconv.Itoa(i) + " was slow"})
					if err != nil && d.ended() {
						return
					}
					mu.Lock()
					if err == nil {
						taken[reply.ID] = true
						if got++; got == most {
							close(enough)
						}
					}
					mu.Unlock()
					if err != nil {
						time.Sleep(5 * time.Millisecond) // limited, or about to end
					}
				}
			})
		}
		for asked := true; asked; {
			target.turn(rand.N(3) == 0)
			select {
			case <-enough:
				asked = false
			case <-time.After(rand.N(300 * time.Millisecond)):
			}
		}
		if rand.N(3) == 0 {
			stops++
			d.stop(syscall.SIGTERM)
		} else {
			kills++
			d.kill()
		}
		asking.Wait()
	}
	took := time.Since(began)
	target.turn(true)
	d := h.start(t, args...)
	missing := func() (list []string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for id := range taken {
			if a.puts[id] == 0 {
				list = append(list, id)
			}
		}
		return list
	}
	for before, progress := -1, time.Now(); ; time.Sleep(100 * time.Millisecond) {
		u := d.status().Upload
		left := len(missing()) + u.Waiting
		if left == 0 {
			break
		}
		if left != before {
			before, progress = left, time.Now()
		}
		if u.Next != nil && u.Next.After(progress) {
			progress = *u.Next
		}
		assert.Assert(t, time.Since(progress) < hang, "%d are missing: %q, %+v", left, missing(), u)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Logf("%d snapshots taken in %s by daemons of which %d were killed and %d stopped, the target gone %d times: %d arrived",
		len(taken), took.Round(time.Second), kills, stops, target.outages, len(a.puts))
	for id, times := range a.puts {
		assert.Check(t, times == 1, "%s came %d times", id, times)
	}
}

// outage is a server that is there, or is not.
type outage struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server // nil: it is not there
	outages int
}

func newOutage(t *testing.T, handler http.Handler) *outage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	assert.NilError(t, l.Close())
	o := &outage{t: t, handler: handler, address: l.Addr().String()}
	t.Cleanup(func() { o.turn(false) })
	return o
}

// turn begins, or ends with all connections.
func (o *outage) turn(on bool) {
	o.t.Helper()
	switch {
	case on && o.server == nil:
		l, err := net.Listen("tcp", o.address)
		assert.NilError(o.t, err)
		o.server = &http.Server{Handler: o.handler}
		go func(s *http.Server) { _ = s.Serve(l) }(o.server)
	case !on && o.server != nil:
		assert.Check(o.t, o.server.Close())
		o.server = nil
		o.outages++
	}
}
