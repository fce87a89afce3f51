package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

func TestRoundTrip(t *testing.T) {
	backend := newFake()
	c, _ := serve(t, backend)
	ctx := context.Background()
	status, err := c.Status(ctx)
	assert.NilError(t, err)
	want := backend.Status(ctx)
	want.Recorder.CPUs[0].Covered = 0 // stays at home
	want.Losses = append(want.Losses, newServer(nil, nil).losses()...)
	assert.Check(t, is.DeepEqual(&want, status), "status")
	rules, err := c.Rules(ctx)
	diff := cmp.Diff(backend.Rules(), rules)
	assert.Check(t, err == nil && diff == "", "rules: %v\n%s", err, diff)
	list, err := c.Snapshots(ctx)
	assert.Check(t, err == nil && list != nil && len(list) == 0, "snapshots: %v, %v; want an empty list", list, err)
	all, err := c.Histograms(ctx, "")
	if want, _ := backend.Histograms(); err != nil || cmp.Diff(want, all) != "" {
		t.Errorf("histograms: %v, %+v", err, all)
	}
	one, err := c.Histograms(ctx, "disk")
	assert.Check(t, err == nil && len(one) == 1 && one[0].Class == "vda" && one[0].P999NS == 1000,
		"histogram of disk: %v, %+v", err, one)
	_, err = c.Histograms(ctx, "dusk")
	assert.Check(t, is.Error(err, `no histogram "dusk": must be one of block, disk`), "histogram of nothing")
	taken, err := c.Trigger(ctx, &TriggerRequest{Reason: "because"})
	reason := <-backend.took
	assert.Check(t, err == nil && taken.Dir == "/snapshots/one" && reason == "because",
		"snapshot: %+v, %v, reason %q", taken, err, reason)
	backend.fail = errors.New("disk full: free some space")
	_, err = c.Trigger(ctx, &TriggerRequest{})
	assert.Check(t, is.Error(err, "disk full: free some space"), "failing snapshot")
	_, err = c.Snapshots(ctx)
	assert.Check(t, is.Error(err, "disk full: free some space"), "failing list")
	_, err = c.Trigger(ctx, &TriggerRequest{Reason: strings.Repeat("x", maxReason+1)})
	assert.Check(t, is.ErrorContains(err, "must be at most"), "long reason")
}

// The JSON of status is a promise: this text only ever grows.
func TestStatusJSON(t *testing.T) {
	got, err := json.Marshal(newFake().Status(context.Background()))
	assert.NilError(t, err)
	const want = `{"version":"v1","pid":42,"uptime_ns":3600000000000,"kernel":"6.18.0","rules":[` +
		`{"name":"wakeup","track":"wakeup","threshold_ns":5000000,"source":"rules.d/wakeup.yaml:2","seen":100,"outliers":2,"worst_ns":9000000,"suppressed":1,"lost":0,"actions_skipped":0},` +
		`{"name":"disk","track":"block","threshold_ns":50000000,"inactive":"no hook","seen":0,"outliers":0,"worst_ns":0,"suppressed":0,"lost":4,"actions_skipped":5}],` +
		`"losses":[{"cause":"table_full","tracker":"wakeup","count":3,"advice":"raise tracker.pending"}],` +
		`"recorder":{"enabled":true,"backend":"perf","size_bytes":4194304,"groups":["sched"],"missing":{"fexit:a":"refused"},"cpus":[{"cpu":0,"covered_ns":5000000000,"events_per_second":1200.5,"bytes_per_event":80,"covers_at_rate_ns":4000000000,"records":9000,"lost":1,"bytes_written":0}]},` +
		`"snapshots":{"count":1,"bytes":4096,"dir":"/var/lib/tailcam/snapshots","failed":2,"last":"20261120T231502.123456789Z-wakeup-000042","pinned":0}}`
	assert.Check(t, is.DeepEqual(want, string(got)))
}

func TestFeed(t *testing.T) {
	f := NewFeed(3)
	for i := range 5 {
		f.Publish(outlier([]string{"a", "b"}[i%2], int64(i)))
	}
	delays := func(list []*events.Outlier) (d []int64) {
		for _, o := range list {
			d = append(d, o.DelayNS)
		}
		return d
	}
	assert.Check(t, is.DeepEqual([]int64{2, 3, 4}, delays(f.Recent(""))))
	assert.Check(t, is.DeepEqual([]int64{3}, delays(f.Recent("b"))))
	sub, err := f.Subscribe("a", "")
	assert.NilError(t, err)
	ch, cancel, lost := sub.Outliers, sub.Cancel, sub.Lost
	for range subscriberQueue + 7 {
		f.Publish(outlier("a", 1))
		f.Publish(outlier("b", 1))
	}
	if len(ch) != subscriberQueue || lost() != 7 || f.Lost() != 7 {
		t.Errorf("queued %d, lost %d, all lost %d; want %d, 7, 7", len(ch), lost(), f.Lost(), subscriberQueue)
	}
	cancel()
	cancel()
	f.Publish(outlier("a", 1))
	assert.Check(t, f.Lost() == 7, "a reader that has gone loses on")
	tap, cancel, lost := f.Tap()
	for range tapQueue + 3 {
		f.Publish(outlier("c", 1))
	}
	assert.Check(t, len(tap) == tapQueue && lost() == 3 && f.Lost() == 7, "the daemon's own losses: %d, of clients %d", lost(), f.Lost())
	cancel()
}

var anyCursor = cmpopts.IgnoreFields(events.Outlier{}, "Cursor")

func TestEvents(t *testing.T) {
	backend := newFake()
	backend.Publish(outlier("wakeup", 1))
	backend.Publish(outlier("disk", 2))
	c, stop := serve(t, backend)
	ctx := context.Background()

	recent, err := c.Events(ctx, &EventsOptions{Rule: "disk"})
	assert.NilError(t, err)
	defer recent.Close()
	e, err := recent.Next()
	diff := cmp.Diff(outlier("disk", 2), e.Outlier, anyCursor)
	assert.Check(t, err == nil && diff == "", "recent: %v\n%s", err, diff)
	_, err = recent.Next()
	assert.Check(t, is.ErrorIs(err, io.EOF), "after the last remembered")

	follow, err := c.Events(ctx, &EventsOptions{Follow: true})
	assert.NilError(t, err)
	defer follow.Close()
	backend.Publish(outlier("wakeup", 3)) // a stream that is open misses nothing
	e, err = follow.Next()
	assert.Check(t, err == nil && e.Outlier != nil && e.Outlier.DelayNS == 3, "follow: %+v, %v", e, err)
	_, err = c.Events(ctx, &EventsOptions{Rule: "nosuch", Follow: true})
	assert.Check(t, is.Error(err, `unknown rule "nosuch": the daemon has wakeup, disk`), "unknown rule")
	stop()
	_, err = follow.Next()
	assert.Check(t, is.ErrorIs(err, ErrStreamEnded), "after the daemon's end")
	_, err = c.Status(ctx)
	assert.Check(t, err != nil && strings.HasPrefix(err.Error(), "daemon not reachable at "+c.path),
		"no daemon: %v", err)
}

// What a snapshot says of an outlier comes later: those who want it get it in a
// line of its own, those who do not see each outlier once.
func TestVerdicts(t *testing.T) {
	backend := newFake()
	backend.earlyFor = time.Hour
	c, _ := serve(t, backend)
	wants, err := c.Events(t.Context(), &EventsOptions{Follow: true, Verdicts: true})
	assert.NilError(t, err)
	defer wants.Close()
	other, err := c.Events(t.Context(), &EventsOptions{Follow: true})
	assert.NilError(t, err)
	defer other.Close()

	id := "20261120T231502.123456789Z-wakeup-000042"
	o := outlier("wakeup", 1)
	o.Snapshot = &id
	backend.Publish(o)
	done := *o
	done.Explained = &events.Explained{Verdict: "It waited.", Advice: "Look.", Cause: "preempted", By: "hog 9", NS: 1}
	stranger := done
	stranger.StartMono++
	backend.Finish("/snapshots/one", []events.Outlier{stranger, done})
	backend.Finish("/snapshots/one", []events.Outlier{done}) // once is enough
	backend.Publish(outlier("wakeup", 2))

	if e, err := wants.Next(); err != nil || e.Outlier == nil || e.Outlier.Explained != nil {
		t.Errorf("first: %+v, %v", e, err)
	}
	e, err := wants.Next()
	want := &Verdict{Time: o.Time, Rule: "wakeup", Task: o.Task, StartMono: o.StartMono, Snapshot: &id, Dir: "/snapshots/one", Explained: *done.Explained}
	diff := cmp.Diff(want, e.Verdict, cmpopts.IgnoreFields(Verdict{}, "Cursor"))
	assert.Check(t, err == nil && diff == "", "verdict: %v\n%s", err, diff)
	for _, s := range []*EventStream{wants, other} {
		e, err := s.Next()
		if s == other && err == nil && e.Outlier != nil && e.Outlier.DelayNS == 1 {
			e, err = s.Next()
		}
		assert.Check(t, err == nil && e.Outlier != nil && e.Outlier.DelayNS == 2, "last: %+v, %v", e, err)
	}
	// Naming another outlier may take longer than the snapshot of this one.
	early := *o
	early.StartMono, early.Explained = 77, done.Explained
	backend.Finish("/snapshots/one", []events.Outlier{early})
	late := early
	late.Explained = nil
	backend.Publish(&late)
	for _, explained := range []bool{false, true} {
		e, err := wants.Next()
		assert.Check(t, err == nil && (e.Verdict != nil) == explained,
			"published late, explained %t: %+v, %v", explained, e, err)
	}
	got := backend.Recent("")
	assert.Check(t, len(got) == 3 && got[0].Explained != nil && got[0].Explained.By == "hog 9" &&
		o.Explained == nil, "remembered: %+v", got)
}

// A reader that stops reading holds up nobody, and learns what it lost.
func TestSlowReader(t *testing.T) {
	backend := newFake()
	c, _ := serve(t, backend)
	slow, err := c.Events(context.Background(), &EventsOptions{Follow: true})
	assert.NilError(t, err)
	defer slow.Close()
	big := outlier("wakeup", 1)
	big.Stacks.Kernel = []string{strings.Repeat("frame", 2000)}
	published := uint64(0)
	for backend.Lost() == 0 { // socket buffers and queue fill up
		backend.Publish(big)
		published++
	}
	for range 50 {
		backend.Publish(big)
		published++
	}
	_, err = c.Status(context.Background())
	assert.NilError(t, err, "beside a slow reader")
	var seen, lost uint64
	for seen+lost < published {
		e, err := slow.Next()
		assert.NilError(t, err, "after %d seen and %d lost of %d", seen, lost, published)
		lost += e.Lost
		if e.Outlier != nil {
			seen++
		}
	}
	assert.Check(t, seen+lost == published && lost == backend.Lost(),
		"%d seen and %d lost of %d published, the feed counts %d", seen, lost, published, backend.Lost())
}

func TestStopWithStuckReader(t *testing.T) {
	backend := newFake()
	c, stop := serve(t, backend)
	stuck, err := c.Events(context.Background(), &EventsOptions{Follow: true})
	assert.NilError(t, err)
	defer stuck.Close()
	big := outlier("wakeup", 1)
	big.Stacks.Kernel = []string{strings.Repeat("frame", 2000)}
	for backend.Lost() == 0 {
		backend.Publish(big)
	}
	stop() // returns
}

func TestTooManyStreams(t *testing.T) {
	c, _ := serve(t, newFake())
	for range maxStreams {
		s, err := c.Events(context.Background(), &EventsOptions{Follow: true})
		assert.NilError(t, err)
		defer s.Close()
	}
	_, err := c.Events(context.Background(), &EventsOptions{Follow: true})
	assert.Check(t, is.ErrorContains(err, "close one of them"), "one more")
}

func TestBadRequests(t *testing.T) {
	c, _ := serve(t, newFake())
	for _, req := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/nosuch", "", http.StatusNotFound, "unknown request: GET /v1/nosuch"},
		{"POST", "/v1/status", "", http.StatusNotFound, "unknown request: POST"},
		{"GET", "/v1/events?follow=perhaps", "", http.StatusBadRequest, "must be 0 or 1"},
		{"POST", "/v1/trigger", "{", http.StatusBadRequest, "read request"},
		{"POST", "/v1/trigger", strings.Repeat("x", maxBody+1), http.StatusRequestEntityTooLarge, "too large"},
	} {
		conn, err := net.Dial("unix", c.path)
		assert.NilError(t, err)
		r, err := http.NewRequest(req.method, "http://tailcam"+req.path, strings.NewReader(req.body))
		assert.NilError(t, err)
		go r.Write(conn)
		resp, err := http.ReadResponse(bufio.NewReader(conn), r)
		assert.NilError(t, err)
		body, _ := io.ReadAll(resp.Body)
		assert.Check(t, resp.StatusCode == req.status && strings.Contains(string(body), req.want),
			"%s %s: %d %s; want %d and %q", req.method, req.path, resp.StatusCode, body, req.status, req.want)
		conn.Close()
	}
}

func TestClientWithoutDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "s.sock")
	_, err := NewClient(path).Status(context.Background())
	want := "daemon not reachable at " + path + `: start it with "sudo tailcam run"`
	assert.Check(t, is.Error(err, want))
}

// Root may open every socket, so a child without rights tries.
func TestClientWithoutRights(t *testing.T) {
	const marker = "TAILCAM_TEST_CLIENT"
	if path := os.Getenv(marker); path != "" {
		_, err := NewClient(path).Status(context.Background())
		assert.Assert(t, err != nil &&
			strings.HasPrefix(err.Error(), "permission denied: "+path+": use sudo, or join its group (sudo usermod -aG tailcam $USER)"),
			"without rights: %v", err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: starts a child as another user")
	}
	c, _ := serve(t, newFake())
	dir := filepath.Dir(filepath.Dir(c.path))
	assert.NilError(t, os.Chmod(dir, 0o755))
	self, err := os.ReadFile(os.Args[0])
	assert.NilError(t, err)
	bin := filepath.Join(dir, "client")
	assert.NilError(t, os.WriteFile(bin, self, 0o755))
	cmd := exec.Command(bin, "-test.run=^TestClientWithoutRights$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), marker+"="+c.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	assert.Check(t, err, "%s", out)
}

// Who asked for a snapshot is in the log, as the kernel knows it.
func TestPeerIsLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	socket, err := Listen(&ListenOptions{Path: socketPath(t)})
	assert.NilError(t, err)
	defer socket.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, socket, newFake(), &ServeOptions{Log: zap.New(core)}) }()
	_, err = NewClient(socket.Path).Trigger(ctx, &TriggerRequest{Reason: "because"})
	assert.NilError(t, err)
	cancel()
	assert.NilError(t, <-done)
	want := map[string]any{"by_pid": int32(os.Getpid()), "by_uid": uint32(os.Getuid()), "reason": "because", "pid": int64(0), "tid": int64(0), "self": false}
	for _, entry := range logs.All() {
		if diff := cmp.Diff(want, entry.ContextMap()); entry.Message == "snapshot requested" && diff == "" {
			return
		}
	}
	t.Errorf("not logged: %v in %v", want, logs.All())
}

// An outlier that was told in part comes again, and is remembered once.
func TestCompleted(t *testing.T) {
	backend := newFake()
	c, _ := serve(t, backend)
	follow, err := c.Events(t.Context(), &EventsOptions{Follow: true})
	assert.NilError(t, err)
	defer follow.Close()
	snapshot := "one"
	part := outlier("wakeup", 1)
	part.ID, part.Seq, part.Partial, part.Snapshot = "run-1", 1, true, &snapshot
	backend.Publish(part)
	explained := *part
	explained.Explained = &events.Explained{Verdict: "it waited"}
	backend.Finish("/snapshots/one", []events.Outlier{explained})
	whole := *part
	whole.Partial, whole.Completed, whole.Task.Cmdline = false, true, "victim --slow"
	backend.Complete(&whole)
	backend.Complete(outlier("wakeup", 2)) // of one that is forgotten
	for i, want := range []string{"partial", "completed"} {
		e, err := follow.Next()
		assert.Assert(t, err == nil && e.Outlier != nil && e.Outlier.ID == "run-1" &&
			e.Outlier.Partial == (i == 0) && e.Outlier.Completed == (i == 1), "%s: %+v, %v", want, e.Outlier, err)
	}
	list := backend.Recent("")
	assert.Check(t, len(list) == 1 && !list[0].Partial && list[0].Task.Cmdline == "victim --slow" &&
		list[0].Explained != nil, "remembered: %+v", list)
}
