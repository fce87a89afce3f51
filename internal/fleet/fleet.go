// Package fleet queries the engine in which the outliers of many machines are: who
// caused most of the slow time, since which release, and which outliers these were.
// The outliers get there as OTLP log records (internal/otlp) through a collector;
// docs/fleet.md has its configuration, and the table.
//
// An engine is not trusted. What is read of an answer is bounded, and its texts may
// hold anything: make them safe where they are shown.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Key is what outliers are grouped and selected by.
type Key string

// Keys. Culprit and Cause are of the largest part of an outlier; Unit, Pod, Namespace
// and Container are those of the task that was slow.
const (
	Culprit   Key = "culprit"
	Cause     Key = "cause"
	Rule      Key = "rule"
	Host      Key = "host"
	Unit      Key = "unit"
	Pod       Key = "pod"
	Namespace Key = "namespace"
	Container Key = "container"
	Version   Key = "version"  // of tailcam
	Kernel    Key = "kernel"   // its release
	Release   Key = "release"  // what the operator says that the host runs
	Activity  Key = "activity" // name of the request that the slow thread worked for
	Trace     Key = "trace"    // its id
)

// Keys lists what Top groups by.
var Keys = []Key{Culprit, Cause, Rule, Host, Unit, Pod, Namespace, Container, Version, Kernel, Release, Activity, Trace}

// Releases lists the keys that a change can be traced to.
var Releases = []Key{Release, Kernel, Version}

// MaxRows is the largest Count of a query.
const MaxRows = 10_000

// Query selects outliers.
type Query struct {
	By    Key // Top only
	Since time.Time
	Until time.Time // exclusive
	Where map[Key]string
	Count int // rows or outliers, at most MaxRows
	// SinceRelease, if set, is one of Releases: Top finds for each row the release
	// with which its time rose.
	SinceRelease Key
}

// Top is the slow time of a fleet, grouped.
type Top struct {
	By       Key       `json:"by"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Hosts    int64     `json:"hosts"` // with outliers
	Outliers int64     `json:"outliers"`
	NS       int64     `json:"ns"` // their time
	// ExplainedNS is the time of the largest part of each explained outlier, which is
	// what culprits and causes are blamed for. Unexplained outliers have no verdict.
	Explained     int64 `json:"explained"`
	ExplainedNS   int64 `json:"explained_ns"`
	UnexplainedNS int64 `json:"unexplained_ns"`
	// Exact is false if the engine cannot count an outlier that was reported twice once.
	Exact bool  `json:"exact"`
	Rows  []Row `json:"rows"` // largest first
}

// Row is the slow time of one host, culprit, rule …
type Row struct {
	Name     string  `json:"name"` // empty: not known, or not explained
	Kind     string  `json:"kind,omitempty"`
	NS       int64   `json:"ns"`
	Share    float64 `json:"share"` // of Top.NS, 0 to 1
	Outliers int64   `json:"outliers"`
	Hosts    int64   `json:"hosts"`
	Of       []Part  `json:"of"` // causes of a culprit, culprits of all else
	WorstNS  int64   `json:"worst_ns"`
	// Worst is the slowest outlier that has a snapshot; nil if none has.
	Worst *Link `json:"worst"`
	// Rise is since which release; nil if it was not asked for, or there is none.
	Rise *Rise `json:"rise,omitempty"`
}

// Part is a part of a Row.
type Part struct {
	Name string `json:"name"`
	NS   int64  `json:"ns"`
}

// Link refers to a snapshot.
type Link struct {
	Host     string    `json:"host"`
	Snapshot string    `json:"snapshot"`
	URL      string    `json:"url,omitempty"`
	Time     time.Time `json:"time"`
	NS       int64     `json:"ns"`
}

// Event is an outlier of the fleet.
type Event struct {
	Time        time.Time `json:"time"`
	Host        string    `json:"host"`
	ID          string    `json:"id"`
	Rule        string    `json:"rule"`
	Track       string    `json:"track"`
	Trigger     string    `json:"trigger"` // threshold, timeout, after_timeout
	DelayNS     int64     `json:"delay_ns"`
	ThresholdNS int64     `json:"threshold_ns"`
	Task        string    `json:"task"`
	Cause       string    `json:"cause,omitempty"`
	Culprit     string    `json:"culprit,omitempty"`
	CulpritKind string    `json:"culprit_kind,omitempty"`
	BlamedNS    int64     `json:"blamed_ns,omitempty"`
	Summary     string    `json:"summary"` // one sentence, with the verdict
	Unit        string    `json:"unit,omitempty"`
	Pod         string    `json:"pod,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Container   string    `json:"container,omitempty"`
	Version     string    `json:"version,omitempty"`
	Kernel      string    `json:"kernel,omitempty"`
	Release     string    `json:"release,omitempty"`
	TraceID     string    `json:"trace_id,omitempty"`
	Snapshot    *Link     `json:"snapshot"`
}

// engine is what keeps the outliers of a fleet.
type engine interface {
	top(ctx context.Context, q *Query) (*Top, error)
	events(ctx context.Context, q *Query) ([]Event, error)
	// exposure and changes are what since which release is found by.
	exposure(ctx context.Context, q *Query) ([]exposure, error)
	changes(ctx context.Context, q *Query, names []string) ([]change, error)
	close()
}

// Fleet queries one engine. Its methods may be called concurrently.
type Fleet struct {
	engine    engine
	snapshots string
}

// Options are how to query an engine. All may be empty.
type Options struct {
	Password string // of the user in the URL
	// SnapshotURL is where snapshots are, instead of where daemons say that they have sent
	// them; {host} and {snapshot} in it are replaced.
	SnapshotURL string
	Version     string // of tailcam
}

// Open checks the URL of an engine and returns its client. Nothing is sent yet.
func Open(rawURL string, o *Options) (*Fleet, error) {
	if o == nil {
		o = &Options{}
	}
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	if err := checkSnapshotURL(o.SnapshotURL); err != nil {
		return nil, err
	}
	c := newClient(t, o)
	f := &Fleet{snapshots: o.SnapshotURL}
	if t.loki {
		f.engine = &loki{c}
	} else {
		f.engine = &clickhouse{client: c, table: t.table, ownLinks: o.SnapshotURL != ""}
	}
	return f, nil
}

// Close closes idle connections.
func (f *Fleet) Close() { f.engine.close() }

// Top adds up the time of outliers by q.By.
func (f *Fleet) Top(ctx context.Context, q *Query) (*Top, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	top, err := f.engine.top(ctx, q)
	if err != nil {
		return nil, err
	}
	top.By, top.Since, top.Until = q.By, q.Since.UTC(), q.Until.UTC()
	for i := range top.Rows {
		r := &top.Rows[i]
		if top.NS > 0 {
			r.Share = min(float64(r.NS)/float64(top.NS), 1)
		}
		f.link(r.Worst)
	}
	if q.SinceRelease != "" && len(top.Rows) > 0 {
		err = f.findRises(ctx, q, top)
	}
	return top, err
}

// Events returns the newest outliers, oldest first.
func (f *Fleet) Events(ctx context.Context, q *Query) ([]Event, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	list, err := f.engine.events(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range list {
		f.link(list[i].Snapshot)
	}
	slices.Reverse(list)
	return list, nil
}

// link sets the URL of a snapshot: the caller's, or what its daemon has said if that is one.
func (f *Fleet) link(l *Link) {
	switch {
	case l == nil:
	case f.snapshots != "":
		l.URL = snapshotURL(f.snapshots, l.Host, l.Snapshot)
	case checkURL(l.URL) != nil:
		l.URL = ""
	}
}

// check is for mistakes of the caller; the command line has checked what people write.
func (q *Query) check() error {
	switch {
	case q.Count < 1 || q.Count > MaxRows:
		return fmt.Errorf("invalid count %d: must be 1 to %d", q.Count, MaxRows)
	case !q.Since.Before(q.Until):
		return errors.New("empty time range")
	case q.Since.Unix() < 0 || q.Until.Unix() > 1<<32-1:
		return errors.New("time range outside 1970 to 2106")
	case q.By != "" && !slices.Contains(Keys, q.By):
		return fmt.Errorf("unknown key %q", q.By)
	case q.SinceRelease != "" && !slices.Contains(Releases, q.SinceRelease):
		return fmt.Errorf("unknown kind of release %q", q.SinceRelease)
	}
	for key := range q.Where {
		if !slices.Contains(Keys, key) {
			return fmt.Errorf("unknown key %q", key)
		}
	}
	return nil
}

// ParseWhere reads KEY=VALUE.
func ParseWhere(list []string) (map[Key]string, error) {
	where := map[Key]string{}
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		key := Key(name)
		switch {
		case !ok || !slices.Contains(Keys, key):
			return nil, fmt.Errorf("%q is not KEY=VALUE with one of the keys %s", s, join(Keys))
		case len(value) > maxValue:
			return nil, fmt.Errorf("value of %s is longer than %d bytes", key, maxValue)
		}
		if _, ok := where[key]; ok {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		where[key] = value
	}
	return where, nil
}

// maxValue is the longest value to select by, in bytes: the longest text of an attribute.
const maxValue = 4096

// sorted are the keys of Where, so that the same query has the same text.
func (q *Query) sorted() []Key { return slices.Sorted(maps.Keys(q.Where)) }

func join(keys []Key) string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// Words returns the keys for a message.
func Words(keys []Key) string { return join(keys) }
