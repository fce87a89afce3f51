package explain

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"
)

// machines is how many are simulated: TAILCAM_MACHINES of them, as make fuzz sets it.
func machines() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("TAILCAM_MACHINES"), 10, 32); err == nil {
		return n
	}
	if testing.Short() {
		return 10
	}
	return 30
}

// machine simulates a machine, and compares what is said of it with the truth.
func (j *judge) machine(t testing.TB, seed uint64, d damage, servers bool) {
	m := newMachine(seed, d == nil, servers) // with losses, nothing would tell
	m.run(60_000_000)
	j.events += len(m.trace)
	j.machines++
	j.m, j.seed = m, seed
	list, of := m.outliers(12)
	last := uint64(0)
	for i := range list {
		last = max(last, list[i].End)
	}
	j.horizon = last + lateEvents
	src, covered := m.trace, map[int][]Interval(nil)
	if d != nil {
		src, covered = d(m, slices.Clone(m.trace))
	}
	names := m.names()
	names.Covered = covered
	r := explained(t, &src, list, names)
	for i := range list {
		j.result(of[i], &list[i], &r.Outliers[i])
	}
}

// report prints how it went, and what went wrong.
func (j *judge) report(t testing.TB) {
	share := func(n int) float64 { return percent(int64(n), int64(j.asked)) }
	t.Logf("%d machines, %d events, %d outliers: culprit right %.2f %%, wrong %.2f %%, unexplained %.2f %%; roots right %.2f %%; %d steps seen, %d wrong; %d bystanders",
		j.machines, j.events, j.asked, share(j.right), share(j.wrong), share(j.silent), share(j.rootsRight), j.seen, len(j.seenWrong), len(j.bystanders))
	t.Logf("%d guesses about waits that had not ended: %d right, and %d never end", j.expected, j.expectedRight, j.neverEnded)
	if j.served > 0 {
		t.Logf("%d waits for servers that serve many, roots right %d, not told %d; guesses %d", j.served, j.servedRight, j.servedSilent, j.servedGuess)
	}
	if testing.Verbose() {
		for _, name := range slices.Sorted(maps.Keys(j.by)) {
			t.Logf("%s: %d of %d", name, j.by[name][0], j.by[name][1])
		}
	}
	for _, list := range [][]string{j.bystanders, j.seenWrong, j.mistakes, j.servedMistakes} {
		for _, x := range list[:min(len(list), 5)] {
			t.Log(x)
		}
	}
}

// TestMachines: whatever the machine does, what took the time is found, and nobody is named
// who took no part.
func TestMachines(t *testing.T) {
	for _, c := range []struct {
		name  string
		lose  damage
		least int // of 100 culprits that are told
		slack uint64
		// servers that serve many take part
		servers bool
	}{
		{name: "nothing is lost", least: 99},
		{name: "servers", least: 99, servers: true},
		{name: "from the middle", lose: fromTheMiddle, least: 99},
		{name: "switches are not seen", lose: unseen, least: 99, slack: unseenSwitchLimit},
		{name: "gaps", lose: gaps, least: 98},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := judge{by: map[string][2]int{}, damaged: c.lose != nil, slack: c.slack}
			for seed := range machines() {
				j.machine(t, seed, c.lose, c.servers)
			}
			j.report(t)
			lost := 0 // of ten thousand: what is not recorded may have been anything
			if c.lose != nil {
				lost = 1
			}
			named := lost
			if c.servers { // what they are asked while they are awake is not recorded
				named = 6
			}
			assert.Check(t, len(j.bystanders)*10_000 <= j.asked*named, "%d tasks that took no part are named", len(j.bystanders))
			assert.Check(t, len(j.seenWrong)*10_000 <= j.seen*lost, "%d steps that are said to be seen were otherwise", len(j.seenWrong))
			assert.Check(t, j.right*100 >= (j.right+j.wrong)*c.least, "of %d culprits that are told, %d are right", j.right+j.wrong, j.right)
			told := j.served - j.servedSilent
			assert.Check(t, j.servedRight*100 >= told*90 && j.servedSilent*4 <= j.served, "of %d waits for servers %d are followed where they went, %d are not told", j.served, j.servedRight, j.servedSilent)
			assert.Check(t, c.lose != nil || j.silent*100 <= j.asked, "%d of %d are not told", j.silent, j.asked)
		})
	}
}
