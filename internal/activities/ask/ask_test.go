package ask

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/tracker/histogram"
)

const ms = uint64(time.Millisecond)

func activity(id, name, text string, pid int, elapsed, disk uint64) api.ActivityInfo {
	return api.ActivityInfo{
		ID: id, Name: name, Text: text, PID: pid, ElapsedNS: int64(elapsed), TraceID: "trace" + id,
		Values: breakdown.Values{"wall_ns": elapsed, "cpu_ns": elapsed - disk, "blocked_ns": disk, "blocked_disk_ns": disk, "block_bytes": disk / ms},
	}
}

func example() *api.ActivitiesInfo {
	info := &api.ActivitiesInfo{Ended: []api.ActivityInfo{
		activity("1", "checkout", "gold", 7, 10*ms, 2*ms), activity("2", "checkout", "iron", 8, 12*ms, 3*ms),
		activity("3", "checkout", "iron", 7, 312*ms, 300*ms), activity("4", "search", "", 7, 5*ms, 0),
	}}
	for _, user := range []int{1000, 1001} { // both have the name
		var h histogram.Histogram
		h.Add(11*ms, 500)
		if user == 1001 {
			h.Add(312*ms, 2)
		}
		of := api.NewHistogram(&h, api.HistogramInfo{})
		info.Names = append(info.Names, api.ActivityTotals{
			Name: "checkout", UID: user, Count: h.Count, SumNS: h.Sum, MaxNS: h.Max, Buckets: of.Buckets, Values: breakdown.Values{"wall_ns": h.Sum},
		})
	}
	live := activity("5", "search", "", 9, ms, 0)
	live.Live = true
	info.Live = []api.ActivityInfo{live}
	return info
}

func TestGroup(t *testing.T) {
	info := example()
	rows := Group(info, "name", nil)
	assert.Equal(t, len(rows), 2)
	checkout, search := rows[0], rows[1]
	assert.Equal(t, checkout.Count, uint64(1002), "of both users, all since the start")
	assert.Equal(t, checkout.MaxNS, 312*ms)
	assert.Assert(t, checkout.P50NS > 10*ms && checkout.P50NS < 12*ms && !checkout.Remembered)
	assert.Equal(t, search.Live, uint64(1))
	assert.Equal(t, search.Values["cpu_ns"], ms)

	rows = Group(info, "text", Filter{"name": {"check*"}})
	assert.Equal(t, len(rows), 2)
	assert.Equal(t, rows[1].Key, "iron")
	assert.Equal(t, rows[1].Count, uint64(2))
	assert.Equal(t, rows[1].Values["blocked_disk_ns"], 303*ms)
	assert.Assert(t, rows[1].Remembered)

	assert.Assert(t, Sort(rows, "blocked_disk"))
	assert.Equal(t, rows[0].Key, "iron")
	assert.Assert(t, Sort(rows, "block_bytes"))
	assert.Assert(t, Sort(rows, "key"))
	assert.Assert(t, !Sort(rows, "nonsense"))
	for _, key := range Keys {
		Group(info, key, nil)
	}
}

func TestFilter(t *testing.T) {
	for _, bad := range []string{"", "name", "=x"} {
		_, err := ParseFilter([]string{bad})
		assert.ErrorContains(t, err, "must be KEY=GLOB with one of name, text")
	}
	f, err := ParseFilter([]string{"name=a*", "name=check*", "pid=7"})
	assert.NilError(t, err)
	assert.Assert(t, NeedsEnded("name", f))
	var ids string
	info := example()
	for i := range info.Ended {
		if f.Has(&info.Ended[i]) {
			ids += info.Ended[i].ID
		}
	}
	assert.Equal(t, ids, "13")
}

func TestSlow(t *testing.T) {
	info := example()
	over, err := ParseOver("p99")
	assert.NilError(t, err)
	list := FindSlow(info, over, Filter{"name": {"checkout"}}, "name")
	assert.Equal(t, len(list), 2)
	over, err = ParseOver("50ms")
	assert.NilError(t, err)
	list = FindSlow(info, over, nil, "name")
	assert.Equal(t, len(list), 1)
	s := list[0]
	assert.Equal(t, s.Activity.ID, "3")
	assert.Equal(t, s.Others, 2)
	assert.DeepEqual(t, s.Grew[0], breakdown.Difference{Value: "blocked_disk_ns", A: 3 * ms, B: 300 * ms})
	assert.Equal(t, s.Account, "checkout took 312ms: 300ms blocked on disk, 12.0ms on CPU; nothing unexplained")
	assert.Equal(t, s.Verdict, "checkout took 312ms, 29.5 times the median of 10.6ms: 297ms longer blocked on disk")
	for _, bad := range []string{"", "p", "p0", "p100", "-5ms", "5", "p99.99999"} {
		_, err := ParseOver(bad)
		assert.ErrorContains(t, err, "must be a quantile such as p99")
	}
}

// TestSlowest: those above a quantile are as many as they are, whatever the buckets.
func TestSlowest(t *testing.T) {
	for _, c := range []struct {
		slow, want int
		usual      uint64
	}{
		{slow: 4, want: 2, usual: 10 * ms}, // of 120: 1.2
		{slow: 1, want: 2, usual: 10 * ms},
		{slow: 4, want: 0, usual: 200 * ms}, // all alike
	} {
		info, h := &api.ActivitiesInfo{}, &histogram.Histogram{}
		for i := range uint64(120) {
			took := c.usual
			if i < uint64(c.slow) {
				took = 200 * ms
			}
			h.Add(took, 1)
			info.Ended = append(info.Ended, activity(strconv.FormatUint(i, 10), "checkout", "", 7, took+i, 0))
		}
		of := api.NewHistogram(h, api.HistogramInfo{})
		info.Names = []api.ActivityTotals{{Name: "checkout", Count: h.Count, Buckets: of.Buckets}}
		if c.want == 0 {
			for i := range info.Ended {
				info.Ended[i].ElapsedNS = int64(c.usual)
			}
		}
		list := FindSlow(info, Over{Quantile: 0.99}, nil, "name")
		assert.Equal(t, len(list), c.want, "%+v", c)
	}
}

func TestCompare(t *testing.T) {
	info := example()
	a, err := Find(info, "1")
	assert.NilError(t, err)
	b, err := Find(info, "TRACE3")
	assert.NilError(t, err)
	c := Compare(a, b)
	assert.DeepEqual(t, c.Values, []breakdown.Difference{
		{Value: "blocked_disk_ns", A: 2 * ms, B: 300 * ms}, {Value: "cpu_ns", A: 8 * ms, B: 12 * ms},
		{Value: "block_bytes", A: 2, B: 300}, {Value: "blocked_ns", A: 2 * ms, B: 300 * ms}, {Value: "wall_ns", A: 10 * ms, B: 312 * ms},
	})
	_, err = Find(info, "99")
	assert.ErrorContains(t, err, `no activity "99" is remembered`)
}

// TestAttributes: activities are grouped, filtered and compared by what their programs say of them.
func TestAttributes(t *testing.T) {
	info := example()
	for i, route := range []string{"/cart", "/pay", "/cart"} {
		info.Ended[i].Attributes = map[string]string{"http.route": route, "name": "not the name"}
	}
	assert.NilError(t, Check(info, "http.route", "name", "unit"))
	err := Check(info, "name", "http.rute")
	assert.ErrorContains(t, err, `no activity has the attribute "http.rute": must be one of name, text`)
	assert.ErrorContains(t, err, "token, http.route")

	rows := Group(info, "http.route", nil)
	assert.Equal(t, len(rows), 3)
	assert.Equal(t, rows[0].Key+rows[1].Key+rows[2].Key, "/cart/pay", "those without are a row of their own")
	assert.Equal(t, rows[1].Count, uint64(2))
	assert.Equal(t, rows[1].Values["blocked_disk_ns"], 302*ms)
	f, err := ParseFilter([]string{"http.route=/c*"})
	assert.NilError(t, err)
	assert.Equal(t, len(Group(info, "name", f)), 1)
	assert.Equal(t, len(Shared(info, "name", f)), 0, "what is of a process has no attribute")
	assert.Equal(t, Group(info, "name", nil)[0].Key, "checkout", "an attribute does not hide a key")

	list := FindSlow(info, Over{Quantile: 0.99}, f, "http.route")
	assert.Equal(t, len(list), 1)
	assert.Equal(t, list[0].Activity.ID, "3")
	assert.Equal(t, list[0].Others, 1, "of its route alone")
	assert.Assert(t, strings.HasPrefix(list[0].Verdict, "checkout with http.route /cart took 312ms, "), list[0].Verdict)
	assert.Assert(t, strings.HasSuffix(list[0].Verdict, ": 298ms longer blocked on disk"), list[0].Verdict)
	assert.Equal(t, len(FindSlow(info, Over{Duration: time.Second}, nil, "http.route")), 0)
}
