package sequence

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Found is what a snapshot has of the generator.
type Found struct {
	Numbers uint64 // that are there
	Holes   uint64 // numbers that are missing between two others, all of them accounted for
	Vouched uint64 // samples that had to be there, and are
}

// seen is what was found of one thread.
type seen struct {
	*Thread
	last, at uint64 // the last number, and its time
	have     map[uint64]bool
}

// Check holds a snapshot that names system calls against the account of the generator. An error
// tells of a hole that the snapshot does not tell of, of a number that is
// there twice or in disorder, of a time that goes back, or of a sample that
// is missing where the snapshot vouches for all.
func Check(dir string, threads []Thread) (Found, error) {
	var f Found
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return f, err
	}
	r, err := trace.Read(filepath.Join(dir, snapshot.TraceDir))
	if err != nil {
		return f, err
	}
	defer func() { _ = r.Close() }() // it was read only
	byTID, cover := map[int]*seen{}, map[int]*snapshot.CPUCoverage{}
	for i := range threads {
		byTID[threads[i].TID] = &seen{Thread: &threads[i], have: map[uint64]bool{}}
	}
	for i := range m.Coverage {
		cover[m.Coverage[i].CPU] = &m.Coverage[i]
	}
	var wrong, absent []error
	var last uint64
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return f, err
		}
		if e.Time < last {
			wrong = append(wrong, fmt.Errorf("the trace goes back from %d to %d", last, e.Time))
		}
		last = e.Time
		call, ok := e.Body.(trace.Syscall)
		t := byTID[e.TID]
		if !ok || t == nil || e.Type != trace.SyscallEntry || call.Name != "lseek" || call.Args[0] != nowhere {
			continue
		}
		f.Numbers++
		n := call.Args[1]
		if n%sampled == 0 {
			t.have[n] = true
		}
		switch {
		case e.CPU != t.CPU:
			wrong = append(wrong, fmt.Errorf("number %d of CPU %d was recorded on CPU %d", n, t.CPU, e.CPU))
		case t.last != 0 && n <= t.last:
			wrong = append(wrong, fmt.Errorf("CPU %d: number %d after %d", e.CPU, n, t.last))
		case t.last != 0 && n > t.last+1:
			f.Holes += n - t.last - 1
			if err := accounted(cover[e.CPU], m.ProgramMissed, n-t.last-1, t.at, e.Time); err != nil {
				wrong = append(wrong, fmt.Errorf("CPU %d: numbers %d to %d: %w", e.CPU, t.last+1, n-1, err))
			}
		}
		t.last, t.at = n, e.Time
	}
	for _, t := range byTID {
		c := cover[t.CPU]
		if c == nil {
			continue
		}
		for _, s := range t.Samples {
			if s.Before < c.FromMonoNS || s.After > c.ToMonoNS || c.Lost > 0 {
				continue
			}
			f.Vouched++
			if !t.have[s.Number] {
				absent = append(absent, fmt.Errorf("CPU %d: number %d, called between %d and %d, is missing, but all from %d to %d is said to be there",
					t.CPU, s.Number, s.Before, s.After, c.FromMonoNS, c.ToMonoNS))
			}
		}
	}
	if uint64(len(absent)) > m.ProgramMissed {
		wrong = append(wrong, absent...)
	}
	return f, errors.Join(wrong[:min(len(wrong), 10)]...)
}

// accounted reports whether a snapshot tells of so many missing numbers
// between two times. Each is two records, the call's entry and its exit; a gap
// may begin with one and end with the other, and have one more entry than exits.
// Of those that the kernel skipped, a program each, it says how many, not when.
func accounted(c *snapshot.CPUCoverage, skipped, missing, from, to uint64) error {
	if c == nil {
		return errors.New("missing on a CPU that the snapshot does not have")
	}
	calls := c.Lost + skipped
	for _, g := range c.Gaps {
		if g.FromMonoNS <= to && g.ToMonoNS >= from {
			calls += (g.Missing + 1) / 2
		}
	}
	if calls < missing {
		return fmt.Errorf("%d are missing between %d and %d, and it tells of %d at most: gaps %v, lost %d, skipped %d", missing, from, to, calls, c.Gaps, c.Lost, skipped)
	}
	return nil
}
