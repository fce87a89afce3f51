package helper

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker/usdt"
)

const (
	programTime      = 2 * time.Second  // to examine one program
	programTurn      = 2 * time.Second  // to wait for other requests
	unresponsiveTime = 30 * time.Second // until an unresponsive file is tried again
	maxUnresponsive  = 2                // unresponsive files, beyond which no network files are read
)

// unresponsive remembers files that did not answer, which bounds the time that all
// rules together wait for them.
type unresponsive struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// refuse reports whether to skip a file, and whether to skip other files on network
// file systems.
func (s *unresponsive) refuse(path string, now time.Time) (this, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, t := range s.until {
		if now.After(t) {
			delete(s.until, p)
		}
	}
	_, this = s.until[path]
	return this, len(s.until) >= maxUnresponsive
}

func (s *unresponsive) add(path string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	s.until[path] = now.Add(unresponsiveTime)
}

// Function implements tracker.Programs.
func (h *Helper) Function(path, name string) (offset, size uint64, err error) {
	m, err := h.program(&request{kind: reqFunction, path: path, name: name})
	if err != nil {
		return 0, 0, err
	}
	if len(m.addrs) != 2 {
		return 0, 0, fmt.Errorf("%s: %w", path, errMessage)
	}
	return m.addrs[0], m.addrs[1], nil
}

// Static implements tracker.Programs.
func (h *Helper) Static(path, provider, name string) ([]usdt.Place, error) {
	m, err := h.program(&request{kind: reqStatic, path: path, provider: provider, name: name})
	if err != nil {
		return nil, err
	}
	if len(m.places) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errMessage)
	}
	return m.places, nil
}

// Answers implements tracker.Programs.
func (h *Helper) Answers(path string) error {
	_, err := h.program(&request{kind: reqProgram, path: path})
	return err
}

// program asks about a program or library, falling back to the second parser if the
// first is busy, and using the remote one for network file systems.
func (h *Helper) program(q *request) (message, error) {
	if len(q.path) > maxPath || len(q.provider) > maxFrame || len(q.name) > maxFrame {
		return message{}, fmt.Errorf("%.64s…: path or name too long", q.path)
	}
	this, others := h.unresponsive.refuse(q.path, time.Now())
	if this {
		return message{}, fmt.Errorf("%s does not answer: retry in up to %v", q.path, unresponsiveTime)
	}
	m, err := h.full.ask(q, nil, time.Now().Add(programTurn), programTime)
	if err != nil && !errors.Is(err, errNoAnswer) && !errors.Is(err, errGone) {
		m, err = h.names.ask(q, nil, time.Now().Add(programTurn), programTime)
	}
	if err == nil && m.flags&flagRemote != 0 {
		if others {
			return message{}, fmt.Errorf("%s is on a network file system, and others do not answer: retry in up to %v", q.path, unresponsiveTime)
		}
		m, err = h.remote.ask(q, nil, time.Now().Add(programTurn), programTime)
	}
	switch {
	case errors.Is(err, errNoAnswer) || errors.Is(err, errGone) || err == nil && m.flags&(flagStuck|flagRemote) != 0:
		h.unresponsive.add(q.path, time.Now())
		return message{}, fmt.Errorf("%s does not answer: its file system hangs, or it takes too long to parse", q.path)
	case err != nil:
		return message{}, fmt.Errorf("%s cannot be read: %w", q.path, err)
	case m.flags&flagFailed != 0:
		return message{}, errors.New(m.text)
	}
	return m, nil
}
