package fleet

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestOutage: ClickHouse is killed, and the collector after it; what the collector had taken, and
// what daemons hold in memory, arrives once both are back.
func TestOutage(t *testing.T) {
	needCollector(t)
	s := newServer(t)
	c := newCollector(t, s, 64<<20)
	d := &day{dice: rand.New(rand.NewPCG(3, 4))}
	all := runDaemons(t, c.listen, []map[string]string{{"host.name": "a"}, {"host.name": "b"}})
	sent := 0
	send := func(n int) {
		for range n {
			for h, e := range all.list {
				publish(e, d.outlier(fmt.Sprint(h), &kinds[sent%len(kinds)], time.Now()))
				sent++
			}
		}
	}
	stored := func() int { return distinct(t, s) }
	send(200)
	eventually(t, "the first are stored", func() bool { return stored() == sent })

	s.kill()
	send(400)
	eventually(t, "the collector has taken them", func() bool { return all.waiting() == 0 })
	time.Sleep(time.Second) // requests under way
	c.kill()
	send(300) // fewer than a daemon holds: 1024
	c.start()
	eventually(t, "the collector has taken these, too", func() bool { return all.waiting() == 0 })
	s.start()
	eventually(t, "all are stored", func() bool { return stored() == sent })
	assert.Check(t, is.Equal(0, all.lost()))
}

// TestOverflow: ClickHouse is away for longer than the queues last. Each outlier is stored, or
// counted by its daemon: none is lost without being counted.
func TestOverflow(t *testing.T) {
	needCollector(t)
	s := newServer(t)
	const quota = 1 << 20
	c := newCollector(t, s, quota)
	d := &day{dice: rand.New(rand.NewPCG(5, 6))}
	all := runDaemons(t, c.listen, []map[string]string{{"host.name": "a"}, {"host.name": "b"}})
	s.kill()
	sent := 0
	for range 50 {
		for range 100 {
			for h, e := range all.list {
				publish(e, d.outlier(fmt.Sprint(h), &kinds[sent%len(kinds)], time.Now()))
				sent++
			}
		}
		time.Sleep(20 * time.Millisecond) // so that some requests are taken until the queue is full
	}
	lost := all.lost()
	assert.Check(t, lost > 0, "nothing was lost: the test has not filled the queue")
	t.Logf("%d outliers of 2 hosts while ClickHouse is down, collector's queue of %d KiB: %d counted as lost, %d in memory", sent, quota>>10,
		lost, all.waiting())
	s.start()
	eventually(t, "each is stored or counted", func() bool { return distinct(t, s)+all.lost() == sent })
	t.Logf("%d stored, %d counted as lost", distinct(t, s), all.lost())
}

func distinct(t *testing.T, s *server) int {
	t.Helper()
	n, err := strconv.Atoi(s.do("SELECT uniqExact(uid) FROM tailcam_outliers"))
	assert.NilError(t, err)
	return n
}
