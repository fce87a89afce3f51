package flight

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/tailcam/tailcam/snapshot"
)

// Resizable is a recorder whose rings may be replaced by others of another size, while it
// is in use. Its methods may be called from several goroutines at once.
type Resizable struct {
	mu     sync.Mutex
	now    Recorder
	before []Recorder // nothing is written there any more, and the rest not read yet
}

// NewResizable returns r, to be replaced later.
func NewResizable(r Recorder) *Resizable { return &Resizable{now: r} }

// Replace puts r in the place of what was there. The kernel side must write into the rings
// of r alone by now. What the others hold comes with the next Drain.
func (s *Resizable) Replace(r Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = append(s.before, s.now)
	s.now = r
}

func (s *Resizable) current() Recorder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Freeze implements snapshot.Recorder.
func (s *Resizable) Freeze() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Freeze()
}

// FreezeNow implements snapshot.Recorder.
func (s *Resizable) FreezeNow() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.FreezeNow()
}

// Drain implements snapshot.Recorder.
func (s *Resizable) Drain() (snapshot.Drained, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all snapshot.Drained
	var errs []error
	for _, r := range s.before {
		d, err := r.Drain()
		all.CPUs = append(all.CPUs, d.CPUs...)
		errs = append(errs, err, r.Close())
	}
	s.before = nil
	d, err := s.now.Drain()
	all.CPUs = follow(all.CPUs, d.CPUs)
	return all, errors.Join(append(errs, err)...)
}

// follow puts the streams of later rings behind those of earlier ones. While the programs
// changed places, one by one, both were written: there, records are in the order of time.
func follow(earlier, later []snapshot.CPUStream) []snapshot.CPUStream {
	if len(earlier) == 0 {
		return later
	}
	all := slices.Concat(earlier, later)
	slices.SortStableFunc(all, func(a, b snapshot.CPUStream) int { return cmp.Compare(a.CPU, b.CPU) })
	for i := 1; i < len(all); i++ {
		a, b := &all[i-1], &all[i]
		if n := len(a.Records); a.CPU != b.CPU || n == 0 || len(b.Records) == 0 || a.Records[n-1].Time() <= b.Records[0].Time() {
			continue
		}
		b.Missing += a.Missing
		b.Records = merge(a.Records, b.Records)
		a.Records, a.Missing = nil, 0
	}
	return all
}

// Release implements snapshot.Recorder.
func (s *Resizable) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Release()
}

// Unread implements snapshot.Recorder.
func (s *Resizable) Unread() int { return s.current().Unread() }

// Coverage implements snapshot.Recorder.
func (s *Resizable) Coverage() []snapshot.Coverage { return s.current().Coverage() }

// Sample implements Recorder.
func (s *Resizable) Sample() { s.current().Sample() }

// Capacity implements Recorder.
func (s *Resizable) Capacity() int { return s.current().Capacity() }

// Size implements Recorder.
func (s *Resizable) Size() int { return s.current().Size() }

// Close implements Recorder.
func (s *Resizable) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.now.Close()}
	for _, r := range s.before {
		errs = append(errs, r.Close())
	}
	s.before = nil
	return errors.Join(errs...)
}
