package main

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
)

// look is how often the output of a guest is read while it runs.
const look = 100 * time.Millisecond

// clock is when top-level tests of a guest ran, by the host's clock, as their
// output showed.
type clock struct {
	read  int // bytes of the output
	since map[string]time.Time
	spans map[string]disturbance.Span
}

func newClock() *clock {
	return &clock{since: map[string]time.Time{}, spans: map[string]disturbance.Span{}}
}

// follow reads a growing output until the context ends, and once more then.
func (c *clock) follow(ctx context.Context, path string) {
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-time.After(look):
		}
		if text, err := os.ReadFile(path); err == nil {
			c.see(text, time.Now().Round(0))
		}
	}
}

// see notes the lines that were not there before. The last one may be cut.
func (c *clock) see(text []byte, now time.Time) {
	for {
		line, _, whole := bytes.Cut(text[min(c.read, len(text)):], []byte("\n"))
		if !whole {
			return
		}
		c.read += len(line) + 1
		if m := running.FindSubmatch(line); len(m) > 1 && c.since[string(m[1])].IsZero() {
			c.since[string(m[1])] = now.Add(-look) // it began after the look before
		} else if m := finished.FindSubmatch(line); len(m) > 3 && len(m[1]) == 0 {
			c.spans[string(m[3])] = disturbance.Span{From: c.since[string(m[3])], To: now}
		}
	}
}
