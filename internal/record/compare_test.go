package record

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/histogram"
)

// noise is how a machine differs from itself: over time within a run, and from one run to
// the next, as factors of its delays (the deviation of their logarithm).
type noise struct{ within, between float64 }

// simulate is a run of one rule whose delays are longer by factor. Neighbouring slices are
// alike, as on a machine with other work.
func simulate(r *rand.Rand, n noise, factor float64) *Report {
	const slices, perSlice = 40, 400
	run := math.Exp(r.NormFloat64()*n.between) * factor
	state := r.NormFloat64()
	rule := Rule{Name: "wakeup", Track: "wakeup", ThresholdNS: 5e6}
	for range slices {
		state = 0.7*state + math.Sqrt(1-0.7*0.7)*r.NormFloat64()
		level := 50e3 * run * math.Exp(state*n.within)
		var h histogram.Histogram
		one := Slice{}
		for range perSlice {
			d := level * math.Exp(r.NormFloat64()*0.8)
			if r.IntN(500) == 0 {
				d *= 60
			}
			h.Add(uint64(d), 1)
			if d > 5e6 {
				one.Outliers++
			}
		}
		for b, count := range h.Bucket {
			if count > 0 {
				one.Index, one.Count = append(one.Index, b), append(one.Count, count)
			}
		}
		rule.Slices = append(rule.Slices, one)
		rule.Outliers += one.Outliers
	}
	return &Report{Rules: []Rule{rule}, DurationNS: slices * 1e8, SliceNS: 1e8, CPUs: 2, Kernel: "k"}
}

func compared(after *Report, before ...*Report) map[string]Shift {
	var list []Baseline
	for i, b := range before {
		list = append(list, Baseline{fmt.Sprint(i), *b})
	}
	after.Compare(list)
	shifts := map[string]Shift{}
	for _, d := range after.Compared.Rules[0].Delays {
		shifts[d.Of] = d
	}
	if o := after.Compared.Rules[0].Outliers; o != nil {
		shifts["outliers"] = *o
	}
	return shifts
}

// decided counts, over many pairs of runs, how often each number was said to differ.
func decided(n noise, factor float64, runs, baselines int) map[string]int {
	random := rand.New(rand.NewPCG(1, 2))
	count := map[string]int{}
	for range runs {
		var before []*Report
		for range baselines {
			before = append(before, simulate(random, n, 1))
		}
		for of, s := range compared(simulate(random, n, factor), before...) {
			if s.Outcome == Slower || s.Outcome == Faster || s.Outcome == More || s.Outcome == Fewer {
				count[of]++
			}
		}
	}
	return count
}

// Runs that differ by chance alone are hardly ever said to differ; a real change is seen.
func TestComparisonHoldsOnNoisyMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: left out with -short")
	}
	const runs = 20
	for _, c := range []struct {
		noise
		baselines int
	}{{noise{0.1, 0}, 1}, {noise{0.5, 0}, 1}, {noise{0.3, 0.2}, 5}} {
		false1 := decided(c.noise, 1, runs, c.baselines)
		true2 := decided(c.noise, 2.5, runs, c.baselines)
		t.Logf("%+v, %d baselines, %d runs: without a change %v, with 2.5 times the delays %v", c.noise, c.baselines, runs, false1, true2)
		for of, n := range false1 {
			assert.Check(t, n <= max(runs*6/100, 1), "%+v: %s of equal runs decided %d of %d times", c, of, n, runs)
		}
		if c.within < 0.4 && c.between == 0 {
			assert.Check(t, true2["p50"] >= runs*9/10 && true2["p90"] >= runs*9/10 && true2["p99"] >= runs*7/10, "%+v: %v", c, true2)
		}
	}
}

// One baseline cannot know how runs differ; several can.
func TestBaselinesShowHowRunsDiffer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: left out with -short")
	}
	n := noise{0.05, 0.3}
	one, five := decided(n, 1, 12, 1), decided(n, 1, 12, 5)
	t.Logf("equal runs that differ by themselves: decided with one baseline %v, with five %v, of 12", one, five)
	assert.Check(t, one["p50"] > 3 && five["p50"] <= 1, "with one %d, with five %d", one["p50"], five["p50"])
}

func TestComparisonOutcomes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	quiet := noise{0.02, 0}
	base := simulate(random, quiet, 1)
	same, slow, fast := compared(simulate(random, quiet, 1), base), compared(simulate(random, quiet, 2), base), compared(simulate(random, quiet, 0.5), base)
	assert.Check(t, same["p50"].Outcome == Same && slow["p50"].Outcome == Slower && fast["p50"].Outcome == Faster, "%+v\n%+v\n%+v", same, slow, fast)
	assert.Check(t, math.Abs(slow["p50"].Ratio-2) < 0.1 && slow["p50"].Low < 2 && slow["p50"].High > 2, "%+v", slow["p50"])
	assert.Check(t, same["p99.9"].Outcome == Undecided || same["p99.9"].Outcome == Same, "%+v", same["p99.9"])

	// Again is the same.
	a, b := simulate(random, quiet, 1), simulate(random, quiet, 1)
	assert.Check(t, is.DeepEqual(compared(a, b), compared(a, b)))

	// Too little to say.
	short := simulate(random, quiet, 3)
	short.Rules[0].Slices = short.Rules[0].Slices[:3]
	s := compared(short, base)
	assert.Check(t, s["p50"].Outcome == Undecided && strings.Contains(s["p50"].Why, "fewer than 8 parts"), "%+v", s["p50"])
	few := &Report{DurationNS: 1e9, SliceNS: 1e8, Rules: []Rule{{Name: "wakeup", Track: "wakeup", ThresholdNS: 5e6}}}
	s = compared(few, base)
	assert.Check(t, s["p99"].Outcome == Undecided && s["p99"].Why != "", "%+v", s["p99"])
	_, err := json.Marshal(few)
	assert.Check(t, err, "an idle run")

	other := simulate(random, quiet, 1)
	other.Rules[0].ThresholdNS = 1e6
	s = compared(other, base)
	_, has := s["outliers"]
	assert.Check(t, !has && s["p50"].Outcome == Same && strings.Contains(other.Compared.Rules[0].Note, "thresholds differ"), "%+v", s)
	other.Rules[0].Name = "other"
	compared(other, base)
	assert.Check(t, strings.Contains(other.Compared.Rules[0].Note, "no baseline has this rule"))
	other.Judge([]Check{{Rule: "wakeup", function: slower}})
	assert.Check(t, other.Status() == 1)

	slowRun := simulate(random, quiet, 3)
	compared(slowRun, base)
	slowRun.Rules[0].Histogram = withDelays(0, 1).Rules[0].Histogram
	slowRun.Judge([]Check{{Rule: "wakeup", function: slower}})
	assert.Check(t, slowRun.Status() == 3 && len(slowRun.Compared.Notes) == 1, "%+v", slowRun.Checks)
}

// verdicts are on outliers of which the share is one culprit's, in bursts of so many.
func withVerdicts(random *rand.Rand, share float64, bursts, size int) *Report {
	r := simulate(random, noise{0.1, 0}, 1)
	for i := range bursts {
		by := "database"
		if random.Float64() < share {
			by = "backup"
		}
		for range size {
			r.Rules[0].Verdicts = append(r.Rules[0].Verdicts, Verdict{AtNS: int64(i) * r.SliceNS, By: by, ByKind: "task"})
		}
	}
	return r
}

func TestCulpritShifts(t *testing.T) {
	outcome := func(before, after *Report, who string) ShareShift {
		after.Compare([]Baseline{{"b", *before}})
		for _, c := range after.Compared.Rules[0].Culprits {
			if c.Name == who {
				return c
			}
		}
		return ShareShift{}
	}
	random := rand.New(rand.NewPCG(5, 6))
	many := outcome(withVerdicts(random, 0.1, 60, 1), withVerdicts(random, 0.7, 60, 1), "backup")
	assert.Check(t, many.Outcome == More && many.After > many.Before, "%+v", many)
	less := outcome(withVerdicts(random, 0.9, 60, 1), withVerdicts(random, 0.1, 60, 1), "backup")
	assert.Check(t, is.Equal(less.Outcome, Fewer), "%+v", less)
	// As many outliers in two bursts say little: each burst may have one reason.
	bursts := outcome(withVerdicts(random, 0, 2, 30), withVerdicts(random, 1, 2, 30), "backup")
	single := outcome(withVerdicts(random, 0, 1, 1), withVerdicts(random, 1, 1, 1), "backup")
	assert.Check(t, single.Outcome == Undecided, "%+v", single)
	t.Logf("two bursts of 30: %+v", bursts)
	none := withVerdicts(random, 1, 0, 0)
	assert.Check(t, outcome(withVerdicts(random, 1, 5, 1), none, "backup") == ShareShift{} && len(none.Compared.Rules[0].Culprits) == 0)
	// Equal shares are hardly ever said to differ.
	wrong := 0
	for range 100 {
		if o := outcome(withVerdicts(random, 0.5, 20, 1), withVerdicts(random, 0.5, 20, 1), "backup").Outcome; o == More || o == Fewer {
			wrong++
		}
	}
	assert.Check(t, wrong <= 4, "equal shares decided %d of 100 times", wrong)
}
