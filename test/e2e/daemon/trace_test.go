package daemon

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// event is one event as babeltrace2 prints it.
type event struct {
	time     uint64 // CLOCK_MONOTONIC
	name     string
	cpu, tid int
	payload  string
}

var (
	eventLine = regexp.MustCompile(`^\[(\d+)\] \([^)]*\) \S+ (\S+): \{ cpu_id = (\d+) \}, \{ tid = (\d+) \}, \{ ?(.*?) ?\}$`)
)

// number is an integer field of the payload; -1: there is none.
func (e *event) number(field string) int {
	_, after, ok := strings.Cut(", "+e.payload+",", ", "+field+" = ")
	if !ok {
		return -1
	}
	digits, _, _ := strings.Cut(after, ",")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

// plainTrace returns an uncompressed copy of a snapshot's trace, for other readers.
func plainTrace(t *testing.T, snapshot string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "trace")
	_, err := trace.Copy(t.Context(), dir, filepath.Join(snapshot, "trace"), nil)
	assert.NilError(t, err)
	return dir
}

// readTrace reads the trace of a snapshot with babeltrace2, which must not
// complain, and holds that our own reader sees the same. That records are
// missing, where a full machine overwrote them, it is to say.
func readTrace(t *testing.T, snapshot string) []event {
	t.Helper()
	path := needTool(t, "babeltrace2", "babeltrace2")
	dir := plainTrace(t, snapshot)
	cmd := exec.CommandContext(t.Context(), path, "--clock-cycles", dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	for line := range strings.Lines(stderr.String()) {
		if !strings.Contains(line, "WARNING: Tracer discarded ") {
			err = errors.Join(err, errors.New(line))
		}
	}
	assert.NilError(t, err, "babeltrace2 %s", dir)
	var events []event
	for in := bufio.NewScanner(&stdout); in.Scan(); {
		m := eventLine.FindStringSubmatch(in.Text())
		assert.Assert(t, m != nil, "babeltrace2 prints %q", in.Text())
		e := event{name: m[2], payload: m[5]}
		var errs [3]error
		e.time, errs[0] = strconv.ParseUint(m[1], 10, 64)
		e.cpu, errs[1] = strconv.Atoi(m[3])
		e.tid, errs[2] = strconv.Atoi(m[4])
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatalf("babeltrace2 prints %q: %v", in.Text(), err)
		}
		if n := len(events); n > 0 && events[n-1].time > e.time {
			t.Fatalf("time runs backwards at %q", in.Text())
		}
		events = append(events, e)
	}
	sameTrace(t, dir, events)
	return events
}

// sameTrace compares what two independent readers found.
func sameTrace(t *testing.T, dir string, events []event) {
	t.Helper()
	r, err := trace.Read(dir)
	assert.NilError(t, err)
	defer r.Close() // only read
	type one struct {
		time     uint64
		cpu, tid int
		name     string
	}
	// Events of one time may come in another order.
	seen := map[one]int{}
	for i := range events {
		seen[one{events[i].time, events[i].cpu, events[i].tid, withoutCall(events[i].name)}]++
	}
	n := 0
	for ; ; n++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		assert.NilError(t, err)
		seen[one{e.Time, e.CPU, e.TID, withoutCall(e.Type.String())}]--
	}
	assert.Assert(t, n == len(events), "%s: babeltrace2 finds %d events, our reader %d", dir, len(events), n)
	for e, k := range seen {
		assert.Assert(t, k == 0, "%s: %+v: babeltrace2 finds %d more than our reader", dir, e, k)
	}
}

// withoutCall leaves out which system call begins or ends, and whose memory
// is reclaimed: what the reader has in the event, not in its type.
func withoutCall(name string) string {
	for _, prefix := range []string{"syscall_entry_", "syscall_exit_"} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return strings.Replace(name, "_memcg_reclaim_", "_direct_reclaim_", 1)
}

// unbroken holds that between two times each sched_switch of a CPU takes over
// from the one before: no event of this kind is missing there.
func unbroken(t *testing.T, events []event, cpu int, from, to uint64) (switches int) {
	t.Helper()
	var last *event
	for i := range events {
		e := &events[i]
		if e.name != "sched_switch" || e.cpu != cpu || e.time < from || e.time > to {
			continue
		}
		if last != nil && e.number("prev_tid") != last.number("next_tid") && !hidden(events, last) {
			t.Errorf("CPU %d at %d: task %d leaves, but the one before had given way to %d",
				cpu, e.time, e.number("prev_tid"), last.number("next_tid"))
		}
		last = e
		switches++
	}
	return switches
}

// hidden tells whether a switch went to a thread of init that no event at all
// comes from: some virtual machines hide from every tracer what their init does.
func hidden(events []event, to *event) bool {
	if to.number("next_pid") != 1 {
		return false
	}
	for i := range events {
		if events[i].tid == to.number("next_tid") {
			return false
		}
	}
	return true
}

// find returns the first event of that name and time that a test wants.
func find(events []event, name string, time uint64, want func(*event) bool) *event {
	for i := range events {
		if e := &events[i]; e.name == name && e.time == time && want(e) {
			return e
		}
	}
	return nil
}
