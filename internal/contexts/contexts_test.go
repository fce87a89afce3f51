package contexts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// machine is a procfs with processes, some of which publish contexts.
type machine struct {
	proc string

	mu        sync.Mutex
	publishes map[int]bool
	looked    map[int]int
	told      map[int]bool
}

func newMachine(t *testing.T, pids ...int) *machine {
	t.Helper()
	m := &machine{proc: t.TempDir(), publishes: map[int]bool{}, looked: map[int]int{}, told: map[int]bool{}}
	for _, pid := range pids {
		assert.NilError(t, os.Mkdir(filepath.Join(m.proc, strconv.Itoa(pid)), 0o700))
	}
	assert.NilError(t, os.Mkdir(filepath.Join(m.proc, "sys"), 0o700))
	return m
}

func (m *machine) finder() *Finder {
	return New(&Options{
		Proc: m.proc,
		Find: func(pid int) (abi.ContextPlace, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.looked[pid]++
			if !m.publishes[pid] {
				return abi.ContextPlace{}, errors.New("none")
			}
			return abi.ContextPlace{Offset: -8}, nil
		},
		Set: func(pid int, place *abi.ContextPlace) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.told[pid] = place.Offset == -8
			return nil
		},
	})
}

// times returns how often a process was looked at.
func (m *machine) times(pid int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looked[pid]
}

func TestPass(t *testing.T) {
	m := newMachine(t, 1, 20, 300)
	m.publishes[20] = true
	f := m.finder()
	assert.NilError(t, f.pass(t.Context()))
	assert.Check(t, is.DeepEqual(m.looked, map[int]int{1: 1, 20: 1, 300: 1}))
	assert.Check(t, is.DeepEqual(m.told, map[int]bool{20: true}))
	assert.Check(t, is.Equal(f.Publishers(), 1))

	assert.NilError(t, f.pass(t.Context()))
	assert.Check(t, is.Equal(m.looked[1], 1), "not again so soon")
	for _, k := range f.known {
		k.last = k.last.Add(-schedule[0])
	}
	m.publishes[300] = true // it has loaded a library
	assert.NilError(t, f.pass(t.Context()))
	assert.Check(t, m.looked[1] == 2 && m.told[300], "%v", m.looked)
	assert.Check(t, is.Equal(f.Publishers(), 2))

	for _, pid := range []string{"20", "300"} {
		assert.NilError(t, os.Remove(filepath.Join(m.proc, pid)))
	}
	assert.NilError(t, f.pass(t.Context()))
	assert.Check(t, is.Equal(f.Publishers(), 0))
	assert.Check(t, is.Len(f.known, 1), "of processes that are gone nothing is kept")
}

// An outlier without a context has its process looked at, but not each time.
func TestMissing(t *testing.T) {
	m := newMachine(t)
	f := m.finder()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	for range 10 * maxAsked {
		f.Missing(7)
	}
	for end := time.Now().Add(20 * time.Second); m.times(7) == 0; time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(end))
	}
	cancel()
	assert.NilError(t, <-ended)
	assert.Check(t, is.Equal(m.times(7), 1))
}
