package otlp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/collector"
	"github.com/tailcam/tailcam/tracker/events"
)

// hang is how long a test waits for what has to happen.
const hang = 60 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !holds(); {
		assert.Assert(t, !time.Now().After(end), "waited %s in vain until %s", hang, what)
		time.Sleep(5 * time.Millisecond)
	}
}

// outlier is one of a hostile process.
func outlier(rule string, n int) *events.Outlier {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	return &events.Outlier{
		ID: fmt.Sprintf("%s-%d", rule, n), Seq: uint64(n), Time: time.Unix(1, 5), Rule: rule, Track: "syscall", Cause: events.CauseThreshold,
		DelayNS: 48e6, ThresholdNS: 5e6, Key: map[string]uint64{"request": 1<<63 + 1, "tid": 7}, CPU: 3,
		Task:       events.Task{PID: 6, TID: 7, Comm: "ev\nil\xff\x1b[2J\u202e", UID: 1000, Cgroup: "/a\n\xfe", Cmdline: "mysql --password=secret"},
		Stacks:     events.Stacks{Kernel: []string{"schedule+0x1", "do_nanosleep+0x2"}},
		Attributes: map[string]string{"http.route": "/items\n\xff/{id}", "thread.id": "another"},
		Labels:     map[string]any{"traceparent": trace, "what": "\xff\xff", "long": strings.Repeat("é", maxString)},
		Syscall:    &events.SyscallInfo{NR: 230, Name: "clock_nanosleep"},
		Snapshot:   nil,
	}
}

// run runs an exporter until stop.
func run(t *testing.T, opts *Options) (e *Exporter, stop func()) {
	t.Helper()
	opts.Version, opts.Logs = "test", true
	e, err := New(opts)
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx) // always nil
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return e, stop
}

func overHTTP(t *testing.T) *collector.Collector {
	c := &collector.Collector{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// both runs a test with each protocol, against the official services.
func both(t *testing.T, test func(t *testing.T, c *collector.Collector, protocol string)) {
	t.Run("http", func(t *testing.T) { test(t, overHTTP(t), HTTP) })
	t.Run("grpc", func(t *testing.T) { test(t, collector.GRPC(t), GRPC) })
}

func TestLogs(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		e, _ := run(t, &Options{
			Endpoint: c.URL, Protocol: protocol, Headers: map[string]string{"Authorization": "Bearer x"},
			Resource: map[string]string{"deployment.environment.name": "prod", "host.arch": "", "service.name": "tailcam-db"},
		})
		e.Publish(outlier("calls", 1))
		eventually(t, "the record arrives", func() bool { return len(c.Records()) > 0 })
		r := c.Records()[0]
		assert.Check(t, is.Equal("4bf92f3577b34da6a3ce929d0e0e4736", hex.EncodeToString(r.GetTraceId())))
		assert.Check(t, is.Equal("00f067aa0ba902b7", hex.EncodeToString(r.GetSpanId())))
		assert.Check(t, r.GetTimeUnixNano() == 1e9+5 && r.GetObservedTimeUnixNano() > r.GetTimeUnixNano())
		assert.Check(t, r.GetEventName() == eventName && r.GetSeverityText() == "WARN" && r.GetSeverityNumber() == 13)
		body := r.GetBody().GetStringValue()
		assert.Check(t, strings.HasPrefix(body, "calls: 48.0ms: ") && !strings.ContainsAny(body, "\n\x1b\u202e"), "%q", body)
		for name, want := range map[string]any{
			"log.record.uid": "calls-1", "process.pid": int64(6), "thread.id": int64(7), "process.user.id": int64(1000),
			"thread.name": `ev\x0ail\xff\x1b[2J\u202e`, "process.linux.cgroup": `/a\x0a\xfe`, "cpu.logical_number": int64(3),
			"tailcam.rule": "calls", "tailcam.track": "syscall", "tailcam.cause": "threshold", "tailcam.delay_ns": int64(48e6),
			"tailcam.threshold_ns": int64(5e6), "tailcam.key.tid": int64(7), "tailcam.key.request": "9223372036854775809",
			"tailcam.stacks.kernel": []any{"schedule+0x1", "do_nanosleep+0x2"}, "tailcam.syscall.name": "clock_nanosleep",
			"tailcam.syscall.nr": int64(230), "tailcam.seq": int64(1), "tailcam.entry_cpu": int64(0),
			"http.route": `/items\x0a\xff/{id}`, "tailcam.attributes.thread.id": "another",
			"tailcam.labels.long": strings.Repeat("é", maxString/2), "tailcam.labels.what": "��",
		} {
			assert.Check(t, is.DeepEqual(want, r.Attributes[name]), name)
		}
		for name, v := range r.Attributes {
			assert.Check(t, !strings.Contains(fmt.Sprint(v), "secret"), "%s has a command line", name)
		}
		assert.Check(t, r.Resource["service.name"] == "tailcam-db" && r.Resource["service.version"] == "test" && r.Resource["host.name"] != nil &&
			r.Resource["os.type"] == "linux" && r.Resource["tailcam.kernel"] != nil && r.Resource["host.arch"] == nil && r.Resource["deployment.environment.name"] == "prod", "%v", r.Resource)
		headers := http.Header{}
		for name, v := range c.Headers()[0] {
			headers[http.CanonicalHeaderKey(name)] = v
		}
		assert.Check(t, headers.Get("Authorization") == "Bearer x" && strings.HasPrefix(headers.Get("User-Agent"), "tailcam/test"), "%v", headers)
		dropped, rejected := e.Losses()
		assert.Check(t, is.Len(dropped, 0))
		assert.Check(t, is.Len(rejected, 0))
	})
}

// TestSnapshotURL: an outlier with a snapshot says where that is sent to, if it is.
func TestSnapshotURL(t *testing.T) {
	c := overHTTP(t)
	e, _ := run(t, &Options{Endpoint: c.URL, Protocol: HTTP, SnapshotURL: func(id string) string {
		if id == "local" {
			return ""
		}
		return "s3://slow/web-1/" + id
	}})
	for n, id := range []string{"", "local", "sent\n"} {
		o := outlier("a", n)
		if id != "" {
			o.Snapshot = &id
		}
		e.Publish(o)
		e.Explain([]events.Outlier{*o}, false)
	}
	eventually(t, "all have arrived", func() bool { return len(c.Records()) >= 3 })
	got := map[any]any{}
	for _, r := range c.Records() {
		got[r.Attributes["log.record.uid"]] = r.Attributes["tailcam.snapshot_url"]
	}
	assert.DeepEqual(t, got, map[any]any{"a-0": nil, "a-1": nil, "a-2": `s3://slow/web-1/sent\x0a`})
}

// TestPlaces: containers and pods have the names of the semantic conventions, and each text
// is clean.
func TestPlaces(t *testing.T) {
	attributes := func(o *events.Outlier) map[string]string {
		r, err := logRecord(o, time.Now())
		assert.NilError(t, err)
		got := map[string]string{}
		for _, a := range r.Attributes {
			assert.Check(t, got[a.Key] == "", "%s twice", a.Key)
			if s := a.Value.GetStringValue(); s != "" {
				got[a.Key] = s
			}
		}
		return got
	}
	o := outlier("calls", 1)
	o.Task.Container, o.Task.Title = "abc", "postgres: \x1b checkpointer"
	o.Task.Place = events.Place{
		Unit: "x.scope", Runtime: "containerd", ContainerName: "app", Image: "registry:5000/shop/app:1.2@sha256:ab", Pod: "web-1", Namespace: "shop", PodUID: "u-1",
		Workload: map[string]string{"app": "a\nb"},
	}
	o.Waker = &events.Waker{Peer: events.Peer{TID: 3, Identity: &events.Identity{Place: events.Place{Pod: "db-1"}}}}
	got := attributes(o)
	for name, want := range map[string]string{
		"container.id": "abc", "container.runtime.name": "containerd", "k8s.container.name": "app", "k8s.pod.name": "web-1",
		"k8s.namespace.name": "shop", "k8s.pod.uid": "u-1", "k8s.pod.label.app": `a\x0ab`, "process.title": `postgres: \x1b checkpointer`,
		"tailcam.task.unit": "x.scope", "tailcam.waker.pod": "db-1", "container.image.name": "registry:5000/shop/app", "tailcam.task.image": "", "container.name": "", "tailcam.task.pod": "",
	} {
		assert.Check(t, got[name] == want, "%s: %q, want %q", name, got[name], want)
	}
	name, tag := splitImage("registry:5000/app")
	assert.Check(t, name == "registry:5000/app" && tag == "", "%s, %s", name, tag)
	name, tag = splitImage(o.Task.Image)
	assert.Check(t, name == "registry:5000/shop/app" && tag == "1.2", "%s, %s", name, tag)
	o.Task.Place = events.Place{Runtime: "docker", ContainerName: "web", Workload: map[string]string{"app": "x"}}
	got = attributes(o)
	assert.Check(t, got["container.name"] == "web" && got["container.label.app"] == "x" && got["k8s.container.name"] == "", "%v", got)
}

// TestCollectorComesBack: what waits meanwhile arrives, each outlier once.
func TestCollectorComesBack(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		var down atomic.Int32
		down.Store(2)
		c.Answer = func() error {
			if down.Add(-1) >= 0 {
				return status.Error(codes.Unavailable, "later")
			}
			return nil
		}
		e, _ := run(t, &Options{Endpoint: c.URL, Protocol: protocol})
		const n = 600
		for i := range n {
			e.Publish(outlier("a", i))
		}
		eventually(t, "all have arrived", func() bool { return len(c.Records()) >= n })
		seen := map[any]bool{}
		for _, r := range c.Records() {
			seen[r.Attributes["log.record.uid"]] = true
		}
		assert.Check(t, is.Len(seen, n))
		assert.Check(t, is.Len(c.Records(), n))
		failed := uint64(0)
		for _, r := range e.Results() {
			if r.Signal == "logs" && r.Result == "failed" {
				failed = r.Count
			}
		}
		assert.Check(t, is.Equal(failed, uint64(2)))
	})
}

// TestCollectorHangs: a collector that takes connections and says nothing delays
// nobody; all that is not sent is counted, and the rare rule keeps its outliers.
func TestCollectorHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	for _, protocol := range []string{HTTP, GRPC} {
		e, stop := run(t, &Options{Endpoint: "http://" + l.Addr().String(), Protocol: protocol})
		e.Publish(outlier("rare", 1))
		const n = 50000
		o := outlier("noisy", 1)
		for range n {
			e.Publish(o)
		}
		waiting, _, _ := e.Waiting()
		assert.Check(t, waiting <= queueCapacity)
		dropped, _ := e.Losses()
		assert.Check(t, is.Equal(dropped["rare"], uint64(0)))
		stop() // in bounded time
		dropped, rejected := e.Losses()
		assert.Check(t, dropped["noisy"] == n && dropped["rare"] == 1 && len(rejected) == 0, "%v %v", dropped, rejected)
	}
}

// TestHostileCollector: whatever it answers, every outlier is sent or counted.
func TestHostileCollector(t *testing.T) {
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen.Store(r.Header.Get("Authorization") != "")
	}))
	defer thief.Close()
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		rejected bool
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		}, true},
		"not found":          {http.NotFound, true},
		"garbage":            {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "\xff\xff\xff\xff") }, false},
		"a gigabyte":         {endless, false},
		"terminal sequences": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2J\n\xff", http.StatusForbidden) }, true},
		"a zip bomb": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			endless(w, r)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(test.answer)
			defer s.Close()
			e, _ := run(t, &Options{Endpoint: s.URL, Protocol: HTTP, Headers: map[string]string{"Authorization": "Bearer x"}})
			e.Publish(outlier("a", 1))
			eventually(t, "there is an answer", func() bool {
				for _, r := range e.Results() {
					if r.Count > 0 {
						return true
					}
				}
				return false
			})
			eventually(t, "it is accounted for", func() bool {
				_, rejected := e.Losses()
				return (rejected["a"] == 1) == test.rejected
			})
		})
	}
	assert.Check(t, !stolen.Load(), "a redirect got the headers")

	// No gRPC at all: HTTP/2 from a server that does not know the method.
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	s.Config.Protocols = &p
	s.Start()
	defer s.Close()
	e, _ := run(t, &Options{Endpoint: s.URL, Protocol: GRPC})
	e.Publish(outlier("a", 1))
	eventually(t, "it is accounted for", func() bool {
		_, rejected := e.Losses()
		return rejected["a"] == 1
	})
}

// endless writes until the client has had enough.
func endless(w http.ResponseWriter, _ *http.Request) {
	b := make([]byte, 1<<16)
	for range 1 << 14 {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

func TestRefused(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		if protocol == HTTP {
			return // TestHostileCollector
		}
		c.Answer = func() error { return status.Error(codes.PermissionDenied, "no \x1b[2J") }
		e, _ := run(t, &Options{Endpoint: c.URL, Protocol: protocol})
		e.Publish(outlier("a", 1))
		eventually(t, "it is refused", func() bool {
			_, rejected := e.Losses()
			return rejected["a"] == 1
		})
		err := e.client.send(t.Context(), logsSignal, e.metricsRequest(nil, time.Now()), e.metricsRequest(nil, time.Now()))
		var refused *refusedError
		assert.Check(t, errors.As(err, &refused) && !refused.retry && refused.why == `gRPC status 7: no \x1b[2J`, "%v", err)
	})
}

// TestFlush: what was published just before the end arrives.
func TestFlush(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		e, stop := run(t, &Options{Endpoint: c.URL, Protocol: protocol})
		o := outlier("a", 1)
		o.Partial = true // it waits
		e.Publish(o)
		stop()
		dropped, _ := e.Losses()
		assert.Check(t, len(c.Records())+int(dropped["a"]) == 1) // on a busy machine, the time may be over
	})
}

func TestParseEndpoint(t *testing.T) {
	for _, tt := range []struct{ url, protocol, want string }{
		{"https://collector:4318/otlp", HTTP, ""},
		{"http://[::1]:4317", GRPC, ""},
		{"http://collector:4317/v1", GRPC, "has a path, which gRPC does not have"},
		{"collector:4318", HTTP, "does not begin with http:// or https://"},
		{"http://:4318", HTTP, "has no host"},
		{"http://user:secret@collector", HTTP, "has a user: set otlp.headers instead"},
		{"http://collector?x=1", HTTP, "has a query or fragment"},
		{"http://col lector", HTTP, "is not a URL"},
	} {
		_, err := ParseEndpoint(tt.url, tt.protocol)
		if tt.want == "" {
			assert.Check(t, err)
		} else {
			assert.Check(t, is.Error(err, tt.want))
		}
	}
}
