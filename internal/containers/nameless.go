package containers

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.uber.org/zap"
)

// Advice says what to do if no runtime answers.
const Advice = "set containers.sockets; in a container, mount the host's /run, and list the sockets there (docs/identity.md)"

// Ask asks runtimes, all at once, for a container that none has, and returns why each does
// not answer; nil: it does.
func Ask(ctx context.Context, sockets []Socket) []error {
	o := New(&Options{}) // for its defaults; without sockets it runs nothing
	defer o.stop()
	errs := make([]error, len(sockets))
	var all sync.WaitGroup
	for i, socket := range sockets {
		all.Go(func() {
			s := newSource(socket, &o.opts)
			if _, err := s.query(ctx, strings.Repeat("0", 64)); !errors.Is(err, errUnknown) {
				errs[i] = err
			}
			if s.client != nil {
				s.client.close()
			}
		})
	}
	all.Wait()
	return errs
}

// Outcomes of the last question to a source.
const (
	notAsked = iota
	answers
	fails
)

// complain logs once that a container has no name because no runtime that may know it
// answers. A socket that does not exist is no failure of its own: most machines have at
// most one of the well-known ones.
func (l *Lookup) complain(id, hint string) {
	if l.complained.Load() {
		return
	}
	var asked []string
	for _, s := range l.sources {
		switch {
		case s.outcome.Load() == answers:
			return
		case !s.mayKnow(hint):
			continue
		case s.outcome.Load() == notAsked:
			return
		}
		asked = append(asked, s.socket.Protocol+":"+s.socket.Path)
	}
	if len(asked) > 0 && !l.complained.Swap(true) {
		l.opts.Log.Warn("no container runtime answers: containers and pods have no names",
			zap.String("container", id), zap.Strings("sockets", asked), zap.String("to_change", Advice))
	}
}
