package catalog_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

func disk() *explain.Who {
	return &explain.Who{Kind: explain.KindDevice, Name: "sda", Device: "sda"}
}

func inCgroup(w *explain.Who, cgroup string) *explain.Who {
	w.Cgroup = cgroup
	return w
}

func add(t *testing.T, dir string, o catalog.TopOptions) *catalog.Top {
	t.Helper()
	list, broken, err := catalog.Read(dir, catalog.Options{Since: o.Since})
	assert.NilError(t, err)
	o.Broken = len(broken)
	top := catalog.Add(list, o)
	var sum int64
	for i := range top.Rows {
		r := &top.Rows[i]
		sum += r.NS
		assert.Check(t, len(r.Worst) != 0 && len(r.Of) != 0 && r.Worst[0].NS >= r.Worst[len(r.Worst)-1].NS,
			"%+v", r)
	}
	c := top.Covered
	assert.Check(t, sum == c.NS && c.NS == c.ExplainedNS+c.UnexplainedNS+c.MissedNS &&
		c.Outliers == c.Explained+c.Unexplained+c.Missed, "rows add up to %d: %+v", sum, c)
	return top
}

func brief(top *catalog.Top) []string {
	var out []string
	for i := range top.Rows {
		r := &top.Rows[i]
		out = append(out, fmt.Sprintf("%s %s %dms in %d, worst %dms in %s", r.Kind, r.Name, r.NS/ct.Millisecond, r.Outliers, r.Worst[0].NS/ct.Millisecond, r.Worst[0].Short))
	}
	return out
}

func TestTop(t *testing.T) {
	dir, _ := ct.Make(t,
		ct.One{TID: 1, DelayNS: 30e6, Parts: []explain.Part{ct.Part(explain.Preempted, inCgroup(ct.Task("rt-hog", 99, 49), "/rt"), 30)}},
		// The same program with another number, and two workers.
		ct.One{TID: 2, Age: time.Hour, DelayNS: 60e6, Rule: "commit", Parts: []explain.Part{
			ct.Part(explain.Preempted, inCgroup(ct.Task("rt-hog", 100, 49), "/rt"), 40),
			ct.Part(explain.Runnable, ct.Task("kworker/1:2", 50, 120), 12), ct.Part(explain.Runnable, ct.Task("kworker/u8:3-flush", 51, 120), 8)}},
		// Its task waited for a task, which waited for the disk.
		ct.One{TID: 3, Age: 2 * time.Hour, DelayNS: 50e6, Rule: "commit", Parts: []explain.Part{ct.Part(explain.Task, ct.Task("server", 7, 120), 50)},
			Roots: []explain.Part{ct.Part(explain.BlockDevice, disk(), 45), ct.Part(explain.Running, ct.Task("server", 7, 120), 5)}, Pattern: explain.CheckpointStorm},
		ct.One{TID: 4, Age: 3 * time.Hour, DelayNS: 5e6},
	)
	for by, want := range map[string][]string{
		catalog.ByCulprit: {
			"task rt-hog 70ms in 2, worst 40ms in 20261121T001502", "device sda 45ms in 1, worst 45ms in 20261121T011502", "task kworker 20ms in 1, worst 20ms in 20261121T001502",
			"unknown not explained: it is not explained 5ms in 1, worst 5ms in 20261121T021502", "task server 5ms in 1, worst 5ms in 20261121T011502",
		},
		catalog.ByCause: {
			"cause preempted 70ms in 2, worst 40ms in 20261121T001502", "cause block_device 45ms in 1, worst 45ms in 20261121T011502", "cause runnable 20ms in 1, worst 20ms in 20261121T001502",
			"cause running 5ms in 1, worst 5ms in 20261121T011502", "cause unexplained 5ms in 1, worst 5ms in 20261121T021502",
		},
		catalog.ByPattern: {
			"unknown no known pattern 90ms in 2, worst 60ms in 20261121T001502", "pattern checkpoint 50ms in 1, worst 50ms in 20261121T011502",
			"unknown not explained: it is not explained 5ms in 1, worst 5ms in 20261121T021502",
		},
		catalog.ByRule: {"rule commit 110ms in 2, worst 60ms in 20261121T001502", "rule wakeup 35ms in 2, worst 30ms in 20261120T231502"},
		catalog.ByCgroup: {
			"cgroup /rt 70ms in 2, worst 40ms in 20261121T001502", "device sda 45ms in 1, worst 45ms in 20261121T011502", "unknown cgroup not known 25ms in 2, worst 20ms in 20261121T001502",
			"unknown not explained: it is not explained 5ms in 1, worst 5ms in 20261121T021502",
		},
	} {
		diff := cmp.Diff(want, brief(add(t, dir, catalog.TopOptions{By: by})))
		assert.Check(t, diff == "", "by %s:\n%s", by, diff)
	}
	late := add(t, dir, catalog.TopOptions{By: catalog.ByCulprit, Since: ct.Start.Add(90 * time.Minute)})
	c := late.Covered
	assert.Check(t, c.Outliers == 2 && c.NS == 55e6 && c.Explained == 1 && c.Unexplained == 1 && late.Since != nil,
		"since: %+v", c)
	empty := catalog.Add(nil, catalog.TopOptions{By: catalog.ByRule})
	assert.Check(t, len(empty.Rows) == 0 && empty.Covered == (catalog.Covered{}), "%+v", empty)
}

// TestTopPlaces: time is added up by where the culprit runs. What is known to be in none is
// not mixed with what is not known.
func TestTopPlaces(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const pods = "/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-" + id + ".scope"
	at := func(name, cgroup string, p explain.Place) *explain.Who {
		w := inCgroup(ct.Task(name, 99, 120), cgroup)
		w.Place = p
		return w
	}
	shop := explain.Place{Container: id, ContainerName: "app", Image: "shop/app:1.2", Pod: "web-1", Namespace: "shop"}
	parts := []explain.Part{
		ct.Part(explain.Preempted, at("web", pods, shop), 20),
		ct.Part(explain.Preempted, at("late", pods, explain.Place{Container: id}), 9), // its runtime has not answered
		ct.Part(explain.Preempted, at("postgres", "/system.slice/postgresql@15-main.service", explain.Place{Unit: "postgresql@15-main.service"}), 8),
		ct.Part(explain.Throttled, &explain.Who{Kind: explain.KindCgroup, Name: "/system.slice/batch.service", Cgroup: "/system.slice/batch.service"}, 7),
		ct.Part(explain.Preempted, at("web1", "/system.slice/docker-"+id+".scope", explain.Place{Container: id, ContainerName: "web1"}), 6),
		ct.Part(explain.Runnable, at("kworker/1:2", "/", explain.Place{}), 5),
		ct.Part(explain.Runnable, at("gone", "", explain.Place{}), 4),
		ct.Part(explain.BlockDevice, disk(), 3),
		ct.Part(explain.Throttled, &explain.Who{Kind: explain.KindCgroup, Name: "its cgroup"}, 2),
		ct.Part(explain.Runnable, &explain.Who{Kind: explain.KindSelf, Name: "idle"}, 1),
	}
	dir, _ := ct.Make(t, ct.One{DelayNS: 65e6, Parts: parts})
	for by, want := range map[string][]string{
		catalog.ByUnit: {
			"unit cri-containerd-" + id + ".scope 29ms", "unit postgresql@15-main.service 8ms", "unit batch.service 7ms", "unit docker-" + id + ".scope 6ms",
			"unknown unit not known 6ms", "none no unit 5ms", "device sda 3ms", "self idle 1ms",
		},
		catalog.ByPod: {"none no pod 26ms", "pod shop/web-1 20ms", "unknown pod not known 15ms", "device sda 3ms", "self idle 1ms"},
		catalog.ByImage: {
			"unknown image not known 21ms", "none no image 20ms", "image shop/app:1.2 20ms", "device sda 3ms", "self idle 1ms",
		},
		catalog.ByContainer: {
			"none no container 20ms", "container shop/web-1/app 20ms", "container " + id + " 9ms", "unknown container not known 6ms", "container web1 6ms",
			"device sda 3ms", "self idle 1ms",
		},
	} {
		var got []string
		top := add(t, dir, catalog.TopOptions{By: by})
		for i := range top.Rows {
			r := &top.Rows[i]
			got = append(got, fmt.Sprintf("%s %s %dms", r.Kind, r.Name, r.NS/ct.Millisecond))
			if r.Kind == by || r.Kind == catalog.KindNone {
				assert.Check(t, !strings.Contains(r.Of[0].Name, "preempted"), "not the culprits: %+v", r)
			}
		}
		assert.Check(t, is.DeepEqual(want, got), "by %s", by)
	}
}

// Time is counted once: what lies within another outlier of the same task, what
// a snapshot and the daemon both have, and what two snapshots have.
func TestTopOnce(t *testing.T) {
	explained := func(tid int, delay int64) ct.One {
		return ct.One{TID: tid, DelayNS: delay * ct.Millisecond, Boot: "b", Parts: []explain.Part{ct.Part(explain.Preempted, hog(), float64(delay))}}
	}
	same := explained(7, 20)
	same.Age = time.Second
	same.Meta = func(m *snapshot.Meta) { m.Outliers[0].Time = ct.Start }
	inner := explained(7, 15) // ends with the first one, and began later
	inner.Rule = "other"
	dir, _ := ct.Make(t, explained(7, 20), same, inner, explained(8, 20))
	seen := func(tid int, start, end uint64) *events.Outlier {
		return &events.Outlier{Time: ct.Start.Add(time.Minute), Rule: "late", Track: "offcpu", DelayNS: int64(end - start),
			Task: events.Task{TID: tid}, StartMono: start, EndMono: end}
	}
	const begin, end = 1_980_000_000, 2_000_000_000
	held := seen(7, begin, end)
	held.Rule, held.Key = "wakeup", map[string]uint64{"tid": 7}
	list := []*events.Outlier{
		held,                          // in a snapshot
		seen(9, begin, end),           // in none
		seen(8, begin-5e6, end+5e6),   // around what is explained: 10 ms are not
		seen(9, begin+1e6, end-1e6),   // within the one in none
		seen(8, end+100e6, end+101e6), // later, of the same task
	}
	top := add(t, dir, catalog.TopOptions{By: catalog.ByCulprit, Seen: list, Boot: "b"})
	want := []string{
		"task rt-hog 40ms in 2, worst 20ms in 20261120T231502.123456789Z-wakeup-000001",
		"unknown not explained: no snapshot holds it 31ms in 3, worst 20ms in ",
	}
	assert.Check(t, is.DeepEqual(want, brief(top)))
	c := top.Covered
	assert.Check(t, c.Within == 2 && c.Missed == 3 && c.MissedNS == 31e6 && c.Explained == 2, "%+v", c)
	// Another boot has another clock.
	c = add(t, dir, catalog.TopOptions{By: catalog.ByCulprit, Seen: list[:1], Boot: "c"}).Covered
	assert.Check(t, c.Missed == 1, "another boot: %+v", c)
	// By rule each rule has its own.
	c = add(t, dir, catalog.TopOptions{By: catalog.ByRule}).Covered
	assert.Check(t, c.Within == 0 && c.NS == 55e6, "by rule: %+v", c)
}

// What a hostile file says does not overflow.
func TestTopHostile(t *testing.T) {
	huge := []explain.Part{{Cause: "x\x1b[31m", By: &explain.Who{Kind: explain.KindTask, Comm: "\x1b[2J"}, NS: math.MaxInt64, Count: 1}}
	dir, _ := ct.Make(t, ct.One{}, ct.One{}, ct.One{})
	ids, err := snapshot.IDs(dir)
	assert.NilError(t, err)
	for i, id := range ids {
		m, err := snapshot.ReadMeta(filepath.Join(dir, id))
		assert.NilError(t, err)
		m.Outliers[0].DelayNS, m.Outliers[0].Task.TID = math.MaxInt64, i
		ct.JSON(t, filepath.Join(dir, id, snapshot.MetaFile), m)
		ct.JSON(t, filepath.Join(dir, id, snapshot.ExplainJSONFile), explain.Report{Version: 1, Outliers: []explain.Result{{DelayNS: math.MaxInt64, Parts: huge}}})
	}
	list, _, err := catalog.Read(dir, catalog.Options{})
	assert.NilError(t, err)
	for _, by := range catalog.Ways {
		top := catalog.Add(list, catalog.TopOptions{By: by})
		assert.Check(t, top.Covered.NS == math.MaxInt64 && len(top.Rows) == 1 && top.Rows[0].NS == math.MaxInt64,
			"%+v", top)
	}
}

func TestCompare(t *testing.T) {
	report := func(parts ...explain.Part) *explain.Report {
		var delay int64
		for i := range parts {
			delay += parts[i].NS
		}
		return &explain.Report{Version: 1, Outliers: []explain.Result{{DelayNS: 1}, {DelayNS: delay, Parts: parts}, {DelayNS: 2}}}
	}
	a := catalog.NewSide("a", report(ct.Part(explain.Preempted, ct.Task("hog", 1, 49), 20), ct.Part(explain.Runnable, ct.Task("web", 2, 120), 10),
		ct.Part(explain.BlockDevice, disk(), 5), ct.Part(explain.Running, ct.Task("me", 3, 120), 1)), 0)
	b := catalog.NewSide("b", report(ct.Part(explain.Preempted, ct.Task("hog", 11, 49), 30), ct.Part(explain.Preempted, ct.Task("hog", 12, 49), 10),
		ct.Part(explain.Locked, ct.Task("me", 13, 120), 7), ct.Part(explain.Runnable, ct.Task("web", 14, 120), 3), ct.Part(explain.Running, ct.Task("me", 13, 120), 1.01)), 0)
	d := catalog.Compare(a, b)
	var got []string
	var sum int64
	for _, c := range d.Parts {
		got = append(got, fmt.Sprintf("%s %s %+.2f %s", c.Cause, c.By, float64(c.ChangeNS)/1e6, c.Became))
		sum += c.ChangeNS
	}
	want := []string{"preempted hog +20.00 longer", "lock me +7.00 new", "runnable web -7.00 shorter", "block_device sda -5.00 gone", "running me +0.01 same"}
	diff := cmp.Diff(want, got)
	assert.Check(t, diff == "" && sum == d.ChangeNS && d.A.Outlier == 2 && d.A.Of == 3,
		"%d, %d, %+v\n%s", sum, d.ChangeNS, d.A, diff)
	same := catalog.Compare(a, a)
	assert.Check(t, same.ChangeNS == 0 && same.Parts[0].Became == catalog.Same, "with itself: %+v", same)
}

// Thousands are added up.
func TestTopThousands(t *testing.T) {
	one := explained()
	first, ids := ct.Make(t, one)
	meta, err := snapshot.ReadMeta(filepath.Join(first, ids[0]))
	assert.NilError(t, err)
	one.Rule, one.Comm, one.TID, one.DelayNS = "wakeup", "victim", 7, 20e6
	dir := t.TempDir()
	n := 2000
	if testing.Short() {
		n = 200
	}
	for i := range n {
		meta.Time = ct.Start.Add(time.Duration(i) * time.Second)
		meta.ID = snapshot.ID{Time: meta.Time, Rule: "wakeup", Number: uint64(i)}.String()
		meta.Outliers[0].Time, meta.Outliers[0].Task.TID = meta.Time, i
		assert.NilError(t, os.Mkdir(filepath.Join(dir, meta.ID), 0o750))
		ct.JSON(t, filepath.Join(dir, meta.ID, snapshot.MetaFile), meta)
		ct.JSON(t, filepath.Join(dir, meta.ID, snapshot.ExplainJSONFile), one.Report())
	}
	top := add(t, dir, catalog.TopOptions{By: catalog.ByCulprit})
	c := top.Covered
	assert.Check(t, c.Explained == n && c.NS == int64(n)*20e6 && top.Rows[0].Name == "rt-hog" &&
		top.Rows[0].NS == int64(n)*19e6, "%+v, %+v", c, top.Rows)
}
