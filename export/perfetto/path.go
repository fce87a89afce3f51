package perfetto

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/explain"
)

// paths draws the critical path of each outlier: a track for each depth, with
// arrows from what ended to what it let go on.
func (w *Writer) paths() error {
	if w.opts.Explained == nil {
		return nil
	}
	for n := range w.opts.Explained.Outliers {
		if err := w.path(uint64(n), &w.opts.Explained.Outliers[n]); err != nil {
			return err
		}
	}
	return nil
}

// maxDepth bounds the tracks of one path.
const maxDepth = 64

func (w *Writer) path(n uint64, r *explain.Result) error {
	steps := slices.DeleteFunc(slices.Clone(r.Path), func(s explain.Step) bool {
		return s.Depth < 0 || s.Depth >= maxDepth || s.FromMonoNS >= s.ToMonoNS
	})
	slices.SortStableFunc(steps, func(a, b explain.Step) int {
		return cmp.Or(cmp.Compare(a.FromMonoNS, b.FromMonoNS), cmp.Compare(a.Depth, b.Depth))
	})
	// A step one deeper that ends where a step begins is what that one waited for.
	type end struct {
		depth int
		at    uint64
	}
	ended := map[end]int{}
	for i := range steps {
		ended[end{steps[i].Depth, steps[i].ToMonoNS}] = i
	}
	from, to := make([]uint64, len(steps)), make([]uint64, len(steps))
	for i := range steps {
		if j, ok := ended[end{steps[i].Depth + 1, steps[i].FromMonoNS}]; ok && from[j] == 0 {
			from[j] = w.arrow()
			to[i] = from[j]
		}
	}
	for i := range steps {
		s := &steps[i]
		track := kindPath.track(n<<8 | uint64(s.Depth))
		name := fmt.Sprintf("#%d %s", n, r.Rule)
		if s.Depth > 0 {
			name = fmt.Sprintf("#%d %s, waited for, %d", n, r.Rule, s.Depth)
		}
		if err := w.grouped(track, groupPath, name); err != nil {
			return err
		}
		piece := stepSlice(s)
		if from[i] != 0 {
			piece.from = []uint64{from[i]}
		}
		if to[i] != 0 {
			piece.to = []uint64{to[i]}
		}
		if err := w.begins(s.FromMonoNS, track, piece); err != nil {
			return err
		}
		if err := w.ends(s.ToMonoNS, track); err != nil {
			return err
		}
	}
	return nil
}

func stepSlice(s *explain.Step) *slice {
	words := string(s.Cause)
	if s.By != nil && s.By.Name != "" {
		words += ": " + s.By.Name
	}
	args := message{}.textArg("state", s.State).textArg("cause", string(s.Cause)).textArg("why", s.Why).intArg("cpu", int64(s.CPU))
	if s.By != nil {
		args = args.textArg("by", s.By.Name)
	}
	if s.Waker != nil {
		args = args.textArg("waker", s.Waker.Name)
	}
	task := s.Task.Comm
	if task == "" {
		task = s.Task.Name
	}
	return &slice{name: fmt.Sprintf("%s[%d] %s", task, s.Task.TID, words), args: args}
}
