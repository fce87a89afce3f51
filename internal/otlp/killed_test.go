package otlp

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/collector"
	"github.com/tailcam/tailcam/tracker/events"
)

// Variables of the child of TestKilled.
const (
	childSpool    = "TAILCAM_TEST_OTLP_SPOOL"
	childEndpoint = "TAILCAM_TEST_OTLP_ENDPOINT"
	childFrom     = "TAILCAM_TEST_OTLP_FROM"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childSpool); dir != "" {
		fmt.Println("failed:", publishUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// publishUntilKilled publishes outliers by their numbers, some of which wait for explanations,
// and prints each number up to which all are on disk, or were sent.
func publishUntilKilled(dir string) error {
	e, err := New(&Options{Endpoint: os.Getenv(childEndpoint), Protocol: HTTP, Version: "test", Logs: true, Spool: dir, Quota: 64 << 20})
	if err != nil {
		return err
	}
	k := &keeper{e: e}
	k.open()
	go func() {
		for range e.ready {
			for e.sendBatch(context.Background(), true) {
				continue
			}
		}
	}()
	from, err := strconv.Atoi(os.Getenv(childFrom))
	for n := from; err == nil; n++ {
		o := outlier(fmt.Sprint("rule-", n%3), n)
		if n%3 > 0 {
			o.Snapshot = new("snap")
		}
		e.Publish(o)
		if done := n - 5; done >= from && done%3 == 1 { // of the others, nothing more is known
			o := outlier("rule-1", done)
			o.Snapshot, o.Explained = new("snap"), &events.Explained{Verdict: "because"}
			e.Explain([]events.Outlier{*o}, false)
		}
		if n%7 == 0 {
			if err = e.save(e.spool.Load()); err == nil {
				fmt.Println(n)
			}
			select {
			case <-e.asks:
				k.answer()
			default:
			}
		}
	}
	return err
}

// TestKilled: whatever the moment of kill -9, and whether the collector is there, every outlier
// that was on disk arrives, and those that arrive twice have one id.
func TestKilled(t *testing.T) {
	var c collector.Collector
	var down atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load():
			http.Error(w, "later", http.StatusServiceUnavailable)
		case rand.N(10) == 0: // it has it, and does not say so
			c.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			c.ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	dir := t.TempDir()
	kills, from, safe := 25, 0, map[int]bool{}
	if testing.Short() {
		kills = 5
	}
	for range kills {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childSpool+"="+dir, childEndpoint+"="+s.URL, fmt.Sprint(childFrom, "=", from))
		out, err := cmd.StdoutPipe()
		assert.NilError(t, err)
		assert.NilError(t, cmd.Start())
		down.Store(rand.N(2) == 0)
		lines, last := bufio.NewScanner(out), from-1
		for stop := 1 + rand.N(40); lines.Scan(); stop-- {
			n, err := strconv.Atoi(lines.Text())
			assert.Assert(t, err == nil, "%s", lines.Text())
			last = n
			if stop == 0 {
				time.AfterFunc(rand.N(20*time.Millisecond), func() { cmd.Process.Kill() })
			}
		}
		cmd.Wait() // killed
		for n := from; n <= last; n++ {
			safe[n] = true
		}
		from = last + 1_000_000 // what was published after that may be lost, and may arrive
	}
	down.Store(false)
	e, _ := run(t, &Options{Endpoint: s.URL, Protocol: HTTP, Spool: dir, Quota: 64 << 20})
	eventually(t, "all is sent", func() bool { waiting, _, _ := e.Waiting(); return e.spool.Load() != nil && waiting == 0 })
	arrived, records := map[int]int{}, c.Records()
	for _, r := range records {
		id, _ := r.Attributes["log.record.uid"].(string)
		n, err := strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
		assert.Assert(t, err == nil, "%q", id)
		arrived[n]++
	}
	lost := 0
	for n := range safe {
		if arrived[n] == 0 {
			lost++
		}
	}
	dropped, rejected := e.Losses()
	t.Logf("%d kills: %d outliers were on disk, %d records of %d outliers arrived, %d lost", kills, len(safe), len(records), len(arrived), lost)
	assert.Check(t, lost == 0 && len(dropped) == 0 && len(rejected) == 0, "%d lost, dropped %v, rejected %v", lost, dropped, rejected)
}
