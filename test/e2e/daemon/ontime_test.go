package daemon

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/tracker/events"
)

// buildC compiles a program of testdata, for every user.
func buildC(t *testing.T, name string, flags ...string) string {
	t.Helper()
	program := filepath.Join(publicDir(t, ""), name)
	child.Compile(t, "gcc", append(flags, "-O2", "-Wall", "-Werror", "-fno-omit-frame-pointer", "-o", program, "testdata/"+name+".c")...)
	return program
}

// startNoisy starts testdata/noisy.c, and returns when it naps. It ends with the test, its
// maps are removed; by itself it ends once its first process has said how often it napped.
func startNoisy(t *testing.T, program string, uid int, comm string, naps int, length time.Duration, lines, processes int) *child.Partner {
	t.Helper()
	cmd := exec.Command(program, comm, strconv.Itoa(naps), strconv.FormatInt(length.Microseconds(), 10), strconv.Itoa(lines), strconv.Itoa(processes))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Setpgid: true}
	n := child.Talk(t, cmd)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()                                      // killed
		removeMaps(t, uid)
	})
	assert.Equal(t, n.Line(), "ready", comm)
	return n
}

// removeMaps removes the perf maps of a user that only this test has.
func removeMaps(t *testing.T, uid int) {
	t.Helper()
	maps, err := filepath.Glob("/tmp/perf-*.map")
	assert.NilError(t, err)
	for _, path := range maps {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			assert.Check(t, os.Remove(path))
		}
	}
}

// lateness collects how late the outliers of a rule are told.
type lateness struct {
	mu        sync.Mutex
	list      []*events.Outlier        // as they were told first
	first     map[string]time.Duration // by id
	partial   map[string]bool
	completed map[string]bool
	again     []string // ids that were told twice without a mark
	lost      uint64
}

// followLate reads the stream of one rule until the test ends.
func followLate(t *testing.T, d *running, rule string) *lateness {
	t.Helper()
	stream, err := api.NewClient(d.socket).Events(t.Context(), &api.EventsOptions{Rule: rule, Follow: true})
	assert.NilError(t, err)
	t.Cleanup(func() { stream.Close() })
	l := &lateness{first: map[string]time.Duration{}, partial: map[string]bool{}, completed: map[string]bool{}}
	go func() {
		for {
			e, err := stream.Next()
			if err != nil {
				return
			}
			l.add(e.Outlier, e.Lost, time.Now())
		}
	}()
	return l
}

func (l *lateness) add(o *events.Outlier, lost uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += lost
	if o == nil {
		return
	}
	_, told := l.first[o.ID]
	switch {
	case o.Completed && told:
		l.completed[o.ID] = true
	case told, o.Completed:
		l.again = append(l.again, o.ID)
	default:
		l.list = append(l.list, o)
		l.first[o.ID] = now.Sub(o.Time)
		l.partial[o.ID] = o.Partial
	}
}

func (l *lateness) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.first)
}

// missed is how many the test was too slow to read.
func (l *lateness) missed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// quantiles returns the median, the 99th of 100, and the worst.
func (l *lateness) quantiles() (p50, p99, worst time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Sorted(maps.Values(l.first))
	if len(all) == 0 {
		return 0, 0, 0
	}
	return all[len(all)/2], all[(len(all)*99-1)/100], all[len(all)-1]
}

// TestOnTime: what one process costs to name delays nobody else's outliers. One
// has a perf map of 84 MB and hundreds of outliers a second, another user has
// many processes; a third is told of in time, and of all of its outliers. So it is if
// all three are of one user, as most services of a machine are.
func TestOnTime(t *testing.T) {
	needRoot(t)
	program := buildC(t, "noisy")
	t.Run("three users", func(t *testing.T) { onTime(t, program, newUID(), newUID(), newUID()) })
	uid := newUID()
	t.Run("one user", func(t *testing.T) { onTime(t, program, uid, uid, uid) })
}

func onTime(t *testing.T, program string, offender, crowd, victim int) {
	nap := func(name string, uid int, more ...string) string {
		return entry(name, "syscall", "1ms", fmt.Sprintf("{uid: %d, comm: %s, syscall: clock_nanosleep}", uid, name), append(more, "stacks: [kernel, user]")...)
	}
	const shots = "snapshot: {after: 5ms, every: 1s, burst: 1}"
	d := start(t, rulesFile(nap("offender", offender, shots), nap("crowd", crowd, shots), nap("victim", victim, shots)))
	late := followLate(t, d, "victim")
	theirs := followLate(t, d, "offender")

	startNoisy(t, program, offender, "offender", 1<<40, 3*time.Millisecond, 400_000, 1)
	startNoisy(t, program, crowd, "crowd", 1<<40, 400*time.Millisecond, 1000, 100)
	const naps = 300
	v := startNoisy(t, program, victim, "victim", naps, 20*time.Millisecond, 0, 1)
	n, err := strconv.Atoi(v.Line())
	assert.NilError(t, err)
	assert.Assert(t, n == naps, "%d naps", n)
	eventually(t, "all outliers of the victim are told", func() bool { return late.count() >= naps })

	p50, p99, worst := late.quantiles()
	t.Logf("the victim's outliers are told after p50 %s, p99 %s, at most %s", p50, p99, worst)
	o50, o99, oWorst := theirs.quantiles()
	t.Logf("the offender's (%d) after p50 %s, p99 %s, at most %s", theirs.count(), o50, o99, oWorst)
	if n := late.count(); n != naps || late.lost != 0 || len(late.again) > 0 {
		t.Errorf("told of %d outliers of %d, lost %d, twice %v", n, naps, late.lost, late.again)
	}
	if p99 > 2*time.Second { // 250 ms on a machine that is not loaded otherwise
		t.Errorf("one in a hundred of the victim's outliers is told %s late", p99)
	}
	s := d.status()
	for _, cause := range []string{"ring_buffer_full", "outlier_dropped", "names_skipped", "told_late"} {
		t.Logf("%s: victim %d, crowd %d, offender %d", cause, s.loss(cause, "victim"), s.loss(cause, "crowd"), s.loss(cause, "offender"))
	}
	for _, cause := range []string{"ring_buffer_full", "outlier_dropped", "names_skipped"} {
		n := s.loss(cause, "victim")
		assert.Check(t, n == 0, "%s: %d of the victim", cause, n)
	}
	if n := s.loss("outlier_dropped", "offender"); n != 0 {
		t.Errorf("%d of the offender were dropped: naming is what may be skipped", n)
	}
	// Those that were told in part are completed, the victim's at once.
	eventually(t, "the victim's outliers are complete", func() bool {
		late.mu.Lock()
		defer late.mu.Unlock()
		for id, partial := range late.partial {
			if partial && !late.completed[id] {
				return false
			}
		}
		return true
	})
	for _, o := range d.events("victim") {
		if o.Partial || o.Task.Cmdline == "" {
			t.Errorf("not complete: %+v", o)
			break
		}
	}
}
