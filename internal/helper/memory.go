package helper

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/process"
)

// Cmdline returns the command line of the process that started at start, in clock ticks
// since boot. Arguments are separated by NULs; the rest is printable.
func (h *Helper) Cmdline(pid int, start uint64) (string, error) {
	m, err := h.read(&request{kind: reqCmdline, pid: pid, start: start})
	return arguments(m.text), err
}

// arguments has a NUL after each argument but the last.
func arguments(text string) string { return strings.ReplaceAll(text, argumentEnd, "\x00") }

// Cmdlines reads several command lines at once. It leaves out those for which Cmdline
// must be used: long ones, or all of them on failure.
func (h *Helper) Cmdlines(of []process.Started) map[process.Started]string {
	out := make(map[process.Started]string, len(of))
	now := time.Now()
	of = slices.DeleteFunc(slices.Clone(of), func(p process.Started) bool { return !h.accounts.allow(now, payers(p.PID)...) })
	for part := range slices.Chunk(of, maxCmdlines) {
		q := &request{kind: reqCmdlines}
		for _, p := range part {
			q.addrs = append(q.addrs, uint64(p.PID), p.Start)
		}
		// Nobody is penalized for a failure: Cmdline will find out.
		m, err := h.reader.ask(q, nil, time.Now().Add(2*readTime), readTime)
		if err != nil || len(m.addrs) != len(part) || len(m.frames) != len(part) {
			return out
		}
		for i, p := range part {
			if m.addrs[i] == 1 {
				out[p] = arguments(m.frames[i])
			}
		}
	}
	return out
}

// ErrRefused means that the process is not read for a while.
var ErrRefused = errors.New("not read for a while: it made helpers hang")

func (h *Helper) read(q *request) (message, error) {
	who := payers(q.pid)
	if !h.accounts.allow(time.Now(), who...) {
		h.refused.Add(1)
		return message{}, ErrRefused
	}
	m, err := h.reader.ask(q, who, time.Now().Add(2*readTime), readTime)
	if err != nil {
		h.unsafe.Add(1)
		return message{}, fmt.Errorf("read memory of process %d: %w", q.pid, err)
	}
	if m.flags&flagFailed != 0 {
		return message{}, fmt.Errorf("read memory of process %d: %s", q.pid, m.text)
	}
	return m, nil
}
