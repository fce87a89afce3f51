package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
)

// Part is a part of an outlier's time.
type Part = explain.Part

// Result is an outlier in explain.json without its path, which may be long.
type Result struct {
	Rule        string             `json:"rule"`
	Track       string             `json:"track"`
	DelayNS     int64              `json:"delay_ns"`
	StartMonoNS uint64             `json:"start_mono_ns"`
	EndMonoNS   uint64             `json:"end_mono_ns"`
	Task        explain.Who        `json:"task"`
	Verdict     string             `json:"verdict"`
	Advice      string             `json:"advice,omitempty"`
	Confidence  explain.Confidence `json:"confidence,omitempty"`
	Pattern     explain.Pattern    `json:"pattern,omitempty"`
	Blame       Part               `json:"blame"`
	Chain       []Part             `json:"chain,omitempty"`
	Parts       []Part             `json:"parts"`
	Roots       []Part             `json:"roots"`
}

// culprit returns the part to name first: the end of the chain.
func (r *Result) culprit() *Part {
	switch {
	case len(r.Chain) > 0:
		return &r.Chain[len(r.Chain)-1]
	case len(r.Parts) > 0:
		return &r.Blame
	}
	return nil
}

// roots returns the root causes, or the parts.
func (r *Result) roots() []Part {
	if len(r.Roots) == 0 {
		return r.Parts
	}
	return r.Roots
}

// ErrNotExplained means that a snapshot has no explanation, or one of an early release
// without parts.
var ErrNotExplained = errors.New("it is not explained")

// maxExplain bounds the size of explain.json, in bytes.
const maxExplain = 256 << 20

// ReadReport reads explain.json with paths. It fails if parts do not add up.
func ReadReport(dir string) (*explain.Report, error) {
	data, err := readExplain(dir)
	if err != nil {
		return nil, err
	}
	return ParseReport(data)
}

// ParseReport is ReadReport for data in memory.
func ParseReport(data []byte) (*explain.Report, error) {
	if err := known(data); err != nil {
		return nil, err
	}
	var r explain.Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", snapshot.ExplainJSONFile, err)
	}
	for i := range r.Outliers {
		if err := checkSums(r.Outliers[i].DelayNS, r.Outliers[i].Parts, r.Outliers[i].Roots); err != nil {
			return nil, fmt.Errorf("%s, outlier %d: %w", snapshot.ExplainJSONFile, i, err)
		}
	}
	return &r, nil
}

// readResults is ReadReport without paths.
func readResults(dir string) ([]Result, error) {
	data, err := readExplain(dir)
	if err != nil {
		return nil, err
	}
	if err := known(data); err != nil {
		return nil, err
	}
	var r struct {
		Outliers []Result `json:"outliers"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", snapshot.ExplainJSONFile, err)
	}
	for i := range r.Outliers {
		if err := checkSums(r.Outliers[i].DelayNS, r.Outliers[i].Parts, r.Outliers[i].Roots); err != nil {
			return nil, fmt.Errorf("%s, outlier %d: %w", snapshot.ExplainJSONFile, i, err)
		}
	}
	return r.Outliers, nil
}

func readExplain(dir string) ([]byte, error) {
	data, err := snapshot.ReadDocument(filepath.Join(dir, snapshot.ExplainJSONFile), maxExplain)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it has no %s", ErrNotExplained, snapshot.ExplainJSONFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", snapshot.ExplainJSONFile, err)
	}
	return data, nil
}

// known checks the schema version of explain.json.
func known(data []byte) error {
	var head struct {
		Version int    `json:"version"`
		Kind    string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("read %s: %w", snapshot.ExplainJSONFile, err)
	}
	switch {
	case head.Kind == "facts": // early releases: no parts
		return ErrNotExplained
	case head.Version < 1:
		return fmt.Errorf("read %s: the version is missing", snapshot.ExplainJSONFile)
	case head.Version > explain.Version:
		return fmt.Errorf("read %s: schema version %d is newer than %d, the latest supported: use a newer tailcam",
			snapshot.ExplainJSONFile, head.Version, explain.Version)
	}
	return nil
}

// checkSums checks that parts and roots add up.
func checkSums(delay int64, parts, roots []Part) error {
	if err := checkParts(delay, parts); err != nil {
		return fmt.Errorf("its parts %w", err)
	}
	if len(roots) == 0 {
		return nil
	}
	if err := checkParts(delay, roots); err != nil {
		return fmt.Errorf("its roots %w", err)
	}
	return nil
}

// checkParts checks that parts are positive, ordered and add up.
func checkParts(delay int64, parts []Part) error {
	left := delay
	for i := range parts {
		p := &parts[i]
		switch {
		case p.NS < 0 || p.NS > left:
			return fmt.Errorf("are more than its delay of %d ns", delay)
		case i > 0 && p.NS > parts[i-1].NS:
			return errors.New("are not sorted by their length")
		}
		left -= p.NS
	}
	if left != 0 {
		return fmt.Errorf("add up to %d ns, its delay is %d ns", delay-left, delay)
	}
	return nil
}

// checkPath checks that the path covers the delay without gaps and deeper steps stay
// within it.
func checkPath(r *explain.Result) error {
	at := r.StartMonoNS
	for i := range r.Path {
		s := &r.Path[i]
		switch {
		case s.ToMonoNS < s.FromMonoNS:
			return fmt.Errorf("step %d of its path ends before it begins", i)
		case s.Depth < 0:
			return fmt.Errorf("step %d of its path has depth %d", i, s.Depth)
		case s.Depth > 0 && (s.FromMonoNS < r.StartMonoNS || s.ToMonoNS > r.EndMonoNS):
			return fmt.Errorf("step %d of its path leaves the delay", i)
		case s.Depth > 0:
			continue
		case s.FromMonoNS != at:
			return fmt.Errorf("step %d of its path leaves a gap, or overlaps", i)
		}
		at = s.ToMonoNS
	}
	if at != r.EndMonoNS {
		return errors.New("its path does not reach its end")
	}
	return nil
}
