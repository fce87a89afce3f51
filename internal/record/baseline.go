package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/tracker/histogram"
)

// Bounds of a baseline, which may come from anywhere.
const (
	maxBaselines    = 16
	maxBaselineFile = 32 << 20
	maxRules        = 1000
	maxCount        = 1 << 53 // of delays: sums of all slices and runs fit
	maxRunTime      = 366 * 24 * time.Hour
)

// Schema is the value of the field schema of a report.
const Schema = "tailcam/record/v1"

// Baseline is an earlier run.
type Baseline struct {
	File string
	Report
}

// ReadBaselines reads the reports of earlier runs. A file may have several.
func ReadBaselines(files []string) ([]Baseline, error) {
	var list []Baseline
	for _, file := range files {
		some, err := readBaseline(file)
		if err != nil {
			return nil, fmt.Errorf("baseline %s: %w", file, err)
		}
		list = append(list, some...)
		if len(list) > maxBaselines {
			return nil, fmt.Errorf("baseline %s: more than %d runs in all: name fewer", file, maxBaselines)
		}
	}
	return list, nil
}

func readBaseline(path string) ([]Baseline, error) {
	f, err := openBaseline(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return decodeBaselines(path, io.LimitReader(f, maxBaselineFile))
}

// openBaseline opens a regular file that is not too large.
func openBaseline(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return nil, err
	}
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, errors.Join(err, f.Close())
	case !info.Mode().IsRegular():
		return nil, errors.Join(errors.New("not a regular file"), f.Close())
	case info.Size() > maxBaselineFile:
		return nil, errors.Join(fmt.Errorf("larger than %d MiB", maxBaselineFile>>20), f.Close())
	}
	return f, nil
}

func decodeBaselines(path string, from io.Reader) ([]Baseline, error) {
	var list []Baseline
	for dec := json.NewDecoder(from); ; {
		var b struct {
			Schema string `json:"schema"`
			Report
		}
		err := dec.Decode(&b)
		switch {
		case errors.Is(err, io.EOF) && len(list) > 0:
			return list, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("empty: name what `tailcam record -O FILE` wrote")
		case err != nil:
			return nil, fmt.Errorf("not the JSON of a run: %w", err)
		case b.Schema != Schema:
			return nil, fmt.Errorf("its schema is %.100q, not %q: name what `tailcam record -O FILE` wrote", b.Schema, Schema)
		case len(list) == maxBaselines:
			return nil, fmt.Errorf("more than %d runs", maxBaselines)
		}
		if err := b.check(); err != nil {
			return nil, err
		}
		list = append(list, Baseline{path, b.Report})
	}
}

// check makes sure that a report can be calculated with.
func (r *Report) check() error {
	limit := maxRunTime.Nanoseconds()
	switch {
	case len(r.Rules) > maxRules:
		return fmt.Errorf("more than %d rules", maxRules)
	case r.DurationNS <= 0 || r.DurationNS > limit:
		return fmt.Errorf("duration_ns %d: must be positive, and at most a year", r.DurationNS)
	case r.SliceNS <= 0 || r.SliceNS > limit:
		return fmt.Errorf("slice_ns %d: must be positive, and at most a year", r.SliceNS)
	}
	have := map[string]bool{}
	for i := range r.Rules {
		rule := &r.Rules[i]
		if have[rule.Name] {
			return fmt.Errorf("rule %.100q comes twice", rule.Name)
		}
		have[rule.Name] = true
		if err := rule.check(limit); err != nil {
			return fmt.Errorf("rule %.100q: %w", rule.Name, err)
		}
	}
	return nil
}

func (r *Rule) check(limit int64) error {
	switch {
	case len(r.Slices) > maxSlices:
		return fmt.Errorf("more than %d slices", maxSlices)
	case len(r.Verdicts) > maxVerdicts:
		return fmt.Errorf("more than %d verdicts", maxVerdicts)
	}
	all := uint64(0)
	for i := range r.Slices {
		n, err := r.Slices[i].check()
		if err != nil {
			return fmt.Errorf("slice %d: %w", i, err)
		}
		if all += n; all > maxCount {
			return errors.New("more delays than there can be")
		}
	}
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; v.AtNS < 0 || v.AtNS > limit {
			return fmt.Errorf("verdict %d: at_ns %d is not within the run", i, v.AtNS)
		}
	}
	return nil
}

// check returns how much the slice counts.
func (s *Slice) check() (uint64, error) {
	if len(s.Index) != len(s.Count) {
		return 0, fmt.Errorf("%d buckets, but %d counts", len(s.Index), len(s.Count))
	}
	all, before := s.Outliers, -1
	if s.Outliers > maxCount {
		return 0, errors.New("more outliers than there can be")
	}
	for i, index := range s.Index {
		switch {
		case index <= before || index >= histogram.Buckets:
			return 0, fmt.Errorf("bucket %d: must be from %d to %d", index, before+1, histogram.Buckets-1)
		case s.Count[i] > maxCount:
			return 0, errors.New("more delays than there can be")
		}
		before = index
		if all += s.Count[i]; all > maxCount {
			return 0, errors.New("more delays than there can be")
		}
	}
	return all, nil
}
