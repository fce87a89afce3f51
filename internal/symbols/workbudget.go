package symbols

import (
	"context"
	"errors"
)

// maxWork is how many entries, attributes, ranges and opcodes one look into
// debug information may visit: some two seconds. The largest compile unit of a
// distribution's kernel takes 2 million, an index of all of its units 1 million.
const maxWork = 64 << 20

// errTooMuchWork says that debug information is larger than anybody's, or made
// to keep its reader busy.
var errTooMuchWork = errors.New("debug information takes too much work")

// work is what is left of the steps that one look may take. It belongs to one goroutine.
type work struct {
	ctx   context.Context
	left  int
	check int // steps left until the next look at ctx
}

func newWork(ctx context.Context) *work { return &work{ctx: ctx, left: maxWork} }

// step takes n steps; an error: there are none left, or nobody waits any more.
func (w *work) step(n int) error {
	const every = 1 << 12
	if n > w.left {
		w.left = 0
		return errTooMuchWork
	}
	w.left -= n
	if w.check -= n; w.check <= 0 {
		w.check = every
		return w.ctx.Err()
	}
	return nil
}
