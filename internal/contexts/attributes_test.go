package contexts

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/process"
)

var (
	first  = process.Image{StartCode: 1, StartStack: 2}
	second = process.Image{StartCode: 1, StartStack: 3}
)

// processes are what processes have published, of which only the wanted names are told.
type processes struct {
	mu    sync.Mutex
	names map[int][]string
	image process.Image
	asked int
}

func (p *processes) find(pid int, wanted []string) ([]string, process.Image, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	names, ok := p.names[pid]
	if !ok {
		return nil, process.Image{}, errors.New("none")
	}
	told := slices.Clone(names)
	for i, name := range told {
		if !slices.Contains(wanted, name) {
			told[i] = ""
		}
	}
	return told, p.image, nil
}

// record makes attributes of numbers and values.
func record(pairs ...any) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		value := pairs[i+1].(string)
		b = append(append(b, byte(pairs[i].(int)), byte(len(value))), value...)
	}
	return b
}

func TestNamed(t *testing.T) {
	p := &processes{names: map[int][]string{7: {"user.id", "http.route"}}, image: first}
	a := NewAttributes([]string{"http.route", "tenant"}, p.find)
	data := record(0, "annabel", 1, "/first", 9, "unknown", 1, "/last", 2, "acme")
	assert.Check(t, is.DeepEqual(a.Named(7, first, data), map[string]string{"http.route": "/last"}))
	assert.Check(t, is.DeepEqual(a.Named(7, first, data), map[string]string{"http.route": "/last"}))
	assert.Check(t, is.Equal(p.asked, 1), "numbers that it has no names for are not asked for at once again")

	p.names[7] = append(p.names[7], "tenant")
	a.entry(program{7, first}).due = a.entry(program{7, first}).due.Add(-keysAgain)
	assert.Check(t, is.DeepEqual(a.Named(7, first, data), map[string]string{"http.route": "/last", "tenant": "acme"}))
	assert.Check(t, is.Equal(p.asked, 2))
	assert.Check(t, is.Len(a.Named(7, first, record(0, "annabel")), 0), "not wanted")
	assert.Check(t, is.Len(a.Named(7, first, nil), 0))
	assert.Check(t, is.Equal(p.asked, 2), "the names that are known suffice")

	assert.Check(t, is.Len(a.Named(7, second, data), 0), "another program of that process, whose names are not known")
	assert.Check(t, is.Len(a.Named(8, first, data), 0), "no names")
	asked := p.asked
	assert.Check(t, is.Len(a.Named(8, first, data), 0))
	assert.Check(t, is.Equal(p.asked, asked), "it failed a moment ago")
	assert.Check(t, is.DeepEqual(a.Named(7, first, record(1, "\xff")), map[string]string{"http.route": "\uFFFD"}))
	assert.Check(t, is.Len(NewAttributes(nil, p.find).Named(7, first, data), 0), "none are wanted")
}

// Who has names once keeps them, also when its process is gone.
func TestNamedOfGone(t *testing.T) {
	p := &processes{names: map[int][]string{7: {"http.route"}}, image: first}
	a := NewAttributes([]string{"http.route"}, p.find)
	want := map[string]string{"http.route": "/"}
	assert.Check(t, is.DeepEqual(a.Named(7, first, record(0, "/")), want))
	delete(p.names, 7)
	a.entry(program{7, first}).due = a.entry(program{7, first}).due.Add(-keysAgain)
	assert.Check(t, is.DeepEqual(a.Named(7, first, record(0, "/", 5, "x")), want))
}

// Many processes at once, more than are remembered.
func TestNamedBounded(t *testing.T) {
	p := &processes{names: map[int][]string{}, image: first}
	for pid := range 3 * maxPrograms {
		p.names[pid] = []string{"http.route"}
	}
	a := NewAttributes([]string{"http.route"}, p.find)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for pid := range 3 * maxPrograms {
				assert.Check(t, is.Len(a.Named(pid, first, record(0, "/")), 1))
			}
		})
	}
	all.Wait()
	assert.Check(t, len(a.known) <= maxPrograms, len(a.known))
}

func TestParseAttributes(t *testing.T) {
	for _, c := range []struct {
		data string
		want map[byte][]byte
	}{
		{"", map[byte][]byte{}},
		{"\x01", map[byte][]byte{}},
		{"\x01\x00", map[byte][]byte{1: {}}},
		{"\x01\x02ab", map[byte][]byte{1: []byte("ab")}},
		{"\x01\x01a\x01\x01b", map[byte][]byte{1: []byte("b")}},
		{"\x01\x01a\x02\x05b", map[byte][]byte{1: []byte("a")}},
		{"\x01\xff", map[byte][]byte{}},
	} {
		assert.Check(t, is.DeepEqual(ParseAttributes([]byte(c.data)), c.want), "%q", c.data)
	}
}

func FuzzParseAttributes(f *testing.F) {
	f.Add(record(0, "annabel", 1, "/items/{id}"))
	f.Add([]byte{1, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		bytes := 0
		for _, v := range ParseAttributes(b) {
			bytes += 2 + len(v)
		}
		assert.Check(t, bytes <= len(b))
		p := &processes{names: map[int][]string{7: strings.Split(strings.Repeat("a b c ", 40), " ")}, image: first}
		for name, v := range NewAttributes([]string{"a", "b"}, p.find).Named(7, first, b) {
			assert.Check(t, (name == "a" || name == "b") && utf8.ValidString(v))
		}
	})
}
