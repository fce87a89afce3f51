package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/fleet"
	"github.com/tailcam/tailcam/internal/otlp"
	"github.com/tailcam/tailcam/test/support/collector"
	"github.com/tailcam/tailcam/tracker/events"
)

// The simulated fleet.
const (
	hosts   = 500
	perHost = 200 // outliers a host and day
	copies  = 10  // how many times as many a second table has, for the times of queries
)

// truth is what was sent, added up in Go.
type truth struct {
	outliers, explained                 int64
	ns, explainedNS                     int64
	culprits, rules, machines, releases map[string]int64
}

func (t *truth) add(o *events.Outlier, host, release string) {
	t.outliers++
	t.ns += o.DelayNS
	part, culprit := o.DelayNS, ""
	if o.Explained != nil {
		t.explained++
		t.explainedNS += o.Explained.NS
		part, culprit = o.Explained.NS, o.Explained.By
	}
	t.culprits[culprit] += part
	t.rules[o.Rule] += o.DelayNS
	t.machines[host] += o.DelayNS
	t.releases[release] += o.DelayNS
}

// sendDay sends a day of the fleet through the collector. At noon, half of the hosts get a new
// release, in which somebody new is to blame. Each host sends some records again.
func sendDay(t *testing.T, c *otelcol, begin time.Time) (*truth, *daemons) {
	want := &truth{culprits: map[string]int64{}, rules: map[string]int64{}, machines: map[string]int64{}, releases: map[string]int64{}}
	d := &day{begin: begin, dice: rand.New(rand.NewPCG(1, 2))}
	var resources []map[string]string
	for h := range hosts {
		for _, r := range []string{"2026.11.1", "2026.11.2"} {
			resources = append(resources, map[string]string{
				"host.name": hostName(h), "deployment.id": r, "tailcam.kernel": []string{"6.1.0-40", "6.12.9"}[h%2], "service.version": "1.4.0",
			})
		}
	}
	all := runDaemons(t, c.listen, resources)
	for i := range perHost {
		for h := range hosts {
			at := begin.Add(time.Duration(i)*24*time.Hour/perHost + time.Duration(h)*time.Millisecond)
			newer := i >= perHost/2 && h%2 == 0
			k, e := &kinds[d.dice.IntN(len(kinds))], all.list[2*h]
			if newer {
				e = all.list[2*h+1]
				if d.dice.IntN(4) == 0 {
					k = &late
				}
			}
			o := d.outlier(hostName(h), k, at)
			want.add(o, hostName(h), resources[2*h+map[bool]int{true: 1}[newer]]["deployment.id"])
			publishDay(e, o, i)
		}
		if i%50 == 49 { // as many as a daemon's queue holds, in the time that it has in a quarter of a day
			eventually(t, "the collector has taken them", func() bool { return all.waiting() == 0 })
		}
	}
	return want, all
}

func hostName(h int) string { return fmt.Sprintf("web-%03d", h) }

// publishDay sends what a daemon sends of one piece of work: sometimes the same record again, as
// after a request whose answer was lost, and sometimes first two timeouts.
func publishDay(e *otlp.Exporter, o *events.Outlier, i int) {
	if i%100 == 7 {
		for n := range 2 {
			early := *o
			early.ID, early.Cause, early.DelayNS = fmt.Sprint(o.ID, "T", n), events.CauseTimeout, o.DelayNS*int64(n+1)/3
			early.Snapshot, early.Explained = nil, nil
			early.Time = o.Time.Add(-time.Duration(o.DelayNS - early.DelayNS))
			publish(e, &early)
		}
		o.Cause = events.CauseAfterTimeout
	}
	publish(e, o)
	if i%100 == 3 {
		publish(e, o)
	}
}

// TestDay: a day of 500 hosts through a real collector into a real ClickHouse; what the queries
// answer is what was sent, to the nanosecond, and each query's time is printed.
func TestDay(t *testing.T) {
	needCollector(t)
	s := newServer(t)
	c := newCollector(t, s, 0)
	begin := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
	started := time.Now()
	want, all := sendDay(t, c, begin)
	sent := int(want.outliers) + hosts*perHost/100*2 // with the timeouts
	last := 0
	for end := time.Now().Add(hang); last != sent; time.Sleep(50 * time.Millisecond) {
		last = distinct(t, s)
		assert.Assert(t, time.Now().Before(end), "%d of %d records are stored, %d lost, %d wait\n%s", last, sent, all.lost(), all.waiting(), c.said())
	}
	records, err := strconv.Atoi(s.do("SELECT count() FROM tailcam_outliers"))
	assert.NilError(t, err)
	t.Logf("%d records of %d hosts sent, queued and stored in %s, %d of them again (ClickHouse %s)", sent, hosts,
		time.Since(started).Round(time.Second), records-sent, s.do("SELECT version()"))
	all.stop()
	assert.Check(t, is.Equal(0, all.lost()))
	s.do("OPTIMIZE TABLE tailcam_outliers FINAL")
	size, err := strconv.Atoi(s.do("SELECT sum(bytes) FROM system.parts WHERE active AND table = 'tailcam_outliers'"))
	assert.NilError(t, err)
	t.Logf("%d bytes on disk: %d for each record, %d KiB for each host and day", size, size/records, size/hosts>>10)

	f := open(t, s, &fleet.Options{Password: readerPassword, SnapshotURL: "https://s3.example/{host}/{snapshot}"})
	q := fleet.Query{Since: begin.Add(-time.Minute), Until: time.Now().Add(time.Minute), Count: fleet.MaxRows}
	checkTops(t, f, q, want)
	checkRise(t, f, q)
	checkEvents(t, f, q)
	checkLinks(t, open(t, s, &fleet.Options{Password: readerPassword}), q)
	for _, statement := range shippedQueries(t) {
		assert.Check(t, s.do(statement+"\nFORMAT TabSeparated") != "", "%s", statement)
	}
	checkCLI(t, s)
	checkTimes(t, s, q)
}

// shippedQueries are the statements of queries.sql.
func shippedQueries(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "configs/fleet/clickhouse/queries.sql"))
	assert.NilError(t, err)
	list := statements(string(text))
	assert.Assert(t, len(list) > 5)
	return list
}

// TestBytes measures what a host sends for an outlier: a request on the wire, but for HTTP's headers.
func TestBytes(t *testing.T) {
	var sent, requests atomic.Int64
	kept := &collector.Collector{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(r.ContentLength)
		requests.Add(1)
		kept.ServeHTTP(w, r)
	}))
	defer h.Close()
	d := &day{dice: rand.New(rand.NewPCG(9, 10))}
	all := runDaemons(t, strings.TrimPrefix(h.URL, "http://"), []map[string]string{{"host.name": "a"}})
	const n = 20
	for i := range n { // one by one, as on a host where nothing is slow twice in a moment
		publish(all.list[0], d.outlier("a", &kinds[i%len(kinds)], time.Now()))
		eventually(t, "it is received", func() bool { return requests.Load() > int64(i) })
	}
	assert.Check(t, is.Len(kept.Records(), n))
	size := 0
	for _, r := range kept.Records() {
		size += proto.Size(r.LogRecord)
	}
	t.Logf("an outlier in a request of its own: %d bytes; as it is, in the collector's queue: %d bytes", sent.Load()/n, size/n)
}

func open(t *testing.T, s *server, o *fleet.Options) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Open(strings.Replace(s.url("clickhouse"), "//", "//reader@", 1)+"/default", o)
	assert.NilError(t, err)
	t.Cleanup(f.Close)
	return f
}

func top(t *testing.T, f *fleet.Fleet, q fleet.Query, by fleet.Key) *fleet.Top {
	t.Helper()
	q.By = by
	got, err := f.Top(t.Context(), &q)
	assert.NilError(t, err)
	return got
}

func checkTops(t *testing.T, f *fleet.Fleet, q fleet.Query, want *truth) {
	for by, sums := range map[fleet.Key]map[string]int64{
		fleet.Culprit: want.culprits, fleet.Rule: want.rules, fleet.Host: want.machines, fleet.Release: want.releases,
	} {
		got := top(t, f, q, by)
		assert.Check(t, got.Outliers == want.outliers && got.NS == want.ns && got.Hosts == hosts && got.Explained == want.explained &&
			got.ExplainedNS == want.explainedNS && got.Exact, "%s: %+v, want %+v", by, got, want)
		rows := map[string]int64{}
		for i := range got.Rows {
			r := &got.Rows[i]
			rows[r.Name] = r.NS
			assert.Check(t, i == 0 || got.Rows[i-1].NS >= r.NS, "%s: not sorted", by)
			assert.Check(t, r.Worst == nil == (r.Name == "") && (r.Worst == nil ||
				r.Worst.URL == "https://s3.example/"+r.Worst.Host+"/"+r.Worst.Snapshot && r.Worst.NS <= r.WorstNS), "%s: %+v", by, r)
			assert.Check(t, len(r.Of) > 0 == (r.Name != ""), "%s %s: %v", by, r.Name, r.Of)
		}
		assert.Check(t, is.DeepEqual(sums, rows), "%s", by)
	}
	q.Where = map[fleet.Key]string{fleet.Host: hostName(4), fleet.Culprit: "sda"}
	one := top(t, f, q, fleet.Unit)
	assert.Check(t, one.Hosts == 1 && len(one.Rows) == 1 && one.Rows[0].Name == "nginx.service" && len(one.Rows[0].Of) == 1 &&
		one.Rows[0].Of[0].Name == "sda" && one.Explained == one.Outliers, "%+v", one)
	q.Where = map[fleet.Key]string{fleet.Host: "none"}
	none := top(t, f, q, fleet.Host)
	assert.Check(t, none.Outliers == 0 && len(none.Rows) == 0)
}

// checkRise: the new culprit came with the new release; the others did not change.
func checkRise(t *testing.T, f *fleet.Fleet, q fleet.Query) {
	q.SinceRelease = fleet.Release
	for _, r := range top(t, f, q, fleet.Culprit).Rows {
		if r.Name != late.culprit {
			assert.Check(t, r.Rise == nil, "%s: %+v", r.Name, r.Rise)
			continue
		}
		assert.Assert(t, r.Rise != nil)
		assert.Check(t, r.Rise.Of == fleet.Release && r.Rise.Release == "2026.11.2" && r.Rise.New && r.Rise.Before == 0 &&
			r.Rise.After == r.Outliers && r.Rise.HostsAfter == hosts/2 && r.Rise.HostsBefore == hosts && r.Rise.AfterNSPerHour > 0 &&
			r.Rise.First.Sub(q.Since) > 11*time.Hour, "%+v", r.Rise)
	}
	q.SinceRelease = fleet.Kernel // both kernels were there from the beginning; half of the hosts of one are to blame
	_, err := f.Top(t.Context(), &fleet.Query{By: fleet.Culprit, SinceRelease: fleet.Kernel, Since: q.Since, Until: q.Until, Count: 5})
	assert.NilError(t, err)
}

// checkEvents: the newest outliers, each once, newest last.
func checkEvents(t *testing.T, f *fleet.Fleet, q fleet.Query) {
	q.Count = 300
	list, err := f.Events(t.Context(), &q)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(list, 300))
	seen := map[string]bool{}
	for i, e := range list {
		assert.Check(t, !seen[e.ID] && (i == 0 || !e.Time.Before(list[i-1].Time)), "%+v", e)
		seen[e.ID] = true
		assert.Check(t, e.Host != "" && e.Rule != "" && e.Track != "" && e.DelayNS >= e.ThresholdNS && e.Task == "nginx" &&
			e.Unit == "nginx.service" && e.Version == "1.4.0" && strings.HasPrefix(e.Kernel, "6.") && strings.HasPrefix(e.Release, "2026.11.") &&
			strings.HasPrefix(e.Summary, e.Rule+": "), "%+v", e)
		assert.Check(t, e.Snapshot == nil == (e.Culprit == "") && (e.Snapshot == nil || strings.HasPrefix(e.Snapshot.URL, "https://s3.example/web-")), "%+v", e)
	}
}

// checkLinks: without another place, snapshots are where their daemons have sent them.
func checkLinks(t *testing.T, f *fleet.Fleet, q fleet.Query) {
	for _, by := range fleet.Keys {
		for _, r := range top(t, f, q, by).Rows {
			assert.Check(t, r.Worst == nil || r.Worst.URL == sentTo(r.Worst.Host, r.Worst.Snapshot), "%s: %+v", by, r.Worst)
		}
	}
}

// checkCLI: what people type, with the password from the environment or a file.
func checkCLI(t *testing.T, s *server) {
	program := filepath.Join(t.TempDir(), "tailcam")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/tailcam").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	url := strings.Replace(s.url("http"), "//", "//reader@", 1) + "/default"
	run := func(password string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, append(args, "--fleet", url)...)
		cmd.Env = append(os.Environ(), "TAILCAM_FLEET_PASSWORD="+password)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	text, err := run(readerPassword, "top", "--since", "25h", "--since-release")
	assert.NilError(t, err, "%s", text)
	t.Logf("tailcam top --fleet URL --since 25h --since-release\n%s", text)
	assert.Check(t, is.Contains(text, "compactor: since release 2026.11.2 of "))
	text, err = run(readerPassword, "top", "--by", "host", "-n", "3", "--since", "25h")
	assert.NilError(t, err, "%s", text)
	t.Logf("tailcam top --fleet URL --by host -n 3 --since 25h\n%s", text)
	text, err = run(readerPassword, "events", "--where", "culprit=compactor", "-n", "2", "--since", "25h", "-o", "json",
		"--snapshot-url", "s3://copies/{host}/{snapshot}")
	assert.NilError(t, err, "%s", text)
	for line := range strings.Lines(text) {
		var e fleet.Event
		assert.NilError(t, json.Unmarshal([]byte(line), &e), "%s", line)
		assert.Check(t, e.Culprit == "compactor" && strings.HasPrefix(e.Snapshot.URL, "s3://copies/web-"), "%s", line)
	}
	text, err = run(readerPassword, "events", "--where", "culprit=compactor", "-n", "2", "--since", "25h", "-o", "json")
	assert.NilError(t, err, "%s", text)
	for line := range strings.Lines(text) {
		var e fleet.Event
		assert.NilError(t, json.Unmarshal([]byte(line), &e), "%s", line)
		assert.Check(t, e.Snapshot.URL != "" && e.Snapshot.URL == sentTo(e.Host, e.Snapshot.Snapshot), "%s", line)
	}
	text, err = run("wrong", "top")
	assert.Check(t, err != nil && strings.Contains(text, "access denied"), "%s", text)
	file := filepath.Join(t.TempDir(), "password")
	assert.NilError(t, os.WriteFile(file, []byte(readerPassword+"\n"), 0o600))
	text, err = run("wrong", "top", "--since", "25h", "-o", "yaml", "--fleet-password-file", file)
	assert.Check(t, err == nil && strings.Contains(text, "schema: tailcam/fleet-top/v1"), "%s", text)
}

// promised is how long a query of a day of 500 hosts may take at most, at the best of three times: it
// takes a tenth to a third of that where the machine has other work, too.
const promised = 2 * time.Second

// checkTimes prints how long each query takes, of that day and of one with more outliers. Of the day's,
// each must keep the promise.
func checkTimes(t *testing.T, s *server, q fleet.Query) {
	s.do("CREATE TABLE busy AS tailcam_outliers ENGINE = MergeTree PARTITION BY toYYYYMMDD(time) ORDER BY (time, host)")
	assert.Assert(t, is.Contains(s.do("SHOW CREATE TABLE busy"), "MATERIALIZED"))
	for n := range copies { // other work at other times, with other ids
		s.do(fmt.Sprintf("INSERT INTO busy SELECT time - %[1]d, time_ns - %[1]d000000000, observed_ns, host, concat(uid, '%[1]d'), rule, track, trigger,"+
			" delay_ns, threshold_ns, start_ns + %[1]d, tid, task, cause, culprit, culprit_kind, blamed_ns, summary, unit, pod,"+
			" namespace, container, version, kernel, release, trace_id, activity, snapshot, snapshot_url FROM tailcam_outliers", n))
	}
	for _, table := range []string{"tailcam_outliers", "busy"} {
		f, err := fleet.Open(strings.Replace(s.url("clickhouse"), "//", "//reader@", 1)+"/default?table="+table, &fleet.Options{Password: readerPassword})
		assert.NilError(t, err)
		defer f.Close()
		limit := hang
		if table == "tailcam_outliers" {
			limit = promised
		}
		t.Logf("%s: %s rows", table, s.do("SELECT count() FROM "+table))
		q.Count = 20
		for _, by := range fleet.Keys {
			q.By, q.SinceRelease = by, ""
			timed(t, limit, "top --by "+string(by), func(ctx context.Context) error { _, err := f.Top(ctx, &q); return err })
		}
		q.By, q.SinceRelease = fleet.Culprit, fleet.Release
		timed(t, limit, "top --since-release", func(ctx context.Context) error { _, err := f.Top(ctx, &q); return err })
		timed(t, limit, "events -n 20", func(ctx context.Context) error { _, err := f.Events(ctx, &q); return err })
		q.Where = map[fleet.Key]string{fleet.Culprit: "sda", fleet.Host: hostName(9)}
		timed(t, limit, "events -n 20 --where", func(ctx context.Context) error { _, err := f.Events(ctx, &q); return err })
		q.Where = nil
	}
}

// timed runs a query three times, and checks the quickest.
func timed(t *testing.T, limit time.Duration, what string, query func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	best := hang
	for range 3 {
		began := time.Now()
		assert.NilError(t, query(ctx), "%s", what)
		best = min(best, time.Since(began))
	}
	t.Logf("  %-24s %s", what, best.Round(time.Millisecond))
	assert.Check(t, best < limit, "%s took %s at best, and may take %s", what, best, limit)
}
