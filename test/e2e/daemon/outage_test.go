package daemon

import (
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
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
