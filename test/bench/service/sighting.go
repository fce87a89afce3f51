package main

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// sighting is a task that was found off its CPU.
type sighting struct {
	state  byte // as in /proc/PID/stat: S, D, …
	kernel bool // a thread of the kernel
	comm   string
	frames []string
}

// text is its stack, with its name where there is none.
func (p *sighting) text() string {
	if len(p.frames) == 0 {
		return "(no stack: " + p.comm + ")"
	}
	var b strings.Builder
	for i, f := range p.frames {
		if i > 0 {
			b.WriteString(" < ")
		}
		f, _, _ = strings.Cut(f, "+")
		b.WriteString(f)
	}
	return b.String()
}

// kthread is PF_KTHREAD of the kernel.
const kthread = 0x00200000

// parseStat reads what is needed of /proc/PID/stat.
func parseStat(data []byte) (p sighting, ok bool) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return p, false
	}
	fields := bytes.Fields(data[end+1:])
	const flags = 6 // the ninth of all
	if len(fields) <= flags || len(fields[0]) != 1 {
		return p, false
	}
	n, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return sighting{state: fields[0][0], kernel: n&kthread != 0, comm: string(data[open+1 : end])}, err == nil
}

// parseStack reads /proc/PID/stack: frames as those of the kernel's own traces.
func parseStack(data []byte) (frames []string) {
	for line := range bytes.Lines(data) {
		if _, frame, ok := strings.Cut(strings.TrimSpace(string(line)), "] "); ok {
			frames = append(frames, frame)
		}
	}
	return frames
}

// off reports whether a state is that of a task that has left its CPU for a reason of its own.
func off(state byte) bool { return strings.IndexByte("SDItT", state) >= 0 }

// waiting finds every task that waits, but those of this process. One that runs meanwhile, or
// has ended, is left out: it does not wait.
func waiting(proc string) iter.Seq[*sighting] {
	return func(yield func(*sighting) bool) {
		self := strconv.Itoa(os.Getpid())
		dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "task", "[0-9]*")) // the pattern is right
		for _, dir := range dirs {
			if strings.HasPrefix(dir, filepath.Join(proc, self)+"/") {
				continue
			}
			if p := look(dir); p != nil && !yield(p) {
				return
			}
		}
	}
}

// looks is how often a task is looked at that seems to wait and has no stack: it is still on its
// CPU, about to sleep or just woken, which is soon over.
const looks = 8

// look looks at a task; nil: it does not wait. One whose stack cannot be read has no frames.
func look(dir string) (p *sighting) {
	for range looks {
		if p = lookOnce(dir); p == nil || len(p.frames) > 0 {
			return p
		}
		runtime.Gosched()
	}
	return p
}

func lookOnce(dir string) *sighting {
	before, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return nil
	}
	p, ok := parseStat(before)
	if !ok || !off(p.state) {
		return nil
	}
	stack, err := os.ReadFile(filepath.Join(dir, "stack"))
	if err != nil {
		return nil
	}
	after, err := os.ReadFile(filepath.Join(dir, "stat"))
	if q, ok := parseStat(after); err != nil || !ok || q.state != p.state {
		return nil
	}
	p.frames = parseStack(stack)
	return &p
}
