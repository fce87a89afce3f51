package pulse

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWait(t *testing.T) {
	for _, c := range []struct{ now, every, want time.Duration }{
		{0, time.Second, time.Second},
		{time.Nanosecond, time.Second, time.Second - 1},
		{1500 * time.Millisecond, time.Second, 500 * time.Millisecond},
		{1501 * time.Millisecond, time.Second, 1499 * time.Millisecond},
		{17 * time.Second, 10 * time.Second, 13 * time.Second},
		{10 * time.Second, 10 * time.Second, 10 * time.Second},
	} {
		if got := wait(c.now, c.every); got != c.want {
			t.Errorf("wait(%s, %s) = %s, want %s", c.now, c.every, got, c.want)
		}
	}
}

// TestTogether checks that loops which begin at different times wake together: 3 of them,
// each second or each quarter of one, at no more moments than the fastest needs.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		moments := make(chan time.Duration, 100)
		for i, every := range []time.Duration{time.Second, time.Second, 250 * time.Millisecond} {
			go func() {
				time.Sleep(time.Duration(i+1) * 37 * time.Millisecond)
				for time.Since(start) < 3*time.Second {
					<-After(every)
					moments <- time.Since(start)
				}
			}()
		}
		time.Sleep(4 * time.Second)
		seen := map[time.Duration]int{}
		for len(moments) > 0 {
			seen[<-moments]++
		}
		if len(seen) != 12 || seen[2*time.Second] != 3 {
			t.Errorf("woken at %v, want all multiples of 250ms up to 3s, by three at whole seconds", seen)
		}
	})
}
