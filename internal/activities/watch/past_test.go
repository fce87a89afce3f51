package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

// carry is what a test's thread carries since a time: an index of a token; -1: none.
type carry struct {
	token int
	since uint64
}

// sight is what the kernel side writes of a thread that leaves its CPU at a time.
func sight(p *program, tid int, at, slice uint64, now, before carry) abi.ActivityCarried {
	c := abi.ActivityCarried{TimeNs: at, SliceNs: slice, Tid: uint32(tid), Inside: uint32(tid), Serial: uint32(p.key)}
	for i, h := range []carry{now, before} {
		c.Half[i].SinceNs = h.since
		if h.token >= 0 {
			c.Half[i].Token, c.Half[i].Generation = p.index(h.token), 1
		}
	}
	return c
}

func said(list []Past) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s:", p.Name)
		for _, s := range p.Stretches {
			fmt.Fprintf(&b, " %d %d-%d", s.TID, s.From, s.To)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// What threads carried is known between switches of tokens that were seen, and not guessed.
func TestPast(t *testing.T) {
	now := uint64(1000)
	p := newProgram(1, &now, 4)
	for i, name := range []string{"a", "b", "c", "d"} {
		p.begin(i, name)
	}
	w := New(&Options{Processes: func() []Process { return []Process{p} }, Now: func() uint64 { return now }})
	none := carry{-1, 0}
	for _, test := range []struct {
		name string
		seen []abi.ActivityCarried
		want string
	}{
		{"nothing", nil, ""},
		{
			"one switch at a time",
			[]abi.ActivityCarried{
				sight(p, 5, 100, 0, carry{0, 90}, none),
				sight(p, 5, 200, 150, carry{1, 180}, carry{0, 90}),
				sight(p, 5, 300, 250, carry{-1, 280}, carry{1, 180}),
			}, "a: 5 90-180\nb: 5 180-280\n",
		},
		{
			"two in one slice, or more",
			[]abi.ActivityCarried{
				sight(p, 5, 100, 0, carry{0, 90}, none),
				sight(p, 5, 200, 150, carry{-1, 190}, carry{1, 160}),
			}, "a: 5 90-150\nb: 5 160-190\n",
		},
		{
			"two in one slice, and no more", func() []abi.ActivityCarried {
				list := []abi.ActivityCarried{
					sight(p, 5, 100, 0, carry{0, 90}, none),
					sight(p, 5, 200, 150, carry{-1, 190}, carry{1, 160}),
				}
				list[0].Seq, list[1].Seq = 1<<32-1, 1
				return list
			}(), "a: 5 90-160\nb: 5 160-190\n",
		},
		{
			"more in one slice, of which two are known",
			[]abi.ActivityCarried{
				sight(p, 5, 100, 0, carry{0, 90}, none),
				sight(p, 5, 300, 150, carry{2, 290}, carry{1, 280}),
			}, "a: 5 90-150\nb: 5 280-290\nc: 5 290-300\n",
		},
		{
			"in any order, of two threads", []abi.ActivityCarried{
				sight(p, 6, 110, 100, carry{1, 105}, none),
				sight(p, 5, 300, 200, carry{-1, 250}, carry{0, 90}),
				sight(p, 5, 100, 0, carry{0, 90}, none),
			}, "b: 6 105-110\na: 5 90-250\n",
		},
		{"times of the future and of nowhere", []abi.ActivityCarried{
			sight(p, 5, 100, 0, carry{0, 90}, none),
			sight(p, 5, 200, 150, carry{1, 1 << 63}, carry{0, 90}),
			sight(p, 5, 300, 250, carry{-1, 3}, carry{1, 1 << 63}),
		}, "a: 5 90-200\n"},
	} {
		got := said(w.Past(&Seen{Carried: test.seen}, nowhere, 0, 1000))
		assert.Equal(t, got, test.want, test.name)
	}
}

// nowhere knows no threads.
func nowhere(int) func(int) int { return func(int) int { return 0 } }

// What a thread carries now is in its slot; what is known of a token that was used again
// since is its number.
func TestPastNow(t *testing.T) {
	now := uint64(1000)
	p := newProgram(1, &now, 4)
	p.begin(0, "a\xff")
	p.begin(1, "b")
	slot := sharedAt[abi.ActivityThread](&p.maps, 1)
	*slot = abi.ActivityThread{Tid: 5, Seq: 1}
	slot.Half[1] = abi.ActivityHalf{Token: p.index(1), Generation: 1, SinceNs: 700}
	slot.Half[0] = abi.ActivityHalf{Token: p.index(0), Generation: 1, SinceNs: 600}
	w := New(&Options{Processes: func() []Process { return []Process{p} }, Now: func() uint64 { return now }})
	same := func(pid int) func(int) int {
		assert.Equal(t, pid, p.PID())
		return func(inside int) int { return inside }
	}
	assert.Equal(t, said(w.Past(&Seen{}, same, 0, 2000)), "a\uFFFD: 5 600-700\nb: 5 700-1000\n")
	assert.Equal(t, said(w.Past(&Seen{}, same, 650, 690)), "a\uFFFD: 5 600-700\n")
	assert.Equal(t, said(w.Past(&Seen{}, nowhere, 0, 2000)), "", "which thread it is here is not known")
	seen := []abi.ActivityCarried{sight(p, 5, 650, 0, carry{0, 600}, carry{-1, 0})}
	seen[0].Tid = 77
	assert.Equal(t, said(w.Past(&Seen{Carried: seen}, nowhere, 0, 2000)), "a\uFFFD: 77 600-700\nb: 77 700-1000\n")
	namespaced := func(int) func(int) int { return func(inside int) int { return inside + 1000 } }
	assert.Equal(t, said(w.Past(&Seen{}, namespaced, 650, 690)), "a\uFFFD: 1005 600-700\n")
	p.end(0)
	p.begin(0, "another")
	list := w.Past(&Seen{}, same, 0, 2000)
	assert.Equal(t, list[0].Name, "")
	assert.Equal(t, list[0].ID, fmt.Sprintf("1.%d.1", p.index(0)))
}

// Whatever a process writes, times are in order, and within what was seen.
func TestPastHostile(t *testing.T) {
	now := uint64(1000)
	p := newProgram(1, &now, 4)
	w := New(&Options{Processes: func() []Process { return []Process{p} }, Now: func() uint64 { return now }})
	r := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 {
		if r.IntN(8) == 0 {
			return r.Uint64()
		}
		return r.Uint64N(1000)
	}
	for range 2000 {
		var seen []abi.ActivityCarried
		for range r.IntN(20) {
			seen = append(seen, sight(p, 1+r.IntN(2), 1+r.Uint64N(999), number(), carry{r.IntN(5) - 1, number()}, carry{r.IntN(5) - 1, number()}))
			seen[len(seen)-1].Seq = r.Uint32N(5)
		}
		rand.Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
		last := map[int][]Stretch{}
		for _, a := range w.Past(&Seen{Carried: seen}, nowhere, 0, 1000) {
			for _, s := range a.Stretches {
				assert.Assert(t, s.From < s.To && s.To < 1000, "%+v", s)
				last[s.TID] = append(last[s.TID], s)
			}
		}
		for _, list := range last {
			slices.SortFunc(list, func(a, b Stretch) int { return int(a.From) - int(b.From) })
			for i := range list[1:] {
				assert.Assert(t, list[i].To <= list[i+1].From, "a thread carries two: %+v", list)
			}
		}
	}
}
