package fair

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// take is Next where it would not wait.
func take(q *Queue[string]) (Task[string], bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked()
}

// fill takes as many as there are workers for.
func fill(q *Queue[string]) (tasks []Task[string], items []string) {
	for {
		t, ok := take(q)
		if !ok {
			return tasks, items
		}
		tasks, items = append(tasks, t), append(items, t.Item)
	}
}

func push(t *testing.T, q *Queue[string], user, process int, items ...string) {
	t.Helper()
	for _, i := range items {
		assert.Assert(t, q.Push(Owner{user, process}, i), "%s is refused", i)
	}
}

// The items of one process come one at a time, and in their order.
func TestOneAtATime(t *testing.T) {
	q := New[string](&Options{Workers: 4})
	push(t, q, 1, 10, "a", "b")
	first, ok := take(q)
	assert.Assert(t, ok && first.Item == "a", "%+v", first)
	next, ok := take(q)
	assert.Assert(t, !ok, "%s is in work beside a", next.Item)
	first.Done(0)
	next, ok = take(q)
	assert.Assert(t, ok && next.Item == "b", "%+v, %t", next, ok)
}

// Users take turns, and within each its processes.
func TestTurns(t *testing.T) {
	q := New[string](&Options{Workers: 1})
	push(t, q, 1, 10, "a10", "a10'")
	push(t, q, 1, 11, "a11")
	push(t, q, 1, 12, "a12")
	push(t, q, 2, 20, "b20", "b20'")
	var got []string
	for {
		task, ok := take(q)
		if !ok {
			break
		}
		got = append(got, task.Item)
		task.Done(0)
	}
	want := []string{"a10", "b20", "a11", "b20'", "a12", "a10'"}
	assert.Check(t, slices.Equal(got, want), "got %v, want %v", got, want)
	assert.Check(t, len(q.users) == 0 && q.busy == 0 && q.queued == 0, "something is left: %+v", q)
}

// However many processes a user has, there is a worker for the next user.
func TestWorkersOfManyUsers(t *testing.T) {
	q := New[string](&Options{Workers: 8})
	occupied := map[int]int{}
	for user := range 4 {
		for p := range 100 {
			push(t, q, user, 1000*user+p, string(rune('a'+user)))
		}
		_, items := fill(q)
		occupied[user] = len(items)
	}
	want := map[int]int{0: 4, 1: 2, 2: 1, 3: 1}
	for user, n := range want {
		assert.Check(t, occupied[user] == n, "user %d occupies %d workers, want %d", user, occupied[user], n)
	}
}

// Slow processes, known as such, leave half of their user's workers to others.
func TestSlow(t *testing.T) {
	q := New[string](&Options{Workers: 8, Slow: 50 * time.Millisecond})
	// Nothing is known of them: each has its turn.
	for p := range 8 {
		push(t, q, p, p, "first")
	}
	for round := 0; ; round++ {
		tasks, _ := fill(q)
		if len(tasks) == 0 {
			break
		}
		for i := range tasks {
			tasks[i].Done(time.Second)
		}
	}
	for p := range 8 {
		push(t, q, p, p, "slow")
	}
	push(t, q, 99, 99, "fast")
	tasks, items := fill(q)
	assert.Check(t, slices.Contains(items, "fast") && len(items) <= 5, "in work: %v", items)
	for i := range tasks {
		tasks[i].Done(time.Millisecond) // they have become quick
	}
	tasks, _ = fill(q)
	for i := range tasks {
		tasks[i].Done(time.Millisecond)
	}
	assert.Check(t, len(q.slow) == 0 && len(q.slowest) == 0, "still slow: %v", q.slow)
}

// A slow process is not forgotten over fast ones.
func TestSlowIsServed(t *testing.T) {
	q := New[string](&Options{Workers: 2})
	push(t, q, 1, 1, "x")
	x, _ := take(q)
	x.Done(time.Second)
	push(t, q, 1, 1, "slow")
	for p := range 100 {
		push(t, q, 2, 100+p, "fast")
	}
	first, ok := take(q)
	assert.Check(t, ok && first.Item == "slow", "%+v", first)
	second, ok := take(q)
	assert.Check(t, ok && second.Item == "fast", "%+v", second)
}

func TestSlowIsBounded(t *testing.T) {
	q := New[string](&Options{MaxSlow: 3})
	for p := range 10 {
		push(t, q, 0, p, "x")
		x, _ := take(q)
		x.Done(time.Hour)
	}
	assert.Check(t, len(q.slow) == 3 && len(q.slowest) == 3, "%d, %d remembered", len(q.slow), len(q.slowest))
}

// Whoever fills the queue leaves room for others.
func TestRoom(t *testing.T) {
	q := New[string](&Options{Capacity: 1024})
	fill := func(user, processes int) (n int) {
		for q.Push(Owner{user, n % processes}, "x") {
			n++
		}
		return n
	}
	n := fill(1, 1)
	assert.Check(t, n >= 200 && n <= 512, "one process has room for %d", n)
	n = fill(1, 1000)
	assert.Check(t, n <= 512, "one user has room for %d more", n)
	n = fill(2, 100)
	assert.Check(t, n >= 100, "the next user has room for %d", n)
	n = fill(3, 1)
	assert.Check(t, n >= 30, "the next user has room for %d", n)
	assert.Check(t, q.Len() <= 1024, "%d wait", q.Len())
}

func TestClose(t *testing.T) {
	q := New[string](nil)
	push(t, q, 1, 1, "a")
	q.Close()
	assert.Check(t, !q.Push(Owner{1, 1}, "b"), "b is taken after the end")
	task, ok := q.Next()
	assert.Check(t, ok && task.Item == "a", "%+v, %t", task, ok)
	task.Done(0)
	_, ok = q.Next()
	assert.Check(t, !ok, "there is something after the end")
}

// All that is taken in is handed out once, in order by process, whatever the workers do.
func TestConcurrent(t *testing.T) {
	type item struct{ user, process, n int }
	q := New[item](&Options{Workers: 4, Capacity: 1 << 20})
	var mu sync.Mutex
	last, inWork := map[Owner]int{}, map[Owner]bool{}
	var workers, pushers sync.WaitGroup
	total := 0
	for range 4 {
		workers.Go(func() {
			for {
				task, ok := q.Next()
				if !ok {
					return
				}
				of := Owner{task.Item.user, task.Item.process}
				mu.Lock()
				assert.Check(t, !inWork[of] && last[of]+1 == task.Item.n, "%+v after %d", task.Item, last[of])
				inWork[of], last[of] = true, task.Item.n
				total++
				mu.Unlock()
				mu.Lock()
				inWork[of] = false
				mu.Unlock()
				task.Done(time.Duration(rand.IntN(100)) * time.Millisecond)
			}
		})
	}
	for user := range 5 {
		pushers.Go(func() {
			for n := range 500 {
				for p := range 3 {
					assert.Check(t, q.Push(Owner{user, p}, item{user, p, n + 1}), "refused")
				}
			}
		})
	}
	pushers.Wait()
	q.Close()
	workers.Wait()
	assert.Check(t, total == 5*3*500, "%d handed out", total)
}
