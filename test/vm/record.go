package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Where the last whole run of each kernel is kept, and what is made of that,
// seen from the root of the repository.
const (
	recordFile = "docs/kernels.json"
	pageFile   = "docs/kernels.md"
)

// record is the last run of each test on one kernel.
type record struct {
	Kernel  string             `json:"kernel"` // as in the matrix
	Release string             `json:"release"`
	Arch    string             `json:"arch"`
	Date    string             `json:"date"`   // of the last run
	Commit  string             `json:"commit"` // that was tested last; with "-dirty" if files differed
	Tests   map[string]outcome `json:"tests"`
	Skips   map[string]string  `json:"skips"` // tests and subtests: why
	Facts   map[string]fact    `json:"facts"`
}

// outcome is how a test ended.
type outcome string

// Outcomes.
const (
	pass  outcome = "pass"
	fail  outcome = "fail"
	leave outcome = "skip"
)

// fact is what a test found that the kernel has (boot.Fact).
type fact struct {
	Value string `json:"value"`
	Why   string `json:"why,omitempty"`
}

// newRecord makes a record of a result.
func newRecord(r *result, commit string) record {
	c := record{
		Kernel: r.target.name, Release: r.release, Arch: r.target.arch.name,
		Date: r.span.From.UTC().Format(time.DateOnly), Commit: commit,
		Tests: map[string]outcome{}, Skips: map[string]string{}, Facts: r.counts.facts,
	}
	for _, name := range r.counts.passes {
		c.Tests[name] = pass
	}
	for _, name := range r.counts.failures {
		c.Tests[name] = fail
	}
	if r.counts.unfinished != "" {
		c.Tests[r.counts.unfinished] = fail
	}
	for _, s := range r.counts.skipped {
		c.Skips[s.test] = s.why
		if !strings.Contains(s.test, "/") {
			c.Tests[s.test] = leave
		}
	}
	return c
}

// readRecords reads what is kept; of a file that is not there, nothing.
func readRecords(root string) ([]record, error) {
	text, err := os.ReadFile(filepath.Join(root, recordFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []record
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", recordFile, err)
	}
	return list, nil
}

// onTop adds what an older run of the same kernel says of tests that this one left out.
func (r *record) onTop(old *record) {
	for test, why := range old.Skips {
		if top, _, _ := strings.Cut(test, "/"); r.Tests[top] == "" {
			r.Skips[test] = why
		}
	}
	for test, o := range old.Tests {
		if r.Tests[test] == "" {
			r.Tests[test] = o
		}
	}
	for name, f := range old.Facts {
		if _, known := r.Facts[name]; !known {
			r.Facts[name] = f
		}
	}
}

// keep puts results in the place of older ones of the same tests and kernels, and writes
// the page anew. A newer kernel starts afresh, and so does a run of all tests (whole). What
// never got as far as its tests leaves what was there.
func keep(root, commit string, results []*result, whole bool) error {
	list, err := readRecords(root)
	if err != nil {
		return err
	}
	for _, r := range results {
		if len(r.counts.passes) == 0 {
			continue
		}
		now := newRecord(r, commit)
		list = slices.DeleteFunc(list, func(old record) bool {
			if old.Kernel == now.Kernel && old.Release == now.Release && !whole {
				now.onTop(&old)
			}
			return old.Kernel == now.Kernel
		})
		list = append(list, now)
	}
	list = inOrder(list)
	text, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, recordFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, pageFile), []byte(page(list)), 0o644)
}

// checkedOut is the commit that is built, with "-dirty" if files differ from it.
func checkedOut(ctx context.Context, root string) (string, error) {
	commit, err := output(ctx, root, "git", "describe", "--always", "--dirty", "--exclude=*")
	return strings.TrimSpace(commit), err
}

// inOrder sorts records as the matrix is, and leaves out kernels that it has no more.
func inOrder(list []record) []record {
	var sorted []record
	for _, t := range targets {
		for _, r := range list {
			if r.Kernel == t.name {
				sorted = append(sorted, r)
			}
		}
	}
	return sorted
}
