package symbols

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// errInUse means that others use the memory.
var errInUse = errors.New("memory is in use")

// quota is a shared memory limit. It is safe for concurrent use; nil means no limit.
type quota struct {
	limit int64
	used  atomic.Int64
	free  func() bool // frees some memory; false: nothing to free
}

// take reserves n bytes or fails.
func (q *quota) take(n int64) error {
	if q == nil {
		return nil
	}
	if n > q.limit {
		return fmt.Errorf("%d bytes: %w", n, errNoRoom)
	}
	for q.used.Add(n) > q.limit {
		q.used.Add(-n)
		if q.free == nil || !q.free() {
			return fmt.Errorf("%d bytes: %w: %w", n, errNotOpened, errInUse)
		}
	}
	return nil
}

func (q *quota) give(n int64) {
	if q != nil {
		q.used.Add(-n)
	}
}
