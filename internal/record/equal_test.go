package record

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"
)

// equalRuns reads reports of real runs of one load on one machine that others used meanwhile:
// whatever differs between them is noise. See docs/decisions/0111-equal-runs.md.
func equalRuns(t *testing.T, file string) (list []*Report) {
	t.Helper()
	f, err := os.Open(file)
	assert.NilError(t, err)
	defer f.Close()
	text, err := gzip.NewReader(bufio.NewReader(f))
	assert.NilError(t, err)
	for dec := json.NewDecoder(text); ; {
		r := &Report{}
		err := dec.Decode(r)
		if errors.Is(err, io.EOF) {
			return list
		}
		assert.NilError(t, err)
		assert.NilError(t, r.check())
		list = append(list, r)
	}
}

// falseAlarms compares runs with others of the same kind, drawn again and again, and returns how
// often each number was compared, and said to differ.
func falseAlarms(runs []*Report, baselines, draws int) (compared, decided map[string]int) {
	random := rand.New(rand.NewPCG(11, uint64(baselines)))
	compared, decided = map[string]int{}, map[string]int{}
	for range draws {
		var chosen []Baseline
		for _, i := range random.Perm(len(runs))[:baselines+1] {
			chosen = append(chosen, Baseline{fmt.Sprint(i), *runs[i]})
		}
		after := chosen[0].Report
		after.Compare(chosen[1:])
		for _, rule := range after.Compared.Rules {
			count := func(of, outcome string) {
				compared[rule.Rule+" "+of]++
				if outcome != Same && outcome != Undecided {
					decided[rule.Rule+" "+of]++
				}
			}
			for _, s := range rule.Delays {
				count(s.Of, s.Outcome)
			}
			if rule.Outliers != nil {
				count("outliers", rule.Outliers.Outcome)
			}
			for _, c := range rule.Culprits {
				count("culprits", c.Outcome)
			}
		}
	}
	return compared, decided
}

// drawsVariable is how many comparisons TestEqualRuns makes; 60 if it is not set.
const drawsVariable = "TAILCAM_EQUAL_DRAWS"

// TestEqualRuns: of real runs that differ by the noise of the machine alone, no number is said to
// differ more often than the intervals promise, once there are baselines that show the noise.
func TestEqualRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: left out with -short")
	}
	draws := 60
	if s := os.Getenv(drawsVariable); s != "" {
		var err error
		draws, err = strconv.Atoi(s)
		assert.NilError(t, err)
	}
	runs := equalRuns(t, "testdata/equal-runs.jsonl.gz")
	for _, baselines := range []int{1, 5} {
		compared, decided := falseAlarms(runs, baselines, draws)
		all, wrong := 0, 0
		for _, of := range slices.Sorted(maps.Keys(compared)) {
			t.Logf("%d baselines: %s: %d of %d decided", baselines, of, decided[of], compared[of])
			all, wrong = all+compared[of], wrong+decided[of]
			assert.Check(t, baselines == 1 || float64(decided[of]) <= atMost(compared[of], 1-confidence), "%s", of)
		}
		t.Logf("%d runs, %d baselines: %d of %d numbers decided: %.2f%%", len(runs), baselines, wrong, all, 100*float64(wrong)/float64(all))
		assert.Check(t, baselines == 1 || float64(wrong) <= float64(all)*(1-confidence), "%d of %d", wrong, all)
	}
}

// atMost is how many of n may be wrong by chance, if each is with that probability: the mean and
// four deviations, as draws share runs.
func atMost(n int, p float64) float64 {
	mean := float64(n) * p
	return mean + 4*math.Sqrt(mean)
}
