package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestParseStat(t *testing.T) {
	p, ok := parseStat([]byte("12 (a (b) c) D 2 0 0 0 -1 2129984 0 0\n"))
	assert.Check(t, ok && p.state == 'D' && p.kernel && p.comm == "a (b) c", "%+v", p)
	p, ok = parseStat([]byte("12 (x) S 2 0 0 0 -1 4194560 0\n"))
	assert.Check(t, ok && p.state == 'S' && !p.kernel, "%+v", p)
	for _, bad := range []string{"", "12", ")(", "12 (x) S 1", "12 (x) SS 2 0 0 0 -1 1", "12 (x) S 2 0 0 0 -1 many"} {
		_, ok := parseStat([]byte(bad))
		assert.Check(t, !ok, "%q", bad)
	}
}

// TestSiteTally: time that the dictionary knows, and by stack what it does not.
func TestSiteTally(t *testing.T) {
	tally := &siteTally{unknown: map[string]time.Duration{}}
	known := parseStack([]byte("[<0>] do_epoll_wait+0x600/0x780\n[<0>] do_syscall_64+0x1/0x2\n"))
	strange := parseStack([]byte("[<0>] no_such_wait+0x6/0x7 [mod]\n[<0>] neither_this+0x1/0x2\n"))
	tally.add(&sighting{state: 'S', frames: known}, 98*time.Second)
	assert.NilError(t, tally.check())
	tally.add(&sighting{state: 'S', frames: strange}, 2*time.Second)
	tally.add(&sighting{state: 'S', comm: "x"}, time.Second)
	assert.NilError(t, tally.check())
	tally.add(&sighting{state: 'D', kernel: true, frames: strange}, time.Second)
	assert.ErrorContains(t, tally.check(), "knows 0.00 % of the time of threads of the kernel")
	var out bytes.Buffer
	tally.print(&out)
	for _, want := range []string{"no_such_wait < neither_this\n", "(no stack: x)", "97.03%", "without a stack, which counts as not known: 1.0 s"} {
		assert.Check(t, strings.Contains(out.String(), want), "%s", out.String())
	}
	assert.ErrorContains(t, (&siteTally{}).check(), "no task was seen")
}
