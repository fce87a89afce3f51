package detect

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/activities/declared"
	"github.com/tailcam/tailcam/rules"
	hooks "github.com/tailcam/tailcam/tracker/pair"
)

// example takes the rules with this activity from the page of examples.
func example(t *testing.T, activity string) []rules.Rule {
	t.Helper()
	const page = "../../../docs/activities-examples.md"
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	for _, part := range strings.Split(string(text), "```yaml\n")[1:] {
		yaml, _, _ := strings.Cut(part, "```")
		if !strings.Contains(yaml, "activity: "+activity+"\n") {
			continue
		}
		list, err := rules.Parse(page, []byte(yaml), &rules.LocalMachine{})
		assert.NilError(t, err)
		return list
	}
	t.Fatalf("%s has no rule with activity %s", page, activity)
	return nil
}

// watchActivities loads the kernel side of activities, and attaches the hooks of rules.
func watchActivities(t *testing.T, list []rules.Rule) *declared.Set {
	t.Helper()
	a, err := activities.New(nil)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, a.Close()) })
	entry, err := a.OpenDeclared()
	assert.NilError(t, err)
	set, err := declared.New(&declared.Kernel{Maps: a.Maps(), Owner: entry.Owner()}, hooks.OwnPrograms{}, nil)
	assert.NilError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { assert.Check(t, set.Run()) })
	t.Cleanup(func() {
		assert.Check(t, set.Close())
		wg.Wait()
	})
	none := set.Use(list)
	assert.Assert(t, len(none) == 0, "%v", none)
	return set
}

// slowest waits for an activity whose text begins so and that took so long, and returns the slowest.
func slowest(t *testing.T, set *declared.Set, text string, least time.Duration) *declared.Ended {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		list := set.Ended()
		i := slices.IndexFunc(list, func(e declared.Ended) bool {
			return strings.HasPrefix(e.Text, text) && e.WallNS() >= uint64(least)
		})
		if i >= 0 {
			e := &list[i]
			t.Logf("%q: %s", e.Text, shown(e.WallNS(), &e.Values))
			assert.Check(t, e.UnexplainedNS() <= e.WallNS()/100+50_000, "%v are unexplained", time.Duration(e.UnexplainedNS()))
			return e
		}
		assert.Assert(t, !time.Now().After(end), "no activity %q took %v; there are %+v", text, least, list)
	}
}

// shown is an account in a line.
func shown(wall uint64, v *declared.Values) string {
	ms := func(i int) string { return fmt.Sprintf("%.1f", float64(v[i])/1e6) }
	return fmt.Sprintf("wall %.1f ms: cpu %s, runnable %s, blocked %s (disk %s, lock %s, network %s, task %s, timer %s, other %s); %d switches, %d misses, %d bytes of %d requests",
		float64(wall)/1e6, ms(abi.ActivityCpuNs), ms(abi.ActivityRunnableNs), ms(abi.ActivityBlockedNs), ms(abi.ActivityBlockedDiskNs),
		ms(abi.ActivityBlockedLockNs), ms(abi.ActivityBlockedNetworkNs), ms(abi.ActivityBlockedTaskNs), ms(abi.ActivityBlockedTimerNs),
		ms(abi.ActivityBlockedOtherNs), v[abi.ActivitySwitches], v[abi.ActivityCacheMisses], v[abi.ActivityBlockBytes], v[abi.ActivityBlockRequests])
}

// wholly demands that the parts of all that has ended add up to its time within 1 %, as some
// switches are hidden from tracers, and returns the totals.
func wholly(t *testing.T, set *declared.Set) *declared.Totals {
	t.Helper()
	list, err := set.Totals()
	assert.NilError(t, err)
	assert.Assert(t, len(list) == 1, "%+v", list)
	sum := &list[0]
	t.Logf("%d activities, median %v, p99 %v, replaced %d, nested %d, refused %d; %s", sum.Wall.Count,
		time.Duration(sum.Wall.Quantile(0.5)), time.Duration(sum.Wall.Quantile(0.99)), sum.Replaced, sum.Nested, sum.Refused, shown(sum.Wall.Sum, &sum.Values))
	v := &sum.Values
	known := v[abi.ActivityCpuNs] + v[abi.ActivityRunnableNs] + v[abi.ActivityBlockedNs]
	assert.Check(t, known <= sum.Wall.Sum+sum.Wall.Sum/100 && known >= sum.Wall.Sum-sum.Wall.Sum/100, "parts are %d, all is %d", known, sum.Wall.Sum)
	assert.Check(t, sum.Refused == 0 && sum.Lost == 0, "refused %d, lost %d", sum.Refused, sum.Lost)
	return sum
}

// evict has the page cache forget the files of a directory.
func evict(t *testing.T, dir string) {
	t.Helper()
	unix.Sync()
	assert.NilError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it has gone meanwhile
		}
		if f, err := os.Open(path); err == nil {
			defer f.Close()
			return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		return nil
	}))
}

// Each query of PostgreSQL has an account, and the slow ones say what they waited for.
func TestActivitiesOfPostgres(t *testing.T) {
	list := example(t, "query")
	s := startPostgres(t)
	for _, side := range [][]rules.Hook{list[0].Pair.Entry, list[0].Pair.Exit} {
		for i := range side {
			side[i].Path = filepath.Join(s.bin, "postgres")
		}
	}
	bench := func(args ...string) {
		t.Helper()
		s.run(t, "pgbench", append([]string{"-h", s.dir, "-n", "-d", "postgres"}, args...)...)
	}
	s.run(t, "pgbench", "-h", s.dir, "-i", "-q", "-d", "postgres")
	s.query(t, "alter database postgres set max_parallel_workers_per_gather = 0") // workers have activities of their own
	// A ring of 16 MiB of its buffers is all that the server keeps of it.
	s.query(t, "create table cold as select n, repeat('x', 1000) from generate_series(1, 40000) n; checkpoint")
	set := watchActivities(t, list)

	bench("-S", "-c", "4", "-j", "2", "-t", "500")
	sum := wholly(t, set)
	assert.Check(t, sum.Wall.Count >= 2000 && sum.Replaced == 0, "%d queries, want 2000 and some more", sum.Wall.Count)
	simple := sum.Wall.Count
	bench("-S", "-M", "prepared", "-c", "4", "-j", "2", "-t", "500")
	sum = wholly(t, set)
	assert.Check(t, sum.Wall.Count >= simple+2000 && sum.Wall.Count < simple+2200, "%d queries after %d, want 2000 and some more", sum.Wall.Count, simple)

	s.query(t, "select pg_sleep(0.2)")
	e := slowest(t, set, "select pg_sleep(0.2)", 200*time.Millisecond)
	assert.Check(t, e.Comm == "postgres" && e.Values[abi.ActivityBlockedTimerNs] >= 190e6, "%+v", e)

	held := make(chan error, 1)
	go func() {
		held <- s.as("psql", "-h", s.dir, "-d", "postgres", "-q", "-c",
			"begin; update pgbench_branches set bbalance = 1; select pg_sleep(0.5); commit").Run()
	}()
	slowBegin(t, s)
	s.query(t, "update pgbench_branches set bbalance = 2")
	assert.NilError(t, <-held)
	e = slowest(t, set, "update pgbench_branches set bb", 50*time.Millisecond)
	assert.Check(t, e.Values[abi.ActivityBlockedTaskNs] >= e.WallNS()/2, "%+v", e)

	evict(t, s.dir)
	s.query(t, "select count(*) from cold")
	e = slowest(t, set, "select count(*) from cold", 0)
	assert.Check(t, e.Values[abi.ActivityCacheMisses] >= 4096, "%+v", e)
	assert.Check(t, e.Values[abi.ActivityBlockBytes] >= 16<<20, "%+v", e)
	assert.Check(t, e.Values[abi.ActivityBlockedDiskNs] > 0, "%+v", e)
}

// slowBegin waits until a backend holds the row that the next one wants.
func slowBegin(t *testing.T, s *server) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		out, err := s.as("psql", "-h", s.dir, "-d", "postgres", "-qtAc",
			"select count(*) from pg_stat_activity where wait_event = 'PgSleep'").Output()
		if err == nil && strings.TrimSpace(string(out)) == "1" {
			return
		}
		assert.Assert(t, !time.Now().After(end), "nobody holds the row: %s %v", out, err)
	}
}

// Each request of nginx has an account.
func TestActivitiesOfNginx(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "tailcam-nginx-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "small"), []byte("hello\n"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "cold"), make([]byte, 32<<20), 0o600))
	address := nginxFor(t, "root "+dir+";")
	list := example(t, "request")
	path, err := exec.LookPath("nginx")
	assert.NilError(t, err)
	list[0].Pair.Entry[0].Path, list[0].Pair.Exit[0].Path = path, path
	set := watchActivities(t, list)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp4", address)
	}}}
	defer client.CloseIdleConnections()
	get := func(path string) {
		t.Helper()
		answer, err := client.Get("http://localhost" + path)
		assert.NilError(t, err)
		defer answer.Body.Close()
		n, err := io.Copy(io.Discard, answer.Body)
		assert.NilError(t, err)
		assert.Check(t, answer.StatusCode == http.StatusOK && n == answer.ContentLength, "%s: %s, %d bytes", path, answer.Status, n)
	}
	for range 500 {
		get("/small")
	}
	evict(t, dir)
	get("/cold")
	e := slowest(t, set, "GET /cold", 0)
	assert.Check(t, e.Comm == "nginx" && e.Values[abi.ActivityBlockBytes] >= 30<<20, "%+v", e)
	assert.Check(t, e.Values[abi.ActivityBlockedDiskNs] > 0, "%+v", e)
	sum := wholly(t, set)
	assert.Check(t, sum.Wall.Count == 501 && sum.Replaced == 0, "%d requests, want 501", sum.Wall.Count)
}
