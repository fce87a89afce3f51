package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestDo(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	g := New(zap.New(core))
	now := time.Unix(0, 0)
	g.now = func() time.Time { return now }

	ours := errors.New("ours")
	assert.Check(t, is.ErrorIs(g.Do(Naming, func() error { return ours }), ours))
	var nobody *PanicError
	err := g.Do(Naming, func() error { panic(ours) })
	var p *PanicError
	assert.Check(t, errors.As(err, &p) && p.Place == Naming && errors.Is(err, ours) &&
		err.Error() == "panic in naming: ours", "got %v", err)
	assert.Check(t, strings.Contains(string(p.Stack), "TestDo"), "the stack does not say where: %s", p.Stack)
	for _, fn := range []func() error{
		func() error { return errors.New(strings.Fields("")[0]) },
		func() error { return errors.New(nobody.Error()) },
		func() error { panic(nil) }, //nolint:govet // that, too
	} {
		err := g.Do(Naming, fn)
		assert.Check(t, errors.As(err, &p), "got %v", err)
	}
	n := logs.Len()
	assert.Check(t, n == 1, "%d lines within a minute", n)
	_ = g.Do(Request, func() error { panic("another place") })
	now = now.Add(time.Minute)
	_ = g.Do(Naming, func() error { panic("again") })
	n = logs.Len()
	assert.Assert(t, n == 3, "%d lines after a minute", n)
	last := logs.All()[2].ContextMap()
	assert.Check(t, last["not_logged_since"] == uint64(3) && last["place"] == "naming",
		"the last line says %v", last)
	for _, c := range g.Counts() {
		want := map[string]uint64{"naming": 5, "request": 1}[c.Place]
		assert.Check(t, is.Equal(c.Count, want), "%s", c.Place)
	}
}

func TestPlacesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for p := range places {
		name := p.String()
		assert.Check(t, name != "" && !seen[name], "place %d is called %q", p, name)
		seen[p.String()] = true
	}
}

func TestNil(t *testing.T) {
	var g *Guard
	assert.Check(t, g.Do(Decode, func() error { panic("x") }) != nil, "no error")
	assert.Check(t, len(g.Counts()) == int(places), "no counts")
}

func TestConcurrent(t *testing.T) {
	g := New(nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				_ = g.Do(Span, func() error { panic("x") })
			}
		})
	}
	all.Wait()
	for _, c := range g.Counts() {
		assert.Check(t, c.Place != "span" || c.Count == 800, "%d", c.Count)
	}
}

// A file that is truncated while it is mapped.
func TestMapped(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, f.Truncate(1<<20))
	data, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	defer unix.Munmap(data)
	assert.NilError(t, f.Truncate(0))
	g, sum := New(nil), 0
	err = g.Mapped(Store, func() error { sum += int(data[1<<19]); return nil })
	var p *PanicError
	assert.Check(t, errors.As(err, &p), "got %v, %d", err, sum)
}
