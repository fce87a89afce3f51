// Package record watches the machine while a command runs, with a daemon of its own
// inside this process, and says whether rules fired: for a test, or a job of CI.
//
// Recording needs root and kernel 6.1; reading, judging and comparing reports needs neither.
package record

import (
	"time"

	"github.com/tailcam/tailcam/internal/api"
)

// Report is what came of one run. The JSON form is stable; fields are only added. It is
// also the baseline that a later run is compared with.
type Report struct {
	Time    time.Time `json:"time"` // of the command's start, UTC
	Version string    `json:"version"`
	Host    string    `json:"host"`
	Kernel  string    `json:"kernel"`
	CPUs    int       `json:"cpus"`

	DurationNS int64    `json:"duration_ns"` // watched
	Ended      string   `json:"ended"`       // by what: command, duration or signal
	Command    *Command `json:"command"`     // null: there was none
	Passed     bool     `json:"passed"`      // no check failed
	ExitStatus int      `json:"exit_status"` // of tailcam

	Rules    []Rule      `json:"rules"`
	Checks   []Check     `json:"checks"`
	Compared *Comparison `json:"compared,omitempty"` // with earlier runs; absent: not asked
	SliceNS  int64       `json:"slice_ns"`           // length of all slices of rules but the last
	Losses   []api.Loss  `json:"losses"`             // during the run; those of 0 are left out
	Notes    []string    `json:"notes,omitempty"`    // what the reader must know
	Dir      string      `json:"snapshots_dir,omitempty"`
}

// Command is the command that was run.
type Command struct {
	Args   []string `json:"args"`
	User   string   `json:"user,omitempty"`   // empty: who ran tailcam
	Status int      `json:"status"`           // exit status; of a signal 128 and its number
	Signal string   `json:"signal,omitempty"` // that ended it; empty: none
	TookNS int64    `json:"took_ns"`
}

// Rule is what a rule has seen during the run.
type Rule struct {
	Name        string `json:"name"`
	Track       string `json:"track"`
	ThresholdNS int64  `json:"threshold_ns"`         // 0: none, or it follows the load
	TimeoutNS   int64  `json:"timeout_ns,omitempty"` // 0: none
	Inactive    string `json:"inactive,omitempty"`   // why it cannot work on this kernel
	Outliers    uint64 `json:"outliers"`             // with those that a limit refused
	Limited     uint64 `json:"limited,omitempty"`    // outliers refused by the limit on their rate
	Lost        uint64 `json:"lost,omitempty"`       // outliers that did not reach the daemon
	Paused      bool   `json:"paused,omitempty"`     // it fired far too often: later outliers are not counted
	MaxNS       int64  `json:"max_ns"`               // of all delays, and of outliers that had not ended

	// Histogram is of all delays that the rule applies to; null: its tracker has none, or the
	// rule is inactive. Slices are the same over time.
	Histogram *api.HistogramInfo `json:"histogram"`
	Slices    []Slice            `json:"slices"`

	Explained uint64    `json:"explained"` // outliers with a verdict
	Culprits  []Culprit `json:"culprits"`  // of these; most outliers first
	Verdicts  []Verdict `json:"verdicts"`  // by time; a random selection if there were too many
}

// Slice is a part of the run.
type Slice struct {
	Outliers uint64 `json:"outliers"`
	// Index and Count are the histogram's buckets with delays in this part: bucket i has
	// delays of up to 2^((i-240)/8) seconds.
	Index []int    `json:"index"`
	Count []uint64 `json:"count"`
}

// Culprit is who caused outliers of a rule.
type Culprit struct {
	Name     string `json:"name"` // without thread ids and the like; empty: unexplained
	Kind     string `json:"kind"` // task, irq, device …
	Cause    string `json:"cause"`
	Outliers uint64 `json:"outliers"`
	NS       int64  `json:"ns"` // of their delays
}

// Verdict is on one outlier.
type Verdict struct {
	AtNS       int64  `json:"at_ns"` // of its end, since the run's start
	DelayNS    int64  `json:"delay_ns"`
	Task       string `json:"task"`
	Text       string `json:"verdict"`
	Cause      string `json:"cause"`
	By         string `json:"by,omitempty"`
	ByKind     string `json:"by_kind,omitempty"`
	NS         int64  `json:"ns"` // of the delay, by that culprit
	Confidence string `json:"confidence,omitempty"`
	Snapshot   string `json:"snapshot,omitempty"` // empty: it was not kept
}

// Ends of a run.
const (
	EndedCommand  = "command"
	EndedDuration = "duration"
	EndedSignal   = "signal"
)

// rule finds one by its name.
func (r *Report) rule(name string) *Rule {
	for i := range r.Rules {
		if r.Rules[i].Name == name {
			return &r.Rules[i]
		}
	}
	return nil
}
