package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// Version is the schema version of snapshot.json. Fields are only added to it;
// anything else raises the number.
const Version = 1

// Names of the files in a snapshot's directory.
const (
	MetaFile        = "snapshot.json"
	TraceDir        = "trace"
	ExplainTextFile = "explain.txt"
	ExplainJSONFile = "explain.json"
	FoldedFile      = "stacks.folded"
)

// maxMeta bounds what a reader takes in of one snapshot.json.
const maxMeta = 64 << 20

// Meta is snapshot.json.
type Meta struct {
	Version int `json:"version"`
	// Notes say in words what the reader must know before trusting the rest:
	// history that does not reach the entry, holes, losses, errors.
	Notes []string `json:"notes"`
	// ShortHistory: an outlier began before the history does; the first note says which.
	ShortHistory bool             `json:"short_history,omitempty"`
	ID           string           `json:"id"`
	Time         time.Time        `json:"time"` // of the first outlier, UTC
	Rule         string           `json:"rule"` // of the first outlier, or "manual"
	Reason       string           `json:"reason"`
	Host         Host             `json:"host"`
	Window       Window           `json:"window"`
	Outliers     []events.Outlier `json:"outliers"`
	Rules        []RuleJSON       `json:"rules"` // as compiled, of all outliers
	Coverage     []CPUCoverage    `json:"coverage"`
	Records      uint64           `json:"records"` // in trace/, all CPUs
	Lost         uint64           `json:"lost"`    // refused by the rings meanwhile, all CPUs
	// Checksums names the file that has those of all the others; "": there is none,
	// as in snapshots of earlier releases.
	Checksums string `json:"checksums,omitempty"`
}

// Host says where a snapshot was taken, and by what.
type Host struct {
	Name          string `json:"name"`
	Kernel        string `json:"kernel"` // release
	KernelVersion string `json:"kernel_version"`
	Arch          string `json:"arch"`    // as uname says
	BootID        string `json:"boot_id"` // traces of one boot share their clock
	Tailcam       string `json:"tailcam"`
}

// Window is the time that a snapshot asked for.
type Window struct {
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	FromMonoNS    uint64    `json:"from_mono_ns"` // 0: all that there was
	ToMonoNS      uint64    `json:"to_mono_ns"`
	WallMinusMono int64     `json:"wall_minus_mono_ns"`
}

// CPUCoverage is what a snapshot holds of one CPU.
type CPUCoverage struct {
	CPU int `json:"cpu"`
	// From and To bound the unbroken stretch that reaches the (first)
	// outlier's exit. A quiet CPU is covered although it has no records.
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	FromMonoNS uint64    `json:"from_mono_ns"`
	ToMonoNS   uint64    `json:"to_mono_ns"`
	Records    uint64    `json:"records"`    // of this CPU in trace/
	CoveredNS  int64     `json:"covered_ns"` // all stretches together
	Lost       uint64    `json:"lost"`       // refused by the ring meanwhile
	Missing    uint64    `json:"missing"`    // overwritten, in all gaps
	// CompleteBefore: nothing is missing between any outlier's entry and exit.
	CompleteBefore bool `json:"complete_before"`
	// CompleteAfter: nothing is missing from the last exit to the window's end.
	CompleteAfter bool  `json:"complete_after"`
	Gaps          []Gap `json:"gaps,omitempty"`
}

// Gap is a stretch inside the window of which the records were overwritten.
type Gap struct {
	FromMonoNS uint64 `json:"from_mono_ns"`
	ToMonoNS   uint64 `json:"to_mono_ns"`
	Missing    uint64 `json:"missing,omitempty"` // records
}

// ReadMeta reads the snapshot.json of a snapshot's directory.
func ReadMeta(dir string) (*Meta, error) {
	path := filepath.Join(dir, MetaFile)
	data, err := ReadFile(path, maxMeta)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	}
	switch {
	case m.Version == 0 || m.ID == "":
		return nil, fmt.Errorf("read snapshot %s: %w", path, errors.New("version or id is missing"))
	case m.Version > Version:
		return nil, fmt.Errorf("read snapshot %s: schema version %d is newer than this tailcam knows (%d): use a newer one",
			path, m.Version, Version)
	}
	return &m, nil
}
