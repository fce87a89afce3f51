package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// loki queries Grafana Loki 3, which got the outliers over OTLP: the names of
// attributes have _ for dots. It adds up records as they are. Repeated timeouts are
// left out, and what came again with its verdict counts for that alone.
type loki struct{ *client }

// labels are the names of keys.
var labels = map[Key]string{
	Culprit: "tailcam_explained_by", Cause: "tailcam_explained_cause", Rule: "tailcam_rule", Host: "host_name", Unit: "tailcam_task_unit",
	Pod: "k8s_pod_name", Namespace: "k8s_namespace_name", Container: "container_name", Version: "service_version",
	Kernel: "tailcam_kernel", Release: "deployment_id", Activity: "tailcam_activity_name", Trace: "trace_id",
}

const (
	lokiStream = `{service_name="tailcam"} | tailcam_rule != ""`
	// lokiOnce leaves out what another record tells, too.
	lokiOnce = ` | tailcam_cause != "timeout" | tailcam_completed != "true"`
	// lokiExplained is what culprits and causes are added up of.
	lokiExplained = ` | tailcam_explained_ns != "" | tailcam_cause != "timeout"`
)

// pipeline selects records.
func (l *loki) pipeline(q *Query, filter string) string {
	s := lokiStream + filter
	for _, k := range q.sorted() {
		s += " | " + labels[k] + " = " + strconv.Quote(q.Where[k])
	}
	return s
}

// over adds up a number of each record; "" counts them.
func (l *loki) over(q *Query, function, filter, unwrap string) string {
	if unwrap != "" {
		unwrap = " | unwrap " + unwrap
	}
	span := q.Until.Sub(q.Since).Round(time.Second)
	return fmt.Sprintf("%s(%s%s [%ds])", function, l.pipeline(q, filter), unwrap, max(int64(span/time.Second), 1))
}

func (l *loki) top(ctx context.Context, q *Query) (*Top, error) {
	filter, number := lokiOnce, "tailcam_delay_ns"
	by := labels[q.By]
	if blamed(q.By) {
		filter, number = lokiExplained, "tailcam_explained_ns"
	}
	if q.By == Culprit {
		by += ", tailcam_explained_by_kind"
	}
	top := &Top{Rows: []Row{}}
	for _, total := range []struct {
		to   *int64
		expr string
	}{
		{&top.Outliers, "sum(" + l.over(q, "count_over_time", lokiOnce, "") + ")"},
		{&top.NS, "sum(" + l.over(q, "sum_over_time", lokiOnce, "tailcam_delay_ns") + ")"},
		{&top.Explained, "sum(" + l.over(q, "count_over_time", lokiExplained, "") + ")"},
		{&top.ExplainedNS, "sum(" + l.over(q, "sum_over_time", lokiExplained, "tailcam_explained_ns") + ")"},
		{&top.Hosts, "count(sum by (host_name) (" + l.over(q, "count_over_time", lokiOnce, "") + "))"},
	} {
		list, err := l.instant(ctx, q, total.expr)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			*total.to = list[0].value
		}
	}
	if top.Outliers == 0 {
		return top, nil
	}
	group := " by (" + by + ") ("
	sums, err := l.instant(ctx, q, fmt.Sprintf("topk(%d, sum%s%s))", q.Count, group, l.over(q, "sum_over_time", filter, number)))
	if err != nil {
		return nil, err
	}
	counts, err := l.instant(ctx, q, "sum"+group+l.over(q, "count_over_time", filter, "")+")")
	if err != nil {
		return nil, err
	}
	worst, err := l.instant(ctx, q, "max"+group+l.over(q, "max_over_time", filter, number)+")")
	if err != nil {
		return nil, err
	}
	for _, s := range sums {
		top.Rows = append(top.Rows, Row{
			Name: s.labels[labels[q.By]], Kind: s.labels["tailcam_explained_by_kind"], NS: s.value,
			Outliers: same(counts, s.labels), WorstNS: same(worst, s.labels), Of: []Part{},
		})
	}
	slices.SortStableFunc(top.Rows, func(a, b Row) int { return int(min(max(b.NS-a.NS, -1), 1)) })
	return top, nil
}

// sample is one value of an instant query.
type sample struct {
	labels map[string]string
	value  int64
}

// same returns the value of the sample that has these labels; 0 if there is none.
func same(list []sample, of map[string]string) int64 {
	for i := range list {
		if maps.Equal(list[i].labels, of) {
			return list[i].value
		}
	}
	return 0
}

// lokiAnswer is what both kinds of queries return.
type lokiAnswer struct {
	Data struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// ask sends a query and decodes its result, which must be of one type.
func (l *loki) ask(ctx context.Context, path, kind string, parameters url.Values, result any) error {
	u := l.base.JoinPath(path)
	u.RawQuery = parameters.Encode()
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if l.tenant != "" {
		req.Header.Set("X-Scope-OrgID", l.tenant)
	}
	return l.do(ctx, req, func(r io.Reader) error {
		var a lokiAnswer
		if err := json.NewDecoder(r).Decode(&a); err != nil {
			return fmt.Errorf("not an answer of Loki: %w", err)
		}
		if a.Data.ResultType != kind {
			return errors.New("not an answer of Loki: its result is no " + kind)
		}
		if err := json.Unmarshal(a.Data.Result, result); err != nil {
			return fmt.Errorf("not an answer of Loki: %w", err)
		}
		return nil
	})
}

func (l *loki) instant(ctx context.Context, q *Query, expr string) ([]sample, error) {
	var result []struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"` // time, and the number as text
	}
	parameters := url.Values{"query": {expr}, "time": {strconv.FormatInt(q.Until.UnixNano(), 10)}}
	if err := l.ask(ctx, "/loki/api/v1/query", "vector", parameters, &result); err != nil {
		return nil, err
	}
	list := make([]sample, len(result))
	for i, r := range result {
		s, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) || math.Abs(v) > math.MaxInt64/2 {
			return nil, fmt.Errorf("%s: not an answer of Loki: value %q", l.base.Host, clip(s))
		}
		list[i] = sample{r.Metric, int64(v)}
	}
	return list, nil
}

func (l *loki) events(ctx context.Context, q *Query) ([]Event, error) {
	var result []struct {
		Stream map[string]string `json:"stream"`
		Values [][]string        `json:"values"` // time in nanoseconds, line
	}
	err := l.ask(ctx, "/loki/api/v1/query_range", "streams", url.Values{
		"query": {l.pipeline(q, "")}, "limit": {strconv.Itoa(q.Count)}, "direction": {"backward"},
		"start": {strconv.FormatInt(q.Since.UnixNano(), 10)}, "end": {strconv.FormatInt(q.Until.UnixNano(), 10)},
	}, &result)
	if err != nil {
		return nil, err
	}
	seen := map[[2]string]int{} // host and id: what is sent again has its verdict
	var out []Event
	for i := range result {
		for _, v := range result[i].Values {
			if len(v) < 2 {
				return nil, fmt.Errorf("%s: not an answer of Loki: a line without its time", l.base.Host)
			}
			e := lokiEvent(result[i].Stream, v[0], v[1])
			id := [2]string{e.Host, e.ID}
			if at, ok := seen[id]; ok {
				if out[at].Culprit == "" {
					out[at] = e
				}
				continue
			}
			seen[id] = len(out)
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return out[:min(len(out), q.Count)], nil
}

func lokiEvent(s map[string]string, at, line string) Event {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(s[name], 10, 64) // absent or not: 0
		return n
	}
	ns, _ := strconv.ParseInt(at, 10, 64)
	e := Event{
		Time: time.Unix(0, ns).UTC(), Host: s["host_name"], ID: s["log_record_uid"], Rule: s["tailcam_rule"], Track: s["tailcam_track"],
		Trigger: s["tailcam_cause"], DelayNS: number("tailcam_delay_ns"), ThresholdNS: number("tailcam_threshold_ns"),
		Task: s["thread_name"], Cause: s["tailcam_explained_cause"], Culprit: s["tailcam_explained_by"],
		CulpritKind: s["tailcam_explained_by_kind"], BlamedNS: number("tailcam_explained_ns"), Summary: strings.TrimSpace(line),
		TraceID: s["trace_id"],
	}
	for k, to := range map[Key]*string{
		Unit: &e.Unit, Pod: &e.Pod, Namespace: &e.Namespace, Container: &e.Container, Version: &e.Version, Kernel: &e.Kernel, Release: &e.Release,
	} {
		*to = s[labels[k]]
	}
	if id := s["tailcam_snapshot"]; id != "" {
		e.Snapshot = &Link{Host: e.Host, Snapshot: id, URL: s["tailcam_snapshot_url"], Time: e.Time, NS: e.DelayNS}
	}
	return e
}

// errLokiReleases: there is no sum over the time for which each host was seen.
var errLokiReleases = errors.New("--since-release needs ClickHouse: Loki does not know how long hosts ran a release")

func (l *loki) exposure(context.Context, *Query) ([]exposure, error) { return nil, errLokiReleases }
func (l *loki) changes(context.Context, *Query, []string) ([]change, error) {
	return nil, errLokiReleases
}
