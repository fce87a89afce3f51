package record

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// readingsOf writes what a daemon would say at so many times: delays vary over time.
func readingsOf(t *testing.T, r *rand.Rand, times int, factor float64) *Set {
	t.Helper()
	var h histogram.Histogram
	var b strings.Builder
	for range times {
		level := 50e3 * factor * math.Exp(r.NormFloat64()*0.2)
		for range 500 {
			h.Add(uint64(level*math.Exp(r.NormFloat64()*0.8)), 1)
		}
		data, err := json.Marshal(api.NewHistogram(&h, api.HistogramInfo{Tracker: "wakeup"}))
		assert.NilError(t, err)
		fmt.Fprintf(&b, `{"schema":%q,%s`+"\n", HistogramSchema, data[1:])
	}
	path := filepath.Join(t.TempDir(), "h.jsonl")
	assert.NilError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	s, err := ReadSet(path)
	assert.NilError(t, err)
	return s
}

// TestReadings: a change is seen, chance is not taken for one, and of too few readings nothing
// is said.
func TestReadings(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	outcomes := func(times int, factor float64) map[string]int {
		count := map[string]int{}
		for range 20 {
			c, err := CompareSets([]*Set{readingsOf(t, r, times, 1)}, readingsOf(t, r, times, factor))
			assert.NilError(t, err)
			assert.Assert(t, c.Of == Histograms && len(c.Rules) == 1 && c.Rules[0].Rule == "tracker wakeup" && c.Rules[0].Outliers == nil)
			count[c.Rules[0].Delays[0].Outcome]++
		}
		return count
	}
	same, twice, few := outcomes(30, 1), outcomes(30, 2), outcomes(5, 2)
	assert.Check(t, same[Slower]+same[Faster] <= 1, "equal: %v", same)
	assert.Check(t, twice[Slower] >= 18, "twice as long: %v", twice)
	assert.Check(t, few[Undecided] == 20, "few readings: %v", few)
}

// TestSavedReadings: of naps of 1 ms, of more of them, and of 2 ms, as `tailcam histogram naps
// -o json` told them on a real machine, every 0.4 s.
func TestSavedReadings(t *testing.T) {
	read := func(name string) *Set {
		s, err := ReadSet(filepath.Join("testdata", name))
		assert.NilError(t, err)
		return s
	}
	for _, c := range []struct{ from, to, p50 string }{
		{"naps-1ms.jsonl", "naps-1ms-again.jsonl", Same},
		{"naps-1ms.jsonl", "naps-2ms.jsonl", Slower},
		{"naps-2ms.jsonl", "naps-1ms.jsonl", Faster},
	} {
		compared, err := CompareSets([]*Set{read(c.from)}, read(c.to))
		assert.NilError(t, err)
		d := compared.Rules[0].Delays[0]
		assert.Check(t, d.Of == "p50" && d.Outcome == c.p50, "%s to %s: %+v", c.from, c.to, d)
	}
}

// TestParts: the parts of a run are what came between readings, also over a restart.
func TestParts(t *testing.T) {
	var readings []histogram.Histogram
	var h histogram.Histogram
	for i := range 200 {
		if i == 100 {
			h = histogram.Histogram{}
		}
		h.Add(1000, 2)
		readings = append(readings, h)
	}
	list, all := parts(readings), uint64(0)
	for _, s := range list {
		for _, n := range s.Count {
			all += n
		}
	}
	assert.Check(t, len(list) <= maxSlices && len(list) > maxSlices/2, "%d parts", len(list))
	assert.Equal(t, all, uint64(2*199))
}

// outliersOf makes snapshots of outliers, one a minute, that are by the disk or by hog.
func outliersOf(n int, delay time.Duration, byHog float64, threshold time.Duration) []*snapshot.Meta {
	r := rand.New(rand.NewPCG(5, uint64(n)))
	var list []*snapshot.Meta
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		o := events.Outlier{Rule: "flush", Track: "syscall", Cause: events.CauseThreshold, ThresholdNS: threshold.Nanoseconds(), StartMono: uint64(i),
			Time: begin.Add(time.Duration(i) * time.Minute), DelayNS: int64(float64(delay) * (1 + r.Float64()/10)),
			Explained: &events.Explained{By: "vda", ByKind: "device"}}
		if r.Float64() < byHog {
			o.Explained = &events.Explained{By: fmt.Sprint("hog ", i), ByKind: "task"}
		}
		list = append(list, &snapshot.Meta{ID: fmt.Sprint(i), Outliers: []events.Outlier{o, o}})
	}
	return list
}

func each(list []*snapshot.Meta) iter.Seq2[*snapshot.Meta, error] {
	return func(yield func(*snapshot.Meta, error) bool) {
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func TestSnapshotSets(t *testing.T) {
	set := func(list []*snapshot.Meta) *Set {
		s, err := SnapshotSet("x", each(list))
		assert.NilError(t, err)
		return s
	}
	c, err := CompareSets([]*Set{set(outliersOf(200, 10*time.Millisecond, 0.1, 5e6))}, set(outliersOf(200, 30*time.Millisecond, 0.9, 5e6)))
	assert.NilError(t, err)
	rule := c.Rules[0]
	assert.Check(t, c.Of == Snapshots && rule.Outliers == nil && rule.Delays[0].Outcome == Slower, "%+v", rule)
	found := map[string]string{}
	for _, s := range rule.Culprits {
		found[s.Name] = s.Outcome
	}
	assert.Check(t, is.DeepEqual(found, map[string]string{"hog": More, "vda": Fewer}))

	c, err = CompareSets([]*Set{set(outliersOf(200, 10*time.Millisecond, 0.5, 5e6))}, set(outliersOf(200, 10*time.Millisecond, 0.5, 9e6)))
	assert.NilError(t, err)
	assert.Check(t, len(c.Rules[0].Delays) == 0 && strings.Contains(c.Rules[0].Note, "thresholds differ"), "%+v", c.Rules[0])
	_, err = SnapshotSet("x", each([]*snapshot.Meta{{ID: "by hand"}}))
	assert.Check(t, is.ErrorContains(err, "no snapshot has an outlier that ended"))
}

func TestBadSets(t *testing.T) {
	good := `{"schema":"tailcam/histogram/v1","track":"wakeup","buckets":[{"from_ns":0,"to_ns":0,"count":1}]}`
	for text, want := range map[string]string{
		"":                                     "it is empty",
		"x":                                    "not JSON",
		`{"schema":"tailcam/status/v1"}`:       `its schema is "tailcam/status/v1": name what`,
		`{"schema":"tailcam/record/v1"}`:       "duration_ns 0: must be positive",
		good + "\n{":                           "histogram 2: unexpected EOF",
		good + "\n" + `{"schema":"y"}`:         `histogram 2: its schema is "y"`,
		strings.ReplaceAll(good, "0,", "100,"): "no bucket is from 100 to 100 ns",
		strings.ReplaceAll(good, ":1}", ":18446744073709551615}"): "more delays than there can be",
		strings.ReplaceAll(good, ":1}", ":-1}"):                   "histogram 1: json: cannot unmarshal",
	} {
		path := filepath.Join(t.TempDir(), "x.json")
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := ReadSet(path)
		assert.Check(t, is.ErrorContains(err, want), "%q", text)
	}
	_, err := ReadSet(t.TempDir())
	assert.Check(t, is.ErrorContains(err, "not a regular file"))
	run := &Set{Runs, []Baseline{{}}}
	_, err = CompareSets([]*Set{{Histograms, nil}}, run)
	assert.Check(t, is.Error(err, "cannot compare histograms with runs: name two of a kind"))
	_, err = CompareSets([]*Set{run}, &Set{Runs, make([]Baseline, 2)})
	assert.Check(t, is.Error(err, "to: 2 runs: name one"))
	_, err = CompareSets([]*Set{{Runs, make([]Baseline, maxBaselines+1)}}, run)
	assert.Check(t, is.Error(err, "from: more than 16 runs: name fewer"))
}

// FuzzReadSet: whatever a file says, reading and comparing it ends.
func FuzzReadSet(f *testing.F) {
	f.Add([]byte(`{"schema":"tailcam/histogram/v1","track":"wakeup","buckets":[{"from_ns":0,"to_ns":0,"count":1}]}`))
	f.Add([]byte(`{"schema":"tailcam/record/v1","duration_ns":1,"slice_ns":1,"rules":[{"name":"a","slices":[{"index":[1],"count":[2]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		assert.NilError(t, os.WriteFile(path, data, 0o600))
		s, err := ReadSet(path)
		if err != nil || len(s.Runs) != 1 || len(s.Runs[0].Rules) > 3 {
			return
		}
		_, err = CompareSets([]*Set{s}, s)
		assert.NilError(t, err)
	})
}
