// Package api is how the other verbs talk to the daemon: HTTP and JSON over a
// unix socket. It holds both ends and the values that pass between them.
//
//	GET  /v1/status                     Status
//	GET  /v1/rules                      []RuleInfo
//	GET  /v1/snapshots                  []SnapshotInfo, oldest first
//	GET  /v1/histograms?of=NAME         []HistogramInfo, of all trackers and rules, or of one
//	GET  /v1/events?rule=R              remembered outliers, one JSON object a line, each as far as it is known now
//	GET  /v1/events?follow=1&rule=R     outliers as they come, one JSON object a line; one that is "partial" may come
//	                                    again with the same id, whole and "completed"; with verdicts=1 also
//	                                    {"verdict": Verdict} for each whose snapshot is complete
//	POST /v1/snapshot {"reason": "…"}   {"dir": "…"}
//	GET  /v1/thresholds                 []ThresholdInfo: those that are set while it runs, the newest first
//	POST /v1/thresholds ThresholdRequest   ThresholdInfo
//	DELETE /v1/thresholds?rule=R&id=N   []ThresholdInfo: those that are gone; without id all of the rule, all=1 instead of rule: all
//	DELETE /v1/thresholds?rule=R&ratchet=1   []: the rule's ratchet begins anew
//	POST /v1/pause PauseRequest         {}
//	POST /v1/resume {"rule": "…"}       {}
//
// Errors come as {"error": "…"} with a fitting status. A stream may hold lines
// {"lost": N}: its reader was too slow, and N outliers were dropped for it since the last such line.
package api

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// DefaultSocket is where the daemon listens unless it is told otherwise.
const DefaultSocket = "/run/tailcam/tailcam.sock"

// DefaultGroup may use the socket, if it exists.
const DefaultGroup = "tailcam"

// Backend is what the server needs of the daemon. Its methods are called
// from many goroutines at once.
type Backend interface {
	Status(ctx context.Context) Status
	Rules() []RuleInfo
	// Recent returns the remembered outliers of a rule, or of all for "", oldest first.
	Recent(rule string) []*events.Outlier
	// Subscribe hands out the outliers of a rule, or of all for "", from now
	// on. The sender never waits: what finds the channel full is dropped and
	// counted in lost. cancel must be called, and closes the channel. An outlier
	// comes a second time, with Completed, if it was Partial, and once more, with
	// Explained, once its snapshot is complete.
	Subscribe(rule string) (outliers <-chan *events.Outlier, cancel func(), lost func() uint64)
	// TakeSnapshot takes one now and returns its directory.
	TakeSnapshot(ctx context.Context, reason string) (dir string, err error)
	// Snapshots lists what is on disk, oldest first.
	Snapshots() ([]SnapshotInfo, error)
	// Histograms lists those of all trackers, then those of rules with their classes.
	Histograms() ([]HistogramInfo, error)
	Live
}

// Status is the daemon's account of itself. The JSON form is stable; fields
// are only added.
type Status struct {
	Version   string          `json:"version"`
	PID       int             `json:"pid"`
	UptimeNS  int64           `json:"uptime_ns"`
	Kernel    string          `json:"kernel"`
	Rules     []RuleInfo      `json:"rules"`
	Losses    []Loss          `json:"losses"`
	Panics    []PanicInfo     `json:"panics,omitempty"` // every place that is guarded
	Recorder  RecorderStatus  `json:"recorder"`
	Tables    []TableStatus   `json:"tables,omitempty"`
	Snapshots SnapshotsStatus `json:"snapshots"`
	Programs  []ProgramInfo   `json:"programs,omitempty"`
}

// RuleInfo is a rule and what it has done since the daemon started.
type RuleInfo struct {
	Name           string `json:"name"`
	Track          string `json:"track"`
	ThresholdNS    int64  `json:"threshold_ns"`         // now; 0: none, see Adaptive
	TimeoutNS      int64  `json:"timeout_ns,omitempty"` // 0: none
	Source         string `json:"source,omitempty"`     // file:line
	Inactive       string `json:"inactive,omitempty"`   // why this kernel cannot serve it
	Seen           uint64 `json:"seen"`                 // pairs completed by its tracker
	Outliers       uint64 `json:"outliers"`
	WorstNS        int64  `json:"worst_ns"`
	Suppressed     uint64 `json:"suppressed"` // snapshots refused by the limiter
	Lost           uint64 `json:"lost"`       // outliers that did not reach the daemon
	ActionsSkipped uint64 `json:"actions_skipped"`

	Adaptive     *AdaptiveInfo  `json:"adaptive,omitempty"`       // how the threshold follows the load
	Overrides    []OverrideInfo `json:"overrides,omitempty"`      // whose thresholds do
	HeldBack     uint64         `json:"held_back,omitempty"`      // delays past an adaptive threshold that did not fire: too many at once
	Set          int            `json:"set,omitempty"`            // thresholds set while it runs: see ThresholdInfo
	Paused       bool           `json:"paused,omitempty"`         // fires nothing
	PausedLeftNS int64          `json:"paused_left_ns,omitempty"` // 0: until it is resumed
	Storm        *StormInfo     `json:"storm,omitempty"`          // it is paused automatically
	Limited      uint64         `json:"limited,omitempty"`        // outliers that the rate limit refused
	RatchetNS    *int64         `json:"ratchet_ns,omitempty"`     // only what is worse fires; null: the rule has no ratchet

	Samples uint64 `json:"samples,omitempty"` // in the rule's histogram
	P999NS  int64  `json:"p999_ns,omitempty"` // of it
}

// StormInfo tells of a rule that is paused automatically, as it fires far too often.
type StormInfo struct {
	Until      time.Time `json:"until"`
	LeftNS     int64     `json:"left_ns"`
	PerSecond  uint64    `json:"per_second"`            // outliers that it wanted
	Pauses     int       `json:"pauses"`                // in a row, each longer than the one before
	ConsiderNS int64     `json:"consider_ns,omitempty"` // a threshold that would fire about once a minute; 0: not known
}

// Loss is one place where something can be lost, and how often it was.
type Loss struct {
	Cause   string `json:"cause"`
	Rule    string `json:"rule,omitempty"`
	Tracker string `json:"tracker,omitempty"`
	Count   uint64 `json:"count"`
	Advice  string `json:"advice"` // what to change so that it stops
}

// PanicInfo is how often a piece of outside data made a part of the daemon
// panic. It cost that piece of data.
type PanicInfo struct {
	Place string `json:"place"` // what was being done: naming, decode, request …
	Count uint64 `json:"count"`
}

// TableStatus is how full a table of pending work is.
type TableStatus struct {
	Name   string `json:"name"` // tasks, syscalls, block
	Places int    `json:"places"`
	Max    int    `json:"max"` // it may grow to
	Used   int    `json:"used"`
	Grown  int    `json:"grown"`           // times
	Error  string `json:"error,omitempty"` // why it could not grow
}

// RecorderStatus is the state of the flight recorder.
type RecorderStatus struct {
	Enabled   bool                `json:"enabled"`
	Backend   string              `json:"backend"`
	SizeBytes uint64              `json:"size_bytes"`         // of all CPUs together
	CoverNS   int64               `json:"cover_ns,omitempty"` // that recorder.cover asks for
	Groups    []string            `json:"groups"`             // of events, as recorder.events has them
	Missing   map[string]string   `json:"missing"`            // of these, what this kernel cannot give: where, and why
	CPUs      []snapshot.Coverage `json:"cpus"`
}

// SnapshotsStatus sums up the snapshots on disk.
type SnapshotsStatus struct {
	Count  int     `json:"count"`
	Bytes  uint64  `json:"bytes"`
	Dir    string  `json:"dir"`
	DirID  string  `json:"dir_id,omitempty"` // as the daemon sees it: see DirID
	Failed uint64  `json:"failed"`           // since the daemon started
	Last   *string `json:"last"`             // id, or null
}

// DirID tells whether a path leads to the same directory for two processes, which
// may live in different containers: its device and inode. "": it is not there.
func DirID(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// ProgramInfo is a loaded BPF program.
type ProgramInfo struct {
	Name string `json:"name"`
	Hook string `json:"hook"`
}

// SnapshotInfo is one snapshot on disk.
type SnapshotInfo struct {
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Rule    string    `json:"rule,omitempty"` // empty: taken by hand
	Reason  string    `json:"reason,omitempty"`
	DelayNS int64     `json:"delay_ns,omitempty"`
	Bytes   uint64    `json:"bytes"`
	Dir     string    `json:"dir"`
}

// snapshotRequest and snapshotReply are the bodies of POST /v1/snapshot.
type snapshotRequest struct {
	Reason string `json:"reason"`
}

type snapshotReply struct {
	Dir string `json:"dir"`
}

// failure is the body of every error.
type failure struct {
	Error string `json:"error"`
}

// Verdict is what the snapshot of an outlier says of it, once it is complete:
// the outlier itself was published before.
type Verdict struct {
	ID        string      `json:"id,omitempty"` // of the outlier
	Time      time.Time   `json:"time"`         // of the outlier
	Rule      string      `json:"rule"`
	Task      events.Task `json:"task"`
	StartMono uint64      `json:"start_mono_ns"`
	Snapshot  *string     `json:"snapshot"`
	events.Explained
}

// verdictNotice is a line of an event stream that is not an outlier.
type verdictNotice struct {
	Verdict *Verdict `json:"verdict"`
}

// lostNotice is a line of an event stream that is not an outlier.
type lostNotice struct {
	Lost uint64 `json:"lost"`
}
