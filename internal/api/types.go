// Package api is the protocol between the command line and the daemon: HTTP and
// JSON over a unix socket. It has the server, the client and their types.
//
//	GET    /v1/status                          Status
//	GET    /v1/rules                           []RuleInfo
//	GET    /v1/snapshots                       []SnapshotInfo, oldest first
//	GET    /v1/histograms?of=NAME              []HistogramInfo, of one tracker or rule, or of all
//	GET    /v1/events?rule=R                   remembered outliers, one JSON object per line
//	GET    /v1/events?follow=1&rule=R          new outliers, one JSON object per line; a "partial" one may come
//	                                           again with the same id, complete and marked "completed"; with
//	                                           verdicts=1 also {"verdict": Verdict} when a snapshot is complete,
//	                                           with R "manual" those that no rule asked for; with after=CURSOR
//	                                           also those since then; with cursor=1, {"cursor": CURSOR} comes
//	                                           first: the place where the stream begins
//	GET    /v1/activities                      ActivitiesInfo: live activities, and some that ended (not with ended=0)
//	POST   /v1/activities?threads=&tokens=     for clients: see opening.go
//	POST   /v1/trigger TriggerRequest          Triggered: takes a snapshot; without a body, with nothing to explain
//	POST   /v1/alertmanager AlertNotification  AlertsTaken: fires the rules that want these alerts
//	GET    /v1/thresholds                      []ThresholdInfo: the runtime thresholds, newest first
//	POST   /v1/thresholds ThresholdRequest     ThresholdInfo
//	DELETE /v1/thresholds?rule=R&id=N          []ThresholdInfo: those cleared; without id all of the rule;
//	                                           all=1 instead of rule: all
//	DELETE /v1/thresholds?rule=R&ratchet=1     []: resets the rule's ratchet
//	POST   /v1/pause PauseRequest              {}
//	POST   /v1/resume {"rule": "…"}            {}
//	POST   /v1/reload {"check": false}         Reload; with check, what a reload would do
//
// Errors are {"error": "…"} with a fitting status. A stream may contain lines
// {"lost": N, "lost_verdicts": M}: its reader was too slow, and N outliers and M verdicts were
// dropped since the last such line; or, as the first one after a cursor, {"lost": N,
// "lost_verdicts": M, "restarted": B}: so many since then are forgotten, and if B, the cursor is
// of an earlier daemon.
package api

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// DefaultSocket is the default path of the daemon's socket.
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
	// Subscribe returns the outliers of a rule, or of all for "", from now on, and those
	// after a cursor unless it is "". Subscription.Cancel must be called. The sender never
	// waits. A Partial outlier comes again with Completed, and any with Finished when its
	// snapshot is complete. It fails if after is no cursor.
	Subscribe(rule, after string) (*Subscription, error)
	// Trigger takes a snapshot now.
	Trigger(ctx context.Context, req *TriggerRequest) (*Triggered, error)
	AlertBackend
	// Snapshots lists the snapshots on disk, oldest first.
	Snapshots() ([]SnapshotInfo, error)
	// Histograms lists those of all trackers, then those of rules with their classes.
	Histograms() ([]HistogramInfo, error)
	// Activities returns what is known of activities, without those that ended unless they
	// are asked for; an error says why nothing is known.
	Activities(ended bool) (*ActivitiesInfo, error)
	Opener
	Control
}

// Status is the daemon's status. The JSON form is stable; fields are only added.
type Status struct {
	Version   string          `json:"version"`
	PID       int             `json:"pid"`
	UptimeNS  int64           `json:"uptime_ns"`
	Kernel    string          `json:"kernel"`
	Rules     []RuleInfo      `json:"rules"`
	Losses    []Loss          `json:"losses"`
	Panics    []PanicInfo     `json:"panics,omitempty"` // of each guarded part of the daemon
	Recorder  RecorderStatus  `json:"recorder"`
	Tables    []TableStatus   `json:"tables,omitempty"`
	Snapshots SnapshotsStatus `json:"snapshots"`
	Programs  []ProgramInfo   `json:"programs,omitempty"`
	Cost      *CostStatus     `json:"cost,omitempty"`     // null until the first 10 s are over
	Reload    *Reload         `json:"reload,omitempty"`   // the last one; null: none yet
	OTLP      *OTLPStatus     `json:"otlp,omitempty"`     // null: nothing is sent
	Upload    *UploadStatus   `json:"upload,omitempty"`   // null: no snapshots are sent
	Calls32   string          `json:"calls_32,omitempty"` // how far syscall rules see 32-bit programs; empty: wholly
	Pins      *PinStatus      `json:"pins,omitempty"`     // null: nothing is pinned
	Actions   *ActionsStatus  `json:"actions,omitempty"`

	// Cursor is the place after all outliers and verdicts that have come: where wait --after begins.
	Cursor string `json:"cursor,omitempty"`

	Activities *ActivitiesStatus `json:"activities,omitempty"` // null: activities.enabled is false
	Peers      *PeersStatus      `json:"peers,omitempty"`      // null: nobody is told, and nobody may tell
}

// PeersStatus is what this daemon and those of other machines have told each other of
// outliers in traces.
type PeersStatus struct {
	Listen   string `json:"listen,omitempty"` // empty: nobody may tell
	Peers    int    `json:"peers"`            // addresses that are told
	Told     uint64 `json:"told"`             // outliers
	Answered uint64 `json:"answered"`         // by machines that took part in their traces
	Reported uint64 `json:"reported"`         // outliers of other machines
	TookPart uint64 `json:"took_part"`        // of these, those of traces in which this one took part
}

// ActivitiesStatus is what is known of the requests that threads work for.
type ActivitiesStatus struct {
	// Error is why there are no accounts, although activities are enabled; empty: there are.
	Error      string `json:"error,omitempty"`
	Publishers int    `json:"publishers"` // processes that publish contexts of their threads
	Processes  int    `json:"processes"`  // that mark activities by tokens
	// LiveTokens and Threads, which have a slot, are theirs as of the last look at them.
	LiveTokens int `json:"live_tokens"`
	Threads    int `json:"threads"`
	// Bytes is what tokens and accounts take, also of activities that rules declare.
	Bytes   int64  `json:"bytes"`
	Refused uint64 `json:"refused"` // processes that could not open
	// TokensRefused and ThreadsRefused are what found all tokens or slots of their process in
	// use, as programs say.
	TokensRefused  uint64 `json:"tokens_refused"`
	ThreadsRefused uint64 `json:"threads_refused"`
}

// ActionsStatus is what became of actions.
type ActionsStatus struct {
	Running int                   `json:"running"` // snapshots and outliers with actions that run
	Waiting int                   `json:"waiting"` // those whose actions wait
	Rules   []ActionCounts        `json:"rules"`   // with the rule "manual" for snapshots that no rule asked for
	Last    []events.ActionResult `json:"last"`    // the latest, oldest first
}

// ActionCounts counts the actions for the outliers of a rule since the daemon started,
// by result.
type ActionCounts struct {
	Rule      string `json:"rule"`
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`     // but those of the next two
	TimedOut  uint64 `json:"timed_out"`  // killed at their time limit
	OverLimit uint64 `json:"over_limit"` // killed for CPU time or memory
	Skipped   uint64 `json:"skipped"`    // too many were waiting
	Limited   uint64 `json:"limited"`    // not run: their every is not over
	Unmatched uint64 `json:"unmatched"`  // not run: their if does not hold
	NotRun    uint64 `json:"not_run"`    // not run: one before them failed
}

// PinStatus is what of the kernel side outlives the daemon if that dies, and what was
// taken over from the daemon before.
type PinStatus struct {
	Where     string `json:"where,omitempty"`  // directory, or systemd; empty: nothing is pinned, see Error
	Error     string `json:"error,omitempty"`  // why nothing is pinned, although it should be
	TakenOver bool   `json:"taken_over"`       // the kernel side was taken over
	From      string `json:"from,omitempty"`   // version of the daemon before
	Reason    string `json:"reason,omitempty"` // why its kernel side was not taken over; empty: it was, or there was none
	GapNS     int64  `json:"gap_ns,omitempty"` // for which nobody read outliers; up to a second too long
	Unread    uint64 `json:"unread,omitempty"` // outliers that it had not read, and that were read since
	Lost      uint64 `json:"lost,omitempty"`   // outliers that found the ring buffer full in the gap

	// Programs is why programs of this daemon have taken the places of those that were taken
	// over, and Begun the maps that began with nothing, as they have other sizes now.
	Programs string   `json:"programs,omitempty"`
	Begun    []string `json:"begun,omitempty"`
}

// OTLPStatus is what an OpenTelemetry collector was sent.
type OTLPStatus struct {
	Endpoint string         `json:"endpoint"`
	Protocol string         `json:"protocol"`
	Waiting  int            `json:"waiting"` // outliers that are not sent yet
	Requests []OTLPRequests `json:"requests"`
	// SpoolBytes is what those that wait on disk take, and SpoolError why they do not.
	SpoolBytes int64  `json:"spool_bytes"`
	SpoolError string `json:"spool_error,omitempty"`
}

// OTLPRequests counts requests with one result.
type OTLPRequests struct {
	Signal string `json:"signal"` // logs, metrics
	Result string `json:"result"` // succeeded, failed (and repeated, if of logs), refused
	Count  uint64 `json:"count"`
}

// UploadStatus is what became of the snapshots that are sent to another place.
type UploadStatus struct {
	Target       string     `json:"target"`
	State        string     `json:"state"`           // idle, sending, waiting (for the next attempt), failed, hangs
	Error        string     `json:"error,omitempty"` // of the last attempt; empty: it succeeded
	Next         *time.Time `json:"next,omitempty"`  // attempt
	Last         *time.Time `json:"last,omitempty"`  // success
	Waiting      int        `json:"waiting"`         // snapshots
	WaitingBytes int64      `json:"waiting_bytes"`   // of the spool
	Sent         uint64     `json:"sent"`            // snapshots, with those of Existed
	Existed      uint64     `json:"existed"`         // the target had them already
	SentBytes    uint64     `json:"sent_bytes"`
	Failed       uint64     `json:"failed"` // attempts; each is repeated
}

// RuleInfo is a rule with its counts since the daemon started.
type RuleInfo struct {
	Name           string `json:"name"`
	Track          string `json:"track"`
	ThresholdNS    int64  `json:"threshold_ns"`         // now; 0: none, see Adaptive
	TimeoutNS      int64  `json:"timeout_ns,omitempty"` // 0: none
	Stuck          *int   `json:"stuck,omitempty"`      // pending work past a timeout now; absent: no timeout, or unknown
	Source         string `json:"source,omitempty"`     // file:line
	Inactive       string `json:"inactive,omitempty"`   // why the rule cannot work on this kernel
	Attaching      string `json:"attaching,omitempty"`  // how far a syscall rule is from working; empty: it works
	Seen           uint64 `json:"seen"`                 // pairs completed by its tracker
	Outliers       uint64 `json:"outliers"`
	WorstNS        int64  `json:"worst_ns"`
	Suppressed     uint64 `json:"suppressed"` // snapshots refused by the limiter
	Lost           uint64 `json:"lost"`       // outliers that did not reach the daemon
	ActionsSkipped uint64 `json:"actions_skipped"`

	Adaptive     *AdaptiveInfo  `json:"adaptive,omitempty"`       // how the threshold follows the load
	Overrides    []OverrideInfo `json:"overrides,omitempty"`      // whose thresholds do
	HeldBack     uint64         `json:"held_back,omitempty"`      // delays past an adaptive threshold, too many to fire
	Set          int            `json:"set,omitempty"`            // thresholds set while it runs: see ThresholdInfo
	Paused       bool           `json:"paused,omitempty"`         // fires nothing
	PausedLeftNS int64          `json:"paused_left_ns,omitempty"` // 0: until it is resumed
	Storm        *StormInfo     `json:"storm,omitempty"`          // it is paused automatically
	Shed         bool           `json:"shed,omitempty"`           // it is paused to stay within the budget
	Limited      uint64         `json:"limited,omitempty"`        // outliers that the rate limit refused
	RatchetNS    *int64         `json:"ratchet_ns,omitempty"`     // only what is worse fires; null: no ratchet

	Samples uint64 `json:"samples,omitempty"` // in the rule's histogram
	P999NS  int64  `json:"p999_ns,omitempty"` // of it
}

// StormInfo describes a rule that is paused automatically because it fires far too often.
type StormInfo struct {
	Until      time.Time `json:"until"`
	LeftNS     int64     `json:"left_ns"`
	PerSecond  uint64    `json:"per_second"`            // outliers that it wanted
	Pauses     int       `json:"pauses"`                // in a row, each longer than the one before
	ConsiderNS int64     `json:"consider_ns,omitempty"` // a threshold that would fire about once a minute; 0: not known
}

// Loss counts what was lost for one cause.
type Loss struct {
	Cause   string `json:"cause"`
	Rule    string `json:"rule,omitempty"`
	Tracker string `json:"tracker,omitempty"`
	Count   uint64 `json:"count"`
	Advice  string `json:"advice"` // how to avoid it
}

// PanicInfo counts the panics of one part of the daemon; each dropped the data that
// caused it.
type PanicInfo struct {
	Place string `json:"place"` // what was being done: naming, decode, request …
	Count uint64 `json:"count"`
}

// TableStatus is the state of a pending table.
type TableStatus struct {
	Name  string `json:"name"` // tasks, syscalls, block
	Slots int    `json:"places"`
	Max   int    `json:"max"` // it may grow to
	Used  int    `json:"used"`
	Grown int    `json:"grown"`           // times
	Error string `json:"error,omitempty"` // why it could not grow
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
	Pinned int     `json:"pinned"`           // of Count
	// Removed counts the snapshots that retention removed since the daemon started, by
	// the limit that they exceeded: age, count or bytes.
	Removed map[string]uint64 `json:"removed,omitempty"`
	Keep    *KeepInfo         `json:"keep,omitempty"`  // nil: an earlier daemon
	Boost   *BoostStatus      `json:"boost,omitempty"` // nil: snapshots.boost is off, or rt_priority is set
}

// BoostStatus is how far the daemon raises its priority while it writes snapshots on an
// overloaded machine, and how often it did since it started.
type BoostStatus struct {
	Priority  string `json:"priority,omitempty"` // sched_rr, or nice if SCHED_RR is not permitted; empty: see Error
	Error     string `json:"error,omitempty"`    // why it never is
	Raised    bool   `json:"raised"`             // now
	Completed uint64 `json:"completed"`          // until the snapshots were complete
	Expired   uint64 `json:"expired"`            // and given back earlier, at snapshots.boost
	Refused   uint64 `json:"refused"`            // not raised: it had been for a quarter of a CPU's time
	CPUNS     int64  `json:"cpu_ns"`             // CPU time that it took so
}

// KeepInfo is the daemon's snapshots.keep.
type KeepInfo struct {
	Count int    `json:"count"`
	Bytes uint64 `json:"bytes"`
	AgeNS int64  `json:"age_ns"`
	Worst int    `json:"worst"`
}

// DirID identifies a directory by device and inode, so that two processes in
// different containers can tell whether a path is the same directory. "": none.
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
	Pinned  bool      `json:"pinned"`
	Kept    string    `json:"kept,omitempty"` // why: pinned, worst, newest, culprit, recent
}

// failure is the body of an error reply.
type failure struct {
	Error string `json:"error"`
}

// Verdict tells that the snapshot of an outlier is complete, and with it the explanation of
// the outlier, which was published before. If a snapshot could not be explained, Verdict is
// empty. With the rule "manual", no rule asked for the snapshot: ID is empty, and so is Task,
// unless the time of a thread was to be explained.
type Verdict struct {
	ID        string      `json:"id,omitempty"` // of the outlier
	Time      time.Time   `json:"time"`         // of the outlier
	Rule      string      `json:"rule"`
	Task      events.Task `json:"task"`
	StartMono uint64      `json:"start_mono_ns"`
	Snapshot  *string     `json:"snapshot"`
	Dir       string      `json:"dir"` // of the snapshot, which is complete
	events.Explained
	Cursor string `json:"cursor,omitempty"` // see Outlier.Cursor
}

// verdictNotice is the line of an event stream for a verdict.
type verdictNotice struct {
	Verdict *Verdict `json:"verdict"`
}

// lostNotice is the line of an event stream for a loss.
type lostNotice struct {
	Lost         uint64 `json:"lost"`
	LostVerdicts uint64 `json:"lost_verdicts,omitempty"`
	Restarted    bool   `json:"restarted,omitempty"`
}

// cursorNotice is the line of an event stream for the place where it begins.
type cursorNotice struct {
	Cursor string `json:"cursor"`
}

// manualRule takes the place of the rule for snapshots that no rule asked for.
const manualRule = "manual"
