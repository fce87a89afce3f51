package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxLine is the longest row of an answer, in bytes.
const maxLine = 1 << 20

// clickhouse queries the table of configs/fleet/clickhouse, over HTTP. It uses what all
// versions from 18.16 on have, and no settings: a user that may only read must not
// change any.
type clickhouse struct {
	*client
	table    string
	ownLinks bool // links to snapshots are made here: none are asked for
}

// query sends SQL and decodes each row of the answer.
func query[T any](ctx context.Context, c *clickhouse, sql string) ([]T, error) {
	u := *c.base
	u.Path = "/"
	req, err := http.NewRequest(http.MethodPost, u.String(), strings.NewReader(sql+"\nFORMAT JSONEachRow"))
	if err != nil {
		return nil, err
	}
	var rows []T
	err = c.do(ctx, req, func(r io.Reader) error {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			var row T
			if err := json.Unmarshal(line, &row); err != nil { // an error after the first rows is text
				return fmt.Errorf("not an answer of ClickHouse: %s", clip(string(line)))
			}
			if rows = append(rows, row); len(rows) > maxAnswerRows {
				return errors.New("more rows than were asked for")
			}
		}
		return lines.Err()
	})
	return rows, err
}

// maxAnswerRows is more than any query asks for.
const maxAnswerRows = 4*MaxRows + 1

// integer is a number that ClickHouse may have quoted, as versions before 25.8 do.
type integer int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *integer) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(string(bytes.Trim(b, `"`)), 10, 64)
	*n = integer(v)
	return err
}

// quote writes a string literal of ClickHouse. All but letters, digits and a few signs
// are written as bytes in hexadecimal, so that no text can end the literal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(" ._-/:@", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02X`, c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// columns are those of the table that keys are in.
var columns = map[Key]string{
	Culprit: "culprit", Cause: "cause", Rule: "rule", Host: "host", Unit: "unit", Pod: "pod", Namespace: "namespace",
	Container: "container", Version: "version", Kernel: "kernel", Release: "release", Activity: "activity", Trace: "trace_id",
}

// blamed are the keys that an outlier has once it is explained.
func blamed(k Key) bool { return k == Culprit || k == Cause }

// merged is the expression for a key of a piece of work, of which several records may
// tell: the one that explains most knows culprit and cause.
func merged(k Key) string {
	if blamed(k) {
		return "argMax(" + columns[k] + ", blamed_ns)"
	}
	return "any(" + columns[k] + ")"
}

// selection is the WHERE of a query: rows, before they are merged.
func (c *clickhouse) selection(q *Query) string {
	where := fmt.Sprintf("time >= toDateTime(%d) AND time < toDateTime(%d)", q.Since.Unix(), q.Until.Unix())
	for _, k := range q.sorted() {
		if !blamed(k) {
			where += " AND " + columns[k] + " = " + quote(q.Where[k])
		}
	}
	return "FROM " + c.table + " WHERE " + where
}

// work is a subquery with one row for each piece of work: what was sent twice, sent
// again with its verdict, or timed out several times before its exit, counts once with
// its longest delay. more are further columns.
func (c *clickhouse) work(q *Query, more ...string) string {
	list := append([]string{"work", "max(delay_ns) AS delay", "max(blamed_ns) AS part"}, more...)
	having := ""
	for _, k := range q.sorted() {
		if blamed(k) {
			if having != "" {
				having += " AND "
			}
			having += merged(k) + " = " + quote(q.Where[k])
		}
	}
	if having != "" {
		having = " HAVING " + having
	}
	return "(SELECT " + strings.Join(list, ", ") + " " + c.selection(q) + " GROUP BY work" + having + ")"
}

// share is the time of a piece of work that counts for a key: for a culprit the part
// that it is blamed for, or all of it if nobody is.
func share(k Key) string {
	if blamed(k) {
		return "if(part > 0, part, delay)"
	}
	return "delay"
}

// link is the expression for the URL of a snapshot. If all have others, it asks for none: the
// table may have been made before there was such a column.
func (c *clickhouse) link(expr string) string {
	if c.ownLinks {
		return "''"
	}
	return expr
}

func (c *clickhouse) top(ctx context.Context, q *Query) (*Top, error) {
	top, err := c.total(ctx, q)
	if err != nil || top.Outliers == 0 {
		return top, err
	}
	if err := c.rows(ctx, q, top); err != nil {
		return nil, err
	}
	return top, c.parts(ctx, q, top)
}

// total reads what the rows are of.
func (c *clickhouse) total(ctx context.Context, q *Query) (*Top, error) {
	type totals struct {
		Hosts, Outliers, NS, Explained integer
		ExplainedNS                    integer `json:"explained_ns"`
		UnexplainedNS                  integer `json:"unexplained_ns"`
	}
	list, err := query[totals](ctx, c, "SELECT uniqExact(machine) AS hosts, count() AS outliers, sum(delay) AS ns,"+
		" countIf(part > 0) AS explained, sum(part) AS explained_ns, sumIf(delay, part = 0) AS unexplained_ns FROM "+
		c.work(q, "any(host) AS machine"))
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%s: not an answer of ClickHouse: %d rows instead of one", c.base.Host, len(list))
	}
	t := &list[0]
	return &Top{
		Hosts: int64(t.Hosts), Outliers: int64(t.Outliers), NS: int64(t.NS), Explained: int64(t.Explained),
		ExplainedNS: int64(t.ExplainedNS), UnexplainedNS: int64(t.UnexplainedNS), Exact: true, Rows: []Row{},
	}, nil
}

type topRow struct {
	Name, Kind, Snapshot, Place, URL            string
	NS, Outliers, Hosts, Worst, Moment, Counted integer
}

func (c *clickhouse) rows(ctx context.Context, q *Query, top *Top) error {
	kind := "''"
	if q.By == Culprit {
		kind = "argMax(culprit_kind, blamed_ns)"
	}
	list, err := query[topRow](ctx, c, "SELECT name, kind, sum(took) AS ns, count() AS outliers, uniqExact(machine) AS hosts,"+
		" max(took) AS worst, argMax(snap, shown) AS snapshot, argMax(link, shown) AS url, argMax(machine, shown) AS place, argMax(at, shown) AS moment,"+
		" max(shown) AS counted"+
		" FROM (SELECT name, kind, machine, snap, link, at, "+share(q.By)+" AS took, if(snap != '', took, 0) AS shown FROM "+
		c.work(q, merged(q.By)+" AS name", kind+" AS kind", "any(host) AS machine", "max(snapshot) AS snap", c.link("max(snapshot_url)")+" AS link",
			"max(time_ns) AS at")+
		") GROUP BY name, kind ORDER BY ns DESC, name LIMIT "+strconv.Itoa(q.Count))
	if err != nil {
		return err
	}
	for i := range list {
		r := &list[i]
		row := Row{
			Name: r.Name, Kind: r.Kind, NS: int64(r.NS), Outliers: int64(r.Outliers), Hosts: int64(r.Hosts), WorstNS: int64(r.Worst),
			Of: []Part{},
		}
		if r.Snapshot != "" {
			row.Worst = &Link{Host: r.Place, Snapshot: r.Snapshot, URL: r.URL, Time: time.Unix(0, int64(r.Moment)).UTC(), NS: int64(r.Counted)}
		}
		top.Rows = append(top.Rows, row)
	}
	return nil
}

// partsKept is how many parts of a row are listed.
const partsKept = 3

// parts reads the causes of each culprit, and the culprits of all else.
func (c *clickhouse) parts(ctx context.Context, q *Query, top *Top) error {
	of := Culprit
	if q.By == Culprit {
		of = Cause
	}
	names := make([]string, len(top.Rows))
	for i := range top.Rows {
		names[i] = top.Rows[i].Name
	}
	type part struct {
		Name, Other string
		NS          integer
	}
	list, err := query[part](ctx, c, "SELECT name, other, sum(part) AS ns FROM "+
		c.work(q, merged(q.By)+" AS name", merged(of)+" AS other")+" WHERE part > 0 AND "+among(names)+
		" GROUP BY name, other ORDER BY ns DESC, other LIMIT "+strconv.Itoa(partsKept)+" BY name LIMIT "+strconv.Itoa(partsKept*len(names)))
	if err != nil {
		return err
	}
	for i := range top.Rows {
		r := &top.Rows[i]
		for _, p := range list {
			if p.Name == r.Name {
				r.Of = append(r.Of, Part{p.Other, int64(p.NS)})
			}
		}
	}
	return nil
}

// maxNames is the longest list of names in a query, in bytes: ClickHouse parses 256 KiB
// (max_query_size).
const maxNames = 64 << 10

// among is the condition that a row is for one of these names. There must be one. If they
// are too long, all names are asked for, the largest first.
func among(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	list := strings.Join(quoted, ", ")
	if len(list) > maxNames {
		return "1"
	}
	return "name IN (" + list + ")"
}

// eventRow has the names of columns; TimeNS is time_ns and so on.
type eventRow struct {
	TimeNS      integer `json:"time_ns"`
	DelayNS     integer `json:"delay_ns"`
	ThresholdNS integer `json:"threshold_ns"`
	BlamedNS    integer `json:"blamed_ns"`
	CulpritKind string  `json:"culprit_kind"`
	TraceID     string  `json:"trace_id"`
	SnapshotURL string  `json:"snapshot_url"`

	Host, UID, Rule, Track, Trigger, Task, Cause, Culprit, Summary      string
	Unit, Pod, Namespace, Container, Version, Kernel, Release, Snapshot string
}

const eventColumns = "time_ns, delay_ns, threshold_ns, blamed_ns, host, uid, rule, track, trigger, task, cause, culprit," +
	" culprit_kind, summary, unit, pod, namespace, container, version, kernel, release, trace_id, snapshot"

// events reads the newest outliers. The record with a verdict knows most, then the
// newest; only a few are of one outlier, so that four times as many are enough.
func (c *clickhouse) events(ctx context.Context, q *Query) ([]Event, error) {
	where := c.selection(q)
	for _, k := range q.sorted() {
		if blamed(k) {
			where += " AND " + columns[k] + " = " + quote(q.Where[k])
		}
	}
	const newest = " ORDER BY time_ns DESC, host, uid, blamed_ns DESC, observed_ns DESC"
	list, err := query[eventRow](ctx, c, "SELECT "+eventColumns+", link AS snapshot_url FROM (SELECT observed_ns, "+eventColumns+
		", "+c.link("snapshot_url")+" AS link "+where+newest+
		" LIMIT "+strconv.Itoa(4*q.Count)+")"+newest+" LIMIT 1 BY host, uid LIMIT "+strconv.Itoa(q.Count))
	if err != nil {
		return nil, err
	}
	out := make([]Event, len(list))
	for i := range list {
		out[i] = list[i].event()
	}
	return out, nil
}

func (r *eventRow) event() Event {
	e := Event{
		Time: time.Unix(0, int64(r.TimeNS)).UTC(), Host: r.Host, ID: r.UID, Rule: r.Rule, Track: r.Track, Trigger: r.Trigger,
		DelayNS: int64(r.DelayNS), ThresholdNS: int64(r.ThresholdNS), Task: r.Task, Cause: r.Cause, Culprit: r.Culprit,
		CulpritKind: r.CulpritKind, BlamedNS: int64(r.BlamedNS), Summary: r.Summary, Unit: r.Unit, Pod: r.Pod,
		Namespace: r.Namespace, Container: r.Container, Version: r.Version, Kernel: r.Kernel, Release: r.Release, TraceID: r.TraceID,
	}
	if r.Snapshot != "" {
		e.Snapshot = &Link{Host: r.Host, Snapshot: r.Snapshot, URL: r.SnapshotURL, Time: e.Time, NS: e.DelayNS}
	}
	return e
}

// exposure reads for how long hosts were seen with each release.
func (c *clickhouse) exposure(ctx context.Context, q *Query) ([]exposure, error) {
	type row struct {
		Name                  string
		Hosts, Seconds, First integer
	}
	all := *q
	all.Where = map[Key]string{} // a host without such outliers was there all the same
	for _, k := range []Key{Host, Release, Kernel, Version} {
		if v, ok := q.Where[k]; ok {
			all.Where[k] = v
		}
	}
	list, err := query[row](ctx, c, "SELECT name, count() AS hosts, sum(last - begin) AS seconds, min(begin) AS first FROM (SELECT "+
		columns[q.SinceRelease]+" AS name, host, toUInt32(min(time)) AS begin, toUInt32(max(time)) AS last "+c.selection(&all)+
		" GROUP BY name, host) WHERE name != '' GROUP BY name ORDER BY first DESC, name LIMIT "+strconv.Itoa(maxReleases))
	if err != nil {
		return nil, err
	}
	out := make([]exposure, len(list))
	for i, r := range list {
		out[i] = exposure{r.Name, int64(r.Hosts), time.Duration(r.Seconds) * time.Second, time.Unix(int64(r.First), 0).UTC()}
	}
	return out, nil
}

// changes reads the time of each name with each release.
func (c *clickhouse) changes(ctx context.Context, q *Query, names []string) ([]change, error) {
	type row struct {
		Name, Since  string
		NS, Outliers integer
	}
	list, err := query[row](ctx, c, "SELECT name, since, sum("+share(q.By)+") AS ns, count() AS outliers FROM "+
		c.work(q, merged(q.By)+" AS name", merged(q.SinceRelease)+" AS since")+" WHERE since != '' AND "+among(names)+
		" GROUP BY name, since ORDER BY ns DESC LIMIT "+strconv.Itoa(maxAnswerRows-1))
	if err != nil {
		return nil, err
	}
	out := make([]change, len(list))
	for i, r := range list {
		out[i] = change{r.Name, r.Since, int64(r.NS), int64(r.Outliers)}
	}
	return out, nil
}
