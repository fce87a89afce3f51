package containers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/process"
)

func TestParseSocket(t *testing.T) {
	for s, want := range map[string]string{
		"cri:/run/a.sock":                     "",
		"docker:/run//b/../a.sock":            "",
		"":                                    "is neither cri:PATH nor docker:PATH",
		"/run/a.sock":                         "is neither cri:PATH nor docker:PATH",
		"unix:///run/a.sock":                  "is neither cri:PATH nor docker:PATH",
		"cri:a.sock":                          "has no absolute path",
		"docker:":                             "has no absolute path",
		"cri:/" + strings.Repeat("x", 107):    "is too long for a socket",
		"docker:///run/user/1000/podman.sock": "",
	} {
		got, err := ParseSocket(s)
		if want == "" {
			assert.Check(t, err == nil && filepath.IsAbs(got.Path) && !strings.Contains(got.Path, "//"), "%s: %+v, %v", s, got, err)
			continue
		}
		assert.Check(t, err != nil && err.Error() == want, "%s: %v", s, err)
	}
}

func id(n int) string { return fmt.Sprintf("%064x", n) }

// serve answers like Docker's service, on a socket of the test, until its end.
func serve(t *testing.T, list func(w http.ResponseWriter, id string)) Socket {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	assert.NilError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containers/json", func(w http.ResponseWriter, r *http.Request) {
		var f struct{ ID []string }
		if err := json.Unmarshal([]byte(r.FormValue("filters")), &f); err != nil || len(f.ID) != 1 {
			http.Error(w, "bad filter", http.StatusBadRequest)
			return
		}
		list(w, f.ID[0])
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go s.Serve(l)
	t.Cleanup(func() { _ = s.Close() }) // also what still answers
	return Socket{Docker, path}
}

func named(w http.ResponseWriter, id, name string) {
	_ = json.NewEncoder(w).Encode([]any{map[string]any{
		"Id": id, "Names": []string{"/" + name}, "Image": "shop/" + name + ":1", "Labels": map[string]string{"app": "shop", "secret": "x"},
	}})
}

func newLookup(t *testing.T, o Options) *Lookup {
	t.Helper()
	o.Labels = []string{"app"}
	l := New(&o)
	t.Cleanup(func() { assert.Check(t, l.Close()) })
	return l
}

// TestHostileRuntimes: what hangs, lies, floods or is down takes no time of Get, and no
// names from the others.
func TestHostileRuntimes(t *testing.T) {
	good := serve(t, func(w http.ResponseWriter, id string) { named(w, id, "good") })
	hang := make(chan struct{})
	defer close(hang)
	bad := []Socket{
		{Docker, filepath.Join(t.TempDir(), "none")},
		{CRI, filepath.Join(t.TempDir(), "none")},
		serve(t, func(http.ResponseWriter, string) { <-hang }),
		serve(t, func(w http.ResponseWriter, _ string) { named(w, id(999), "liar") }),
		serve(t, func(w http.ResponseWriter, _ string) { http.Error(w, "no", http.StatusInternalServerError) }),
		serve(t, func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, `[{"Id": 5}`) }),
		serve(t, func(w http.ResponseWriter, id string) {
			_, _ = fmt.Fprintf(w, `[{"Id": "%s", "Names": ["%s`, id, strings.Repeat("x", 2*maxAnswer))
		}),
		{CRI, good.Path}, // speaks something else
	}
	l := newLookup(t, Options{Sockets: append(bad, good), Timeout: time.Second})
	for n := range 100 {
		begin := time.Now()
		_, state := l.Get(id(n), "")
		assert.Check(t, state != Unknown, "container %d", n)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("Get took %s", took)
		}
	}
	for n := range 100 {
		c, state := l.Wait(id(n), "", time.Minute)
		want := Container{ID: id(n), Runtime: process.Docker, Name: "good", Image: "shop/good:1", Labels: map[string]string{"app": "shop"}}
		assert.Check(t, state == Known, "container %d", n)
		assert.DeepEqual(t, c, want)
	}
	// Only the runtime of the hint is asked.
	_, state := l.Wait(id(1000), process.CRIO, time.Minute)
	assert.Check(t, state == Unknown)
	_, state = l.Get("", process.Docker)
	assert.Check(t, state == Unknown)
}

// TestNoRuntime: that nobody answers is said once, with what to change; not if one does, or is asked
// still.
func TestNoRuntime(t *testing.T) {
	none := []Socket{{CRI, filepath.Join(t.TempDir(), "none")}, {Docker, filepath.Join(t.TempDir(), "none")}}
	good := serve(t, func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, "[]") })
	for _, c := range []struct {
		sockets []Socket
		said    int
	}{{none, 1}, {append(slices.Clone(none), good), 0}, {nil, 0}} {
		core, said := observer.New(zap.WarnLevel)
		l := newLookup(t, Options{Sockets: c.sockets, Log: zap.New(core), Retry: time.Millisecond})
		for n := range 20 {
			l.Wait(id(n), "", time.Minute)
			l.Wait(id(n), process.Containerd, time.Minute)
		}
		assert.Check(t, len(said.All()) == c.said, "%v: %v", c.sockets, said.All())
		if c.said > 0 {
			assert.Check(t, said.All()[0].ContextMap()["to_change"] == Advice)
		}
	}
	errs := Ask(t.Context(), append(slices.Clone(none), good))
	assert.Check(t, errors.Is(errs[0], fs.ErrNotExist) && errors.Is(errs[1], fs.ErrNotExist) && errs[2] == nil, "%v", errs)
}

// TestBounds: what runtimes say is short and printable, what is remembered is bounded, and
// so are questions.
func TestBounds(t *testing.T) {
	var asked atomic.Int64
	evil := strings.Repeat("\x1b[31m\u202e", 1000)
	socket := serve(t, func(w http.ResponseWriter, id string) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode([]any{map[string]any{
			"Id": id, "Names": []string{evil}, "Image": evil,
			"Labels": map[string]string{labelPod: evil, labelNamespace: "\xff\x00", "app": evil},
		}})
	})
	l := newLookup(t, Options{Sockets: []Socket{socket}, MaxEntries: 32, Retry: time.Millisecond})
	c, state := l.Wait(id(0), "", time.Minute)
	assert.Check(t, state == Known)
	for _, s := range []string{c.Name, c.Image, c.Pod, c.Namespace, c.Labels["app"]} {
		assert.Check(t, s != "" && len(s) <= maxName && !strings.ContainsAny(s, "\x1b\x00\u202e"), "%q", s)
	}
	for n := range 2000 {
		l.Get(id(n), "")
	}
	assert.Check(t, l.known.Size() <= 33, "%d are remembered", l.known.Size())
	assert.Check(t, l.Refused() > 0 && asked.Load() <= 2000-int64(l.Refused())+1, "%d asked, %d refused", asked.Load(), l.Refused())

	for { // refused ones are asked again
		if c, state := l.Wait(id(1), "", time.Second); state == Known {
			assert.Check(t, c.ID == id(1))
			break
		}
	}
}

// TestRetry: what is not known at first is asked for again, also where the runtime was down.
func TestRetry(t *testing.T) {
	var up atomic.Bool
	socket := serve(t, func(w http.ResponseWriter, id string) {
		if !up.Load() {
			_, _ = io.WriteString(w, "[]")
			return
		}
		named(w, id, "late")
	})
	l := newLookup(t, Options{Sockets: []Socket{socket}, Retry: 10 * time.Millisecond})
	_, state := l.Wait(id(1), "", time.Minute)
	assert.Check(t, state != Known && l.Missing())
	up.Store(true)
	for state != Known {
		_, state = l.Wait(id(1), "", time.Second)
	}
	assert.Check(t, !l.Missing())
}
