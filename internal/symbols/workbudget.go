package symbols

import (
	"context"
	"errors"
)

// maxWork bounds the entries, attributes, ranges and opcodes visited by one request:
// about two seconds. The largest unit of a distribution's kernel takes 2 million steps,
// an index of all units 1 million.
const maxWork = 64 << 20

// errTooMuchWork means that debug information is unusually large, or made to keep its
// reader busy.
var errTooMuchWork = errors.New("debug information takes too much work")

// workBudget is the number of steps left for a request. It belongs to one goroutine.
type workBudget struct {
	ctx   context.Context
	left  int
	check int // steps until ctx is checked again
}

func newWorkBudget(ctx context.Context) *workBudget { return &workBudget{ctx: ctx, left: maxWork} }

// step takes n steps; it fails if none are left or ctx is done.
func (w *workBudget) step(n int) error {
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
