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
)

func TestDo(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	g := New(zap.New(core))
	now := time.Unix(0, 0)
	g.now = func() time.Time { return now }

	ours := errors.New("ours")
	if err := g.Do(Naming, func() error { return ours }); !errors.Is(err, ours) {
		t.Errorf("got %v", err)
	}
	var nobody *PanicError
	err := g.Do(Naming, func() error { panic(ours) })
	var p *PanicError
	if !errors.As(err, &p) || p.Place != Naming || !errors.Is(err, ours) || err.Error() != "panic in naming: ours" {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(string(p.Stack), "TestDo") {
		t.Errorf("the stack does not say where: %s", p.Stack)
	}
	for _, fn := range []func() error{
		func() error { return errors.New(strings.Fields("")[0]) },
		func() error { return errors.New(nobody.Error()) },
		func() error { panic(nil) }, //nolint:govet // that, too
	} {
		if err := g.Do(Naming, fn); !errors.As(err, &p) {
			t.Errorf("got %v", err)
		}
	}
	if n := logs.Len(); n != 1 {
		t.Errorf("%d lines within a minute", n)
	}
	_ = g.Do(Request, func() error { panic("another place") })
	now = now.Add(time.Minute)
	_ = g.Do(Naming, func() error { panic("again") })
	if n := logs.Len(); n != 3 {
		t.Fatalf("%d lines after a minute", n)
	}
	last := logs.All()[2].ContextMap()
	if last["not_logged_since"] != uint64(3) || last["place"] != "naming" {
		t.Errorf("the last line says %v", last)
	}
	for _, c := range g.Counts() {
		want := map[string]uint64{"naming": 5, "request": 1}[c.Place]
		if c.Count != want {
			t.Errorf("%s: %d, want %d", c.Place, c.Count, want)
		}
	}
}

func TestPlacesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for p := range places {
		if name := p.String(); name == "" || seen[name] {
			t.Errorf("place %d is called %q", p, name)
		}
		seen[p.String()] = true
	}
}

func TestNil(t *testing.T) {
	var g *Guard
	if err := g.Do(Decode, func() error { panic("x") }); err == nil {
		t.Error("no error")
	}
	if len(g.Counts()) != int(places) {
		t.Error("no counts")
	}
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
		if c.Place == "span" && c.Count != 800 {
			t.Errorf("%d", c.Count)
		}
	}
}

// A file that is truncated while it is mapped.
func TestMapped(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	g, sum := New(nil), 0
	err = g.Mapped(Store, func() error { sum += int(data[1<<19]); return nil })
	var p *PanicError
	if !errors.As(err, &p) {
		t.Errorf("got %v, %d", err, sum)
	}
}
