package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// Groupings of Add.
const (
	ByCulprit      = "culprit"
	ByCause        = "cause"
	ByRule         = "rule"
	ByCgroup       = "cgroup"
	ByUnit         = "unit"
	ByPod          = "pod"
	ByContainer    = "container"
	ByImage        = "image"
	ByPattern      = "pattern"
	ByWaitSite     = "wait-site"     // where tasks waited in the kernel, or what they did there
	ByActivity     = "activity"      // name of the activity that the slow thread worked for
	ByActivityText = "activity-text" // its name and text
)

// Ways lists the groupings.
var Ways = []string{ByCulprit, ByCause, ByRule, ByCgroup, ByUnit, ByPod, ByContainer, ByImage, ByPattern, ByWaitSite, ByActivity, ByActivityText}

// Top is the time of many outliers, grouped.
type Top struct {
	By      string     `json:"by"`
	Since   *time.Time `json:"since"` // nil: all
	Covered Covered    `json:"covered"`
	Rows    []Row      `json:"rows"` // largest first; they add up to Covered.NS
}

// Covered describes what a Top is based on.
type Covered struct {
	Snapshots int   `json:"snapshots"` // examined
	Broken    int   `json:"broken"`    // unreadable
	Outliers  int   `json:"outliers"`  // in the rows
	NS        int64 `json:"ns"`        // total time
	Explained int   `json:"explained"`
	// Unexplained counts outliers of unexplained snapshots, Missed those known to the
	// daemon without a snapshot.
	ExplainedNS   int64 `json:"explained_ns"`
	Unexplained   int   `json:"unexplained"`
	UnexplainedNS int64 `json:"unexplained_ns"`
	Missed        int   `json:"missed"`
	MissedNS      int64 `json:"missed_ns"`
	// ToldNS is the time of these that is not unexplained: by who ran instead, who woke the
	// task, and the device.
	ToldNS int64 `json:"told_ns"`
	// Within counts outliers within another outlier of the same work; their time counts
	// once.
	Within int `json:"within"`
}

// Row is the time of one culprit, cause or rule, or of the culprits in one place.
type Row struct {
	Name string `json:"name"`
	// Kind is the grouping; or of the culprit, if that is the grouping or it runs nowhere;
	// none: tasks outside of any such place; unknown.
	Kind     string  `json:"kind"`
	NS       int64   `json:"ns"`
	Share    float64 `json:"share"` // of the total, 0 to 1
	Outliers int     `json:"outliers"`
	Of       []Slice `json:"of"`              // causes of a culprit, culprits of others
	Users    []Slice `json:"users,omitempty"` // of a device: for whom it worked
	Worst    []Link  `json:"worst"`           // longest occurrences
}

// Slice is a part of a Row.
type Slice struct {
	Name string `json:"name"`
	NS   int64  `json:"ns"`
}

// Link refers to a snapshot. ID and Dir are empty if there is none.
type Link struct {
	ID      string    `json:"id,omitempty"`
	Short   string    `json:"short,omitempty"`
	Dir     string    `json:"dir,omitempty"`
	Time    time.Time `json:"time"`
	NS      int64     `json:"ns"`       // time counted in the row
	DelayNS int64     `json:"delay_ns"` // of the outlier
}

const (
	worstKept  = 3
	slicesKept = 5
)

// TopOptions configures Add. Seen are outliers remembered by the daemon, those in
// snapshots included; Boot is the boot they belong to.
type TopOptions struct {
	By     string
	Since  time.Time // zero: all
	Broken int
	Seen   []*events.Outlier
	Boot   string
}

// item is an outlier being added to a Top.
type item struct {
	outlier
	boot   string
	result *Result
	reason string // why there is no result
	told   []Part // by the outlier itself, if there is no snapshot
	link   Link
	left   int64  // part of its delay not explained by nested outliers
	until  uint64 // time up to which nested outliers explain it
}

// Add groups the outliers of snapshots and those remembered by the daemon.
func Add(list []Snapshot, o TopOptions) *Top {
	t := &Top{By: o.By, Covered: Covered{Snapshots: len(list), Broken: o.Broken}, Rows: []Row{}}
	if !o.Since.IsZero() {
		t.Since = &o.Since
	}
	items, missed := collect(list, &o)
	counted := t.once(items)
	rows := map[string]*Row{}
	made, users := map[string]map[string]int64{}, map[string]map[string]int64{}
	for _, it := range counted {
		c := &t.Covered
		c.Outliers++
		switch {
		case it.result != nil:
			c.Explained++
			c.ExplainedNS = plus(c.ExplainedNS, it.left)
		case missed[it.id()]:
			c.Missed++
			c.MissedNS = plus(c.MissedNS, it.left)
			for _, p := range it.parts() {
				if p.Cause != explain.Unexplained {
					c.ToldNS = plus(c.ToldNS, p.NS)
				}
			}
		default:
			c.Unexplained++
			c.UnexplainedNS = plus(c.UnexplainedNS, it.left)
		}
		c.NS = plus(c.NS, it.left)
		t.spread(it, rows, made, users)
	}
	for key, r := range rows {
		r.Share = float64(r.NS) / float64(max(t.Covered.NS, 1))
		r.Of = largest(made[key])
		if users[key] != nil {
			r.Users = largest(users[key])
		}
		t.Rows = append(t.Rows, *r)
	}
	sortRows(t.Rows)
	return t
}

func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}

// id identifies an outlier.
func (i *item) id() string {
	return fmt.Sprintf("%s %s %d %d %d %s", i.boot, i.rule, i.task.TID, i.start, i.end, i.key)
}

// collect returns the outliers since a time, each once; missed are those without a
// snapshot.
func collect(list []Snapshot, o *TopOptions) (items []*item, missed map[string]bool) {
	have := map[string]bool{}
	for i := range list {
		s := &list[i]
		for j := range s.outliers {
			x := &s.outliers[j]
			it := &item{outlier: *x, boot: s.boot, reason: s.Unexplained, left: max(x.delay, 0),
				link: Link{ID: s.ID, Short: s.Short, Dir: s.Dir, Time: x.time, DelayNS: x.delay}}
			id := it.id()
			if x.time.Before(o.Since) || have[id] {
				continue
			}
			have[id] = true
			if j < len(s.results) && s.results[j].DelayNS == x.delay {
				it.result = &s.results[j]
			}
			items = append(items, it)
		}
	}
	missed = map[string]bool{}
	for _, x := range o.Seen {
		it := &item{boot: o.Boot, reason: noSnapshot, left: max(x.DelayNS, 0), outlier: outlierOf(x), told: told(x),
			link: Link{Time: x.Time, DelayNS: x.DelayNS}}
		if id := it.id(); !x.Time.Before(o.Since) && !have[id] {
			have[id], missed[id] = true, true
			items = append(items, it)
		}
	}
	return items, missed
}

// work identifies a task, or other work, whose time must count only once.
func (i *item) work(by string) string {
	w := fmt.Sprintf("%s %d", i.boot, i.task.TID)
	switch i.track {
	case "wakeup", "offcpu", "syscall", "block":
	case "activity": // one thread's, of whom there may be several: its other outliers are within
		if by != ByActivity && by != ByActivityText {
			w = fmt.Sprintf("%s %s %s", i.boot, i.rule, i.key)
		}
	default:
		w = fmt.Sprintf("%s %s %s", i.boot, i.rule, i.key)
	}
	if by == ByRule {
		w += " " + i.rule
	}
	return w
}

// once removes outliers within another one of the same work: a sleep in a slow system
// call, or a timeout before the end. If only the inner one is explained, both stay, and
// the outer one keeps the remaining time.
func (t *Top) once(items []*item) []*item {
	groups := map[string][]*item{}
	var order []string
	for _, it := range items {
		w := it.work(t.By)
		if groups[w] == nil {
			order = append(order, w)
		}
		groups[w] = append(groups[w], it)
	}
	var out []*item
	for _, w := range order {
		group := groups[w]
		slices.SortStableFunc(group, func(a, b *item) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
		var outer *item
		for _, it := range group {
			switch {
			case outer == nil || it.end > outer.end:
				outer = it
				outer.until = outer.start
			case outer.result == nil && it.result != nil && it.start >= outer.until && it.delay <= outer.left:
				outer.left -= it.delay
				outer.until = it.end
			default:
				t.Covered.Within++
				continue
			}
			out = append(out, it)
		}
	}
	return out
}

// parts are those of an outlier's time that is left.
func (i *item) parts() []Part {
	switch {
	case i.result != nil:
		return i.result.roots()
	case len(i.told) > 0:
		return cut(i.told, i.left)
	}
	return []Part{{Cause: explain.Unexplained, NS: i.left, Reason: i.reason}}
}

// spread adds an outlier's parts to the rows.
func (t *Top) spread(it *item, rows map[string]*Row, made, users map[string]map[string]int64) {
	parts := it.parts()
	mine := map[string]int64{}
	for i := range parts {
		p := &parts[i]
		name, kind, of := t.names(it, p)
		key := kind + " " + name
		r := rows[key]
		if r == nil {
			r = &Row{Name: name, Kind: kind}
			rows[key], made[key] = r, map[string]int64{}
		}
		r.NS = plus(r.NS, p.NS)
		made[key][of] = plus(made[key][of], p.NS)
		mine[key] = plus(mine[key], p.NS)
		if kind == explain.KindDevice {
			if users[key] == nil {
				users[key] = map[string]int64{}
			}
			users[key][it.user(p)] = plus(users[key][it.user(p)], p.NS)
		}
	}
	for key, ns := range mine {
		r := rows[key]
		r.Outliers++
		link := it.link
		link.NS = ns
		r.Worst = append(r.Worst, link)
		sortLinks(r.Worst)
		r.Worst = r.Worst[:min(len(r.Worst), worstKept)]
	}
}

func sortLinks(l []Link) {
	slices.SortStableFunc(l, func(a, b Link) int { return cmp.Compare(b.NS, a.NS) })
}

// names returns the row of a part, and what it is counted as there.
func (t *Top) names(it *item, p *Part) (name, kind, of string) {
	culprit, what := it.culprit(p)
	switch t.By {
	case ByWaitSite:
		return it.site(p, culprit)
	case ByCause:
		return string(p.Cause), ByCause, culprit
	case ByRule:
		return it.rule, ByRule, culprit
	case ByActivity, ByActivityText:
		if name = it.activityName(t.By); name != "" {
			return name, t.By, culprit
		}
		return "no known activity", explain.KindUnknown, culprit
	case ByPattern:
		switch {
		case it.result == nil:
			return culprit, what, string(p.Cause)
		case it.result.Pattern == "":
			return "no known pattern", explain.KindUnknown, culprit
		}
		return string(it.result.Pattern), ByPattern, culprit
	case ByCgroup, ByUnit, ByPod, ByContainer, ByImage:
		if name, kind, ok := place(t.By, p.By); ok {
			return name, kind, culprit
		}
	}
	return culprit, what, string(p.Cause)
}

// activityName is what the slow thread worked for; empty: unknown.
func (i *item) activityName(by string) string {
	if by == ByActivityText && i.activity != "" && i.about != "" {
		return i.activity + ": " + i.about
	}
	return cmp.Or(i.activity, i.about)
}

// Culprit returns the name of a culprit without numbers that differ between snapshots,
// such as the thread id.
func Culprit(p *Part) (name, kind string) {
	w := p.By
	if w == nil {
		if p.Reason != "" {
			return "not explained: " + p.Reason, explain.KindUnknown
		}
		return string(p.Cause), explain.KindUnknown
	}
	if w.Kind != explain.KindTask {
		return cmp.Or(w.Name, w.Kind), w.Kind
	}
	name = cmp.Or(w.Comm, w.Name)
	if strings.HasPrefix(name, "kworker/") {
		return "kworker", w.Kind
	}
	// Strip the CPU number, as in ksoftirqd/3.
	if i := strings.LastIndexByte(name, '/'); i > 0 && strings.Trim(name[i+1:], "0123456789") == "" {
		name = name[:i]
	}
	return name, w.Kind
}

// largest returns the largest slices.
func largest(sums map[string]int64) []Slice {
	out := make([]Slice, 0, len(sums))
	for name, ns := range sums {
		out = append(out, Slice{Name: name, NS: ns})
	}
	slices.SortFunc(out, func(a, b Slice) int { return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Name, b.Name)) })
	return out[:min(len(out), slicesKept)]
}

func outlierOf(o *events.Outlier) outlier {
	out := outlier{
		time: o.Time, rule: o.Rule, track: o.Track, key: fmt.Sprint(o.Key), delay: o.DelayNS,
		task: o.Task, start: o.StartMono, end: o.EndMono,
	}
	if a := o.Activity; a != nil {
		out.activity, out.about = a.Name, a.Text
	}
	return out
}

// plus is a saturating addition.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Boot returns the boot id, as in snapshot.json.
func Boot() string {
	data, err := snapshot.ReadFile("/proc/sys/kernel/random/boot_id", 4096)
	if err != nil {
		return "" // matches no snapshot
	}
	return strings.TrimSpace(string(data))
}
