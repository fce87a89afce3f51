package record

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// maxVerdicts is how many verdicts of a rule are kept.
	maxVerdicts = 256
	// maxAwaited bounds the outliers whose verdict has not come, and maxNames the culprits of a
	// rule, whose names anybody may choose.
	maxAwaited = 4096
	maxNames   = 256
)

// collector reads outliers and verdicts, of the time between start and end.
type collector struct {
	mu         sync.Mutex
	start, end uint64 // CLOCK_MONOTONIC; end 0: not yet
	awaited    map[string]Verdict
	rules      map[string]*caught
	lost       uint64    // outliers that it was too slow for
	last       time.Time // when something came
	random     *rand.Rand
}

// caught is what has come of a rule.
type caught struct {
	outliers  uint64
	max       int64
	explained uint64
	culprits  map[Culprit]Culprit // by who and cause
	verdicts  []Verdict
}

func newCollector(start uint64) *collector {
	return &collector{
		start: start, awaited: map[string]Verdict{}, rules: map[string]*caught{}, last: time.Now(),
		random: rand.New(rand.NewPCG(start, 0)), //nolint:gosec // which verdicts are kept is no secret
	}
}

// read reads until the stream ends.
func (c *collector) read(stream *api.EventStream) {
	for {
		e, err := stream.Next()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.last = time.Now()
		switch {
		case e.Verdict != nil:
			c.explainLocked(e.Verdict)
		case e.Outlier != nil:
			c.addLocked(e.Outlier)
		default:
			c.lost += e.Lost
		}
		c.mu.Unlock()
	}
}

func (c *collector) ruleLocked(name string) *caught {
	if c.rules[name] == nil {
		c.rules[name] = &caught{culprits: map[Culprit]Culprit{}}
	}
	return c.rules[name]
}

func (c *collector) addLocked(o *events.Outlier) {
	if o.Completed || o.EndMono < c.start || c.end != 0 && o.EndMono > c.end {
		return // it came before, or is not of this time
	}
	rule := c.ruleLocked(o.Rule)
	rule.outliers++
	rule.max = max(rule.max, o.DelayNS)
	if o.Snapshot != nil && len(c.awaited) < maxAwaited {
		c.awaited[o.ID] = Verdict{AtNS: int64(o.EndMono - c.start), DelayNS: o.DelayNS, Task: o.Task.Name()}
	}
}

func (c *collector) explainLocked(e *api.Verdict) {
	v, ok := c.awaited[e.ID]
	if !ok {
		return
	}
	delete(c.awaited, e.ID)
	if e.Explained.Verdict == "" {
		return // its snapshot could not be explained
	}
	v.Text, v.Cause, v.By, v.ByKind, v.NS, v.Confidence = e.Explained.Verdict, e.Cause, e.By, e.ByKind, e.NS, e.Confidence
	if e.Snapshot != nil {
		v.Snapshot = *e.Snapshot
	}
	rule := c.ruleLocked(e.Rule)
	rule.explained++
	who := Culprit{Name: snapshot.CulpritName(v.ByKind, v.By), Kind: v.ByKind, Cause: v.Cause}
	sum, known := rule.culprits[who]
	if !known && len(rule.culprits) >= maxNames {
		who = Culprit{Name: "others", Kind: "others"}
		sum = rule.culprits[who]
	}
	sum.Outliers++
	sum.NS += v.NS
	rule.culprits[who] = sum
	if len(rule.verdicts) < maxVerdicts {
		rule.verdicts = append(rule.verdicts, v)
	} else if i := c.random.Uint64N(rule.explained); i < maxVerdicts { // each has the same chance to stay
		rule.verdicts[i] = v
	}
}

// settled reports whether all of these outliers have come, with their verdicts, and else
// since when nothing came.
func (c *collector) settled(outliers uint64) (all bool, idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.lost
	for _, r := range c.rules {
		have += r.outliers
	}
	return have >= outliers && len(c.awaited) == 0, time.Since(c.last)
}

// finish fills in what came of a rule.
func (c *collector) finish(rule *Rule, snapshots bool) {
	rule.Culprits, rule.Verdicts = []Culprit{}, []Verdict{}
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.rules[rule.Name]
	if got == nil {
		return
	}
	rule.MaxNS = max(rule.MaxNS, got.max)
	rule.Explained = got.explained
	for who, sum := range got.culprits {
		who.Outliers, who.NS = sum.Outliers, sum.NS
		rule.Culprits = append(rule.Culprits, who)
	}
	slices.SortFunc(rule.Culprits, func(a, b Culprit) int {
		if a.Outliers != b.Outliers {
			return int(b.Outliers) - int(a.Outliers)
		}
		return strings.Compare(a.Kind+a.Name+a.Cause, b.Kind+b.Name+b.Cause)
	})
	rule.Verdicts = append(rule.Verdicts, got.verdicts...)
	slices.SortFunc(rule.Verdicts, func(a, b Verdict) int { return int(a.AtNS - b.AtNS) })
	for i := range rule.Verdicts {
		if !snapshots {
			rule.Verdicts[i].Snapshot = "" // it is gone
		}
	}
}

// startAt forgets what came before.
func (c *collector) startAt(start uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.awaited, c.rules, c.lost = start, map[string]Verdict{}, map[string]*caught{}, 0
}

// stopAt sets the end of the time.
func (c *collector) stopAt(end uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
}

// unexplained counts the outliers that have a snapshot and no verdict.
func (c *collector) unexplained() (awaited int, lost uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.awaited), c.lost
}
