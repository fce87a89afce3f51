package snapshot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/tracker/events"
)

// Version is the schema version of snapshot.json. Added fields do not change it.
const Version = 1

// Files in a snapshot's directory.
const (
	MetaFile        = "snapshot.json"
	TraceDir        = "trace"
	ExplainTextFile = "explain.txt"
	ExplainJSONFile = "explain.json"
	FoldedFile      = "stacks.folded"
)

// maxMeta bounds the size of snapshot.json, in bytes.
const maxMeta = 64 << 20

// Meta is snapshot.json.
type Meta struct {
	Version int `json:"version"`
	// Notes are caveats in plain text: history that does not reach the entry, gaps,
	// losses, errors.
	Notes []string `json:"notes"`
	// ShortHistory means that an outlier began before the recorded history; the first
	// note names it.
	ShortHistory bool             `json:"short_history,omitempty"`
	ID           string           `json:"id"`
	Time         time.Time        `json:"time"` // of the first outlier, UTC
	Rule         string           `json:"rule"` // of the first outlier, or "manual"
	Reason       string           `json:"reason"`
	Host         HostInfo         `json:"host"`
	Window       Window           `json:"window"`
	Outliers     []events.Outlier `json:"outliers"`
	Rules        []RuleJSON       `json:"rules"` // as compiled, for all outliers
	Coverage     []CPUCoverage    `json:"coverage"`
	Records      uint64           `json:"records"` // in trace/, all CPUs
	Lost         uint64           `json:"lost"`    // refused by the rings meanwhile, all CPUs
	// SwitchUnseen counts switches that the kernel kept from tracers, all CPUs.
	SwitchUnseen uint64 `json:"switch_unseen"`
	// ProgramMissed counts events that are not recorded because the kernel skipped tailcam's program,
	// which another task was in on that CPU: those of the window at the most, all CPUs.
	ProgramMissed uint64 `json:"program_missed,omitempty"`
	// Shed lists what tailcam did without during the window, to stay within its budget.
	Shed []ShedPart `json:"shed,omitempty"`
	// Checksums names the checksum file; "" in snapshots of earlier releases, which
	// have none.
	Checksums string `json:"checksums,omitempty"`
}

// HostInfo describes the machine that took a snapshot.
type HostInfo struct {
	Name          string `json:"name"`
	Nodename      string `json:"nodename,omitempty"` // of the machine, or of the daemon's container, if that is another name
	Kernel        string `json:"kernel"`             // release
	KernelVersion string `json:"kernel_version"`
	Arch          string `json:"arch"`    // machine, as in uname
	BootID        string `json:"boot_id"` // traces of the same boot share their clock
	Tailcam       string `json:"tailcam"`
}

// Window is the requested time range.
type Window struct {
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	FromMonoNS    uint64    `json:"from_mono_ns"` // 0: everything recorded
	ToMonoNS      uint64    `json:"to_mono_ns"`
	WallMinusMono int64     `json:"wall_minus_mono_ns"`
}

// CPUCoverage describes the history of one CPU in a snapshot.
type CPUCoverage struct {
	CPU int `json:"cpu"`
	// From and To are the complete interval that contains the (first) outlier's exit, or the
	// first one after it. A quiet CPU is covered without having records.
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	FromMonoNS uint64    `json:"from_mono_ns"`
	ToMonoNS   uint64    `json:"to_mono_ns"`
	Records    uint64    `json:"records"`    // of this CPU in trace/
	CoveredNS  int64     `json:"covered_ns"` // sum of all complete intervals
	Lost       uint64    `json:"lost"`       // refused by the ring meanwhile
	Missing    uint64    `json:"missing"`    // overwritten, sum of all gaps
	// SwitchUnseen counts switches that the kernel kept from tracers, as far as events show them: one
	// is of another task than the one that the last switch began.
	SwitchUnseen uint64 `json:"switch_unseen"`
	// CompleteBefore: no records are missing between any outlier's entry and exit.
	CompleteBefore bool `json:"complete_before"`
	// CompleteAfter: no records are missing from the last exit to the end of the
	// window.
	CompleteAfter bool  `json:"complete_after"`
	Gaps          []Gap `json:"gaps,omitempty"`
}

// ShedPart is something that was shed: "group sched", "histograms", "user stacks" or
// "rule NAME".
type ShedPart struct {
	Part       string `json:"part"`
	FromMonoNS uint64 `json:"from_mono_ns"`
	ToMonoNS   uint64 `json:"to_mono_ns"` // at most the end of the window
}

// Gap is an interval in the window whose records were overwritten.
type Gap struct {
	FromMonoNS uint64 `json:"from_mono_ns"`
	ToMonoNS   uint64 `json:"to_mono_ns"`
	Missing    uint64 `json:"missing,omitempty"` // records
}

// ReadMeta reads snapshot.json from a snapshot's directory.
func ReadMeta(dir string) (*Meta, error) {
	path := filepath.Join(dir, MetaFile)
	data, err := ReadDocument(path, maxMeta)
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
		return nil, fmt.Errorf("read snapshot %s: schema version %d is newer than %d, the latest supported: use a newer tailcam",
			path, m.Version, Version)
	}
	return &m, nil
}

// fillFromKernel fills in empty fields.
func (h *HostInfo) fillFromKernel() {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		for _, f := range []struct {
			to   *string
			from []byte
		}{
			{&h.Nodename, u.Nodename[:]},
			{&h.Kernel, u.Release[:]},
			{&h.KernelVersion, u.Version[:]},
			{&h.Arch, u.Machine[:]},
		} {
			if *f.to == "" {
				*f.to = unix.ByteSliceToString(f.from)
			}
		}
		if h.Name = cmp.Or(h.Name, h.Nodename); h.Name == h.Nodename {
			h.Nodename = ""
		}
	}
	if h.BootID == "" {
		// If unreadable, the trace lacks the boot id.
		b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		h.BootID = strings.TrimSpace(string(b))
	}
}
