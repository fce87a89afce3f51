package overrides

import (
	"slices"
	"testing"
	"time"
)

// gale lets a rule be refused so often a second, and returns when it was
// paused, or resumed, and for how long.
type gale struct {
	storms Storms
	now    time.Time
	total  Counts
}

func newGale() *gale {
	g := &gale{storms: Storms{Rate: 100}, now: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}
	g.storms.Update(g.now, map[string]Counts{"r": {}})
	return g
}

// blow lasts until something happens, or for so long.
func (g *gale) blow(perSecond uint64, long time.Duration) (begin []Storm, end []string, after time.Duration) {
	from := g.now
	for g.now.Sub(from) < long && len(begin)+len(end) == 0 {
		g.now = g.now.Add(StormWindow)
		g.total.Limited += perSecond / uint64(time.Second/StormWindow)
		begin, end = g.storms.Update(g.now, map[string]Counts{"r": g.total})
	}
	return begin, end, g.now.Sub(from)
}

func TestStormIsPausedAndBacksOff(t *testing.T) {
	g := newGale()
	for i, want := range []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		begin, _, after := g.blow(100000, time.Minute)
		if len(begin) != 1 || begin[0].Rule != "r" || begin[0].Until.Sub(g.now) != want || begin[0].Pauses != i+1 {
			t.Fatalf("pause %d: %+v, want one of %v", i+1, begin, want)
		}
		if after > 300*time.Millisecond {
			t.Errorf("pause %d came after %v", i+1, after)
		}
		if n := begin[0].PerSecond; n < 99000 || n > 101000 {
			t.Errorf("%v a second", n)
		}
		if s, ok := g.storms.Paused("r"); !ok || s.Until != begin[0].Until {
			t.Errorf("paused: %+v, %v", s, ok)
		}
		if _, end, lasted := g.blow(0, time.Hour); !slices.Equal(end, []string{"r"}) || lasted != want {
			t.Errorf("pause %d ended: %v after %v", i+1, end, lasted)
		}
	}
	// Calm for as long as the last pause: the next one is a first one.
	g.blow(0, 11*time.Minute)
	if begin, _, _ := g.blow(100000, time.Minute); len(begin) != 1 || begin[0].Pauses != 1 {
		t.Errorf("after a calm: %+v", begin)
	}
}

func TestStormOrNot(t *testing.T) {
	for _, k := range []struct {
		name      string
		perSecond uint64
		long      time.Duration
		pauses    bool
	}{
		{"its rate", 100, time.Minute, false},
		{"nine times its rate", 900, time.Minute, false},
		{"ten times its rate, for a second", 1000, time.Second, false},
		{"ten times its rate", 1000, 3 * time.Second, true},
		{"all threads late at once", 1000000, StormWindow, false},
		{"a storm", 6000, time.Second, true},
	} {
		g := newGale()
		begin, _, after := g.blow(k.perSecond, k.long)
		if more, _, _ := g.blow(0, 5*time.Second); len(more) > 0 {
			t.Errorf("%s: paused afterwards", k.name)
		}
		if (len(begin) > 0) != k.pauses {
			t.Errorf("%s: paused %v after %v", k.name, begin, after)
		}
	}
}

// What is resumed or changed begins anew; what is gone is forgotten.
func TestStormForgotten(t *testing.T) {
	g := newGale()
	if g.storms.Reset("r") || g.storms.Reset("none") {
		t.Error("not paused, and resumed")
	}
	g.blow(100000, time.Minute)
	if !slices.Equal(g.storms.Rules(), []string{"r"}) || !g.storms.Reset("r") || len(g.storms.Rules()) > 0 {
		t.Errorf("paused: %v", g.storms.Rules())
	}
	if begin, _, _ := g.blow(100000, time.Minute); len(begin) != 1 || begin[0].Pauses != 1 {
		t.Errorf("after it was resumed: %+v", begin)
	}
	g.storms.Update(g.now, nil)
	if len(g.storms.Rules()) > 0 {
		t.Error("a rule that is gone is paused")
	}
	// Another rule has the number now, and has counted less.
	g.storms.Update(g.now, map[string]Counts{"r": {Limited: 1000000}})
	if begin, _ := g.storms.Update(g.now.Add(StormWindow), map[string]Counts{"r": {}}); len(begin) > 0 {
		t.Errorf("counted backwards: %+v", begin)
	}
	none := Storms{}
	for i := range uint64(100) {
		if begin, _ := none.Update(g.now.Add(time.Duration(i)*StormWindow), map[string]Counts{"r": {Limited: i * 1000000}}); len(begin) > 0 {
			t.Fatal("paused without a limit")
		}
	}
}
