package fair

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
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
		if !q.Push(Owner{user, process}, i) {
			t.Fatalf("%s is refused", i)
		}
	}
}

// The items of one process come one at a time, and in their order.
func TestOneAtATime(t *testing.T) {
	q := New[string](&Options{Workers: 4})
	push(t, q, 1, 10, "a", "b")
	first, ok := take(q)
	if !ok || first.Item != "a" {
		t.Fatalf("%+v", first)
	}
	if next, ok := take(q); ok {
		t.Fatalf("%s is in work beside a", next.Item)
	}
	first.Done(0)
	if next, ok := take(q); !ok || next.Item != "b" {
		t.Fatalf("%+v, %t", next, ok)
	}
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
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(q.users) != 0 || q.busy != 0 || q.queued != 0 {
		t.Errorf("something is left: %+v", q)
	}
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
		if occupied[user] != n {
			t.Errorf("user %d occupies %d workers, want %d", user, occupied[user], n)
		}
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
	if !slices.Contains(items, "fast") || len(items) > 5 {
		t.Errorf("in work: %v", items)
	}
	for i := range tasks {
		tasks[i].Done(time.Millisecond) // they have become quick
	}
	tasks, _ = fill(q)
	for i := range tasks {
		tasks[i].Done(time.Millisecond)
	}
	if len(q.slow) != 0 || len(q.slowest) != 0 {
		t.Errorf("still slow: %v", q.slow)
	}
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
	if first, ok := take(q); !ok || first.Item != "slow" {
		t.Errorf("%+v", first)
	}
	if second, ok := take(q); !ok || second.Item != "fast" {
		t.Errorf("%+v", second)
	}
}

func TestSlowIsBounded(t *testing.T) {
	q := New[string](&Options{MaxSlow: 3})
	for p := range 10 {
		push(t, q, 0, p, "x")
		x, _ := take(q)
		x.Done(time.Hour)
	}
	if len(q.slow) != 3 || len(q.slowest) != 3 {
		t.Errorf("%d, %d remembered", len(q.slow), len(q.slowest))
	}
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
	if n := fill(1, 1); n < 200 || n > 512 {
		t.Errorf("one process has room for %d", n)
	}
	if n := fill(1, 1000); n > 512 {
		t.Errorf("one user has room for %d more", n)
	}
	if n := fill(2, 100); n < 100 {
		t.Errorf("the next user has room for %d", n)
	}
	if n := fill(3, 1); n < 30 {
		t.Errorf("the next user has room for %d", n)
	}
	if q.Len() > 1024 {
		t.Errorf("%d wait", q.Len())
	}
}

func TestClose(t *testing.T) {
	q := New[string](nil)
	push(t, q, 1, 1, "a")
	q.Close()
	if q.Push(Owner{1, 1}, "b") {
		t.Error("b is taken after the end")
	}
	task, ok := q.Next()
	if !ok || task.Item != "a" {
		t.Errorf("%+v, %t", task, ok)
	}
	task.Done(0)
	if _, ok := q.Next(); ok {
		t.Error("there is something after the end")
	}
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
				if inWork[of] || last[of]+1 != task.Item.n {
					t.Errorf("%+v after %d", task.Item, last[of])
				}
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
					if !q.Push(Owner{user, p}, item{user, p, n + 1}) {
						t.Error("refused")
					}
				}
			}
		})
	}
	pushers.Wait()
	q.Close()
	workers.Wait()
	if total != 5*3*500 {
		t.Errorf("%d handed out", total)
	}
}
