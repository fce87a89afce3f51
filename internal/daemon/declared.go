package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities/declared"
	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
)

// openDeclared has the rules begin and end activities in programs.
func (d *daemon) openDeclared() error {
	d.logWithoutActivities(d.rules)
	d.useDeclared(d.rules)
	return nil
}

// useDeclared does so for these rules from now on, and for no others. Without it they find
// slow pairs as they do anyway. Requires d.change, once the daemon runs.
func (d *daemon) useDeclared(list []rules.Rule) {
	if d.activities == nil || d.declared == nil && len(rules.Declared(list)) == 0 {
		return
	}
	if d.declared == nil {
		if err := d.beginDeclared(); err != nil {
			d.log.Warn("rules declare no activities", zap.Error(err))
			return
		}
	}
	for rule, err := range d.declared.Use(list) {
		d.log.Warn("a rule declares no activity", zap.String("rule", rule), zap.Error(err))
	}
}

func (d *daemon) beginDeclared() error {
	entry, err := d.activities.OpenDeclared()
	if err != nil {
		return err
	}
	set, err := declared.New(&declared.Kernel{Maps: d.activities.Maps(), Owner: entry.Owner()}, d.symbols, d.log.Named("activities"))
	if err != nil {
		entry.Close()
		return err
	}
	d.declaredRun = make(chan error, 1)
	go func() { d.declaredRun <- set.Run() }()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.declared, d.declaredEntry = set, entry
	return nil
}

func (d *daemon) closeDeclared() error {
	if d.declared == nil {
		return nil
	}
	err := d.declared.Close()
	return cmp.Or(<-d.declaredRun, err)
}

// addDeclared adds the activities that rules declare: the sums of all, and of the slowest ones
// each, if ended is set.
func (d *daemon) addDeclared(info *api.ActivitiesInfo, ended bool) error {
	d.mu.Lock()
	set := d.declared
	d.mu.Unlock()
	if set == nil {
		return nil
	}
	totals, err := set.Totals()
	if err != nil {
		return err
	}
	d.addDeclaredLive(info, set)
	if s, ok := watch.SharedOf(opened{d.declaredEntry, d.requests}); ok {
		info.Shared = append(info.Shared, newShared(&s))
	}
	for i := range totals {
		t := &totals[i]
		info.Declared = append(info.Declared, api.DeclaredInfo{
			Rule: t.Rule, Name: t.Activity, Count: t.Wall.Count, Replaced: t.Replaced, Nested: t.Nested, Refused: t.Refused, Lost: t.Lost,
		})
		values := watch.Of((*[abi.ActivityValues]uint64)(&t.Values), t.Wall.Sum)
		info.Count += t.Wall.Count
		info.Missed += t.Replaced
		info.Names = append(info.Names, newActivityTotals(&watch.Totals{Name: t.Activity, UID: ^uint32(0), Histogram: t.Wall, Values: values}))
	}
	if !ended {
		return nil
	}
	wall, now, labels := time.Now(), linux.Monotonic(), set.Labels()
	for _, e := range set.Ended() {
		at := d.identifyOpened(e.PID)
		values := watch.Of((*[abi.ActivityValues]uint64)(&e.Values), e.WallNS())
		info.Ended = append(info.Ended, newActivity(&watch.Record{
			ID: fmt.Sprintf("%s.%d.%d", e.Rule, e.TID, e.BeginNS), Name: e.Activity, Text: e.Text, UID: e.UID, PID: e.PID,
			Identity: watch.Identity{Comm: e.Comm, Place: at.Place}, Threads: []int{e.TID}, Begin: e.BeginNS, End: e.EndNS, Values: values,
			Attributes: labelled(labels[e.Rule], e.Text),
		}, wall.Add(-time.Duration(now-min(e.BeginNS, now))).UTC()))
	}
	return nil
}

// labelled are the attributes of an activity with a label's text; nil: it has none.
func labelled(label, text string) map[string]string {
	if label == "" || text == "" {
		return nil
	}
	return map[string]string{label: text}
}

// maxDeclaredLive bounds the live ones that are listed, and asked for who their threads are: those
// that began first.
const maxDeclaredLive = 1024

// addDeclaredLive adds the activities that have not ended, from the maps that their threads share.
func (d *daemon) addDeclaredLive(info *api.ActivitiesInfo, set *declared.Set) {
	list := d.requests.CarriedOf(opened{d.declaredEntry, d.requests})
	info.LiveCount += len(list)
	list = list[:min(len(list), maxDeclaredLive)]
	tids := make([]int, len(list))
	for i, c := range list {
		tids[i] = c.Threads[0]
	}
	tasks := map[int]process.Task{}
	for _, task := range d.hosts.Tasks(tids, declaredTasksTime) {
		tasks[task.TID] = task
	}
	wall, now, labels := time.Now(), linux.Monotonic(), set.Labels()
	for i, c := range list {
		task, ok := tasks[tids[i]]
		rule := set.RuleOf(c.Slot)
		if !ok || task.Exited || rule == "" {
			continue // it has ended, or its rule is gone
		}
		c.ID, c.PID, c.Comm = fmt.Sprintf("%s.%d.%d", rule, tids[i], c.Begin), task.PID, task.Comm
		c.Place = d.cgroups().PlaceOf(task.Cgroup).Place
		c.UID, c.Attributes = userOf(tids[i]), labelled(labels[rule], c.Text)
		info.Live = append(info.Live, newActivity(c.Record, wall.Add(-time.Duration(now-min(c.Begin, now))).UTC()))
	}
	slices.SortStableFunc(info.Live, func(a, b api.ActivityInfo) int { return a.Begun.Compare(b.Begun) })
}

// declaredTasksTime is how long threads are asked for who they are.
const declaredTasksTime = 200 * time.Millisecond

// userOf is the user of a thread.
func userOf(tid int) uint32 {
	var s unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(tid), &s); err != nil {
		return ^uint32(0)
	}
	return s.Uid
}

// declaredLosses is what rules that declare activities have missed.
func (d *daemon) declaredLosses() (list []api.Loss) {
	d.mu.Lock()
	set := d.declared
	d.mu.Unlock()
	if set == nil {
		return nil
	}
	totals, err := set.Totals()
	if err != nil {
		d.log.Warn("read the totals of declared activities", zap.Error(err))
	}
	for i := range totals {
		t := &totals[i]
		for _, l := range []struct {
			cause  string
			count  uint64
			advice string
		}{
			{"activity_replaced", t.Replaced, "another activity began before the end was seen: check the rule's exit and cancel"},
			{"activity_nested", t.Nested, "an entry within an activity of the thread, which goes on: if that is not meant, check the rule's entry"},
			{"activity_unslotted", t.Refused, "no slot was free for a thread, or its process marks activities itself: fewer threads, or one of both ways"},
			{"activity_unremembered", t.Lost, "more slow activities at once than the daemon reads: their sums are complete"},
		} {
			list = append(list, api.Loss{Cause: l.cause, Rule: t.Rule, Tracker: string(rules.Pair), Count: l.count, Advice: l.advice})
		}
	}
	return list
}
