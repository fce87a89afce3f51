package term

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// progressAfter is how long something may take before a person is told.
const progressAfter = time.Second

// Progress is one line that says what is being waited for and for how long. It
// appears only after a second; on a terminal it redraws itself and is wiped
// away at the end, elsewhere it is printed once. Its methods may be called
// from any goroutine; nothing else may write to the console until Done.
type Progress struct {
	c     *Console
	start time.Time
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	label string
	drawn bool
}

// Progress starts one. The label is cleaned.
func (c *Console) Progress(label string) *Progress {
	p := newProgress(c, label, time.Now())
	p.ended.Go(func() {
		ticker := time.NewTicker(progressAfter / 10)
		defer ticker.Stop()
		for {
			select {
			case <-p.stop:
				return
			case now := <-ticker.C:
				p.tick(now)
			}
		}
	})
	return p
}

func newProgress(c *Console, label string, now time.Time) *Progress {
	return &Progress{c: c, start: now, stop: make(chan struct{}), label: Clean(label)}
}

// Update changes the label; the clock goes on.
func (p *Progress) Update(label string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.label = Clean(label)
}

// Bar writes how much of something is done: [#####-----] 52%.
func Bar(done, total uint64) string {
	const width = 20
	share := 0.0
	if total > 0 {
		share = min(float64(done)/float64(total), 1)
	}
	n := int(share * width)
	return fmt.Sprintf("[%s%s] %d%%", strings.Repeat("#", n), strings.Repeat("-", width-n), int(share*100))
}

// Done ends the line. It may be called more than once.
func (p *Progress) Done() {
	p.mu.Lock()
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.mu.Unlock()
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn && p.c.terminal {
		p.c.Printf("\r\x1b[K")
	}
	p.drawn = false
}

func (p *Progress) tick(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := now.Sub(p.start)
	if elapsed < progressAfter {
		return
	}
	if p.c.terminal {
		p.c.Printf("\r\x1b[K%s %s", p.c.Paint(Dim, p.label+" …"), p.c.Paint(Dim, elapsed.Truncate(progressAfter/10).String()))
	} else if !p.drawn {
		p.c.Printf("%s …\n", p.label)
	}
	p.drawn = true
}
