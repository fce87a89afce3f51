package helper

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
)

// Words is like process.Words. It returns ErrRefused for processes and users that have
// exceeded their share.
func (h *Helper) Words(pid int, addrs ...uint64) ([]uint64, process.Image, error) {
	m, err := h.read(&request{kind: reqWords, pid: pid, addrs: addrs})
	if err == nil && len(m.addrs) != len(addrs)+2 {
		err = errMessage
	}
	if err != nil {
		return nil, process.Image{}, err
	}
	return m.addrs[2:], process.Image{StartCode: m.addrs[0], StartStack: m.addrs[1]}, nil
}

// readWords answers reqWords.
func readWords(q *request) ([]uint64, error) {
	words, image, err := process.Words(q.pid, q.addrs...)
	if err != nil {
		return nil, err
	}
	return append([]uint64{image.StartCode, image.StartStack}, words...), nil
}

// ThreadLocal is like symbols.Resolver.ThreadLocal, but for files on network file systems.
// It returns ErrRefused as Words does.
func (h *Helper) ThreadLocal(pid int, name string) (v symbols.ThreadLocal, err error) {
	who := payers(pid)
	if !h.accounts.allow(time.Now(), who...) {
		h.refused.Add(1)
		return v, ErrRefused
	}
	m, err := h.names.ask(&request{kind: reqThreadLocal, pid: pid, name: name}, who, time.Now().Add(unwindTime), answerTime)
	switch {
	case err != nil:
		return v, fmt.Errorf("read the symbols of process %d: %w", pid, err)
	case m.flags&flagFailed != 0:
		return v, errors.New(m.text)
	case len(m.addrs) == 0:
		return v, symbols.ErrNoThreadLocal
	case len(m.addrs) != 4 || m.addrs[0] > math.MaxUint8:
		return v, errMessage
	}
	return symbols.ThreadLocal{
		Kind: symbols.ThreadLocalKind(m.addrs[0]), Offset: int64(m.addrs[1]), Address: m.addrs[2], Musl: m.addrs[3] == 1,
	}, nil
}

// threadLocal answers reqThreadLocal.
func (p *parser) threadLocal(q *request, m *message) {
	v, err := p.resolver.ThreadLocal(q.pid, q.name)
	switch {
	case errors.Is(err, symbols.ErrNoThreadLocal):
	case err != nil:
		m.flags |= flagFailed
		m.text = err.Error()
	default:
		musl := uint64(0)
		if v.Musl {
			musl = 1
		}
		m.addrs = []uint64{uint64(v.Kind), uint64(v.Offset), v.Address, musl}
	}
}
