package tracker

import (
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/install"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/pair"
	"github.com/tailcam/tailcam/tracker/reader"
	"github.com/tailcam/tailcam/tracker/stats"
)

// What the methods of Tracker take and return, but outliers: see package events.

type (
	Adaptive       = install.Adaptive
	CPUCounters    = kernel.CPUCounters
	ClassHistogram = stats.ClassHistogram
	Counters       = stats.Counters
	Event          = kernel.Event
	Histograms     = install.Histograms
	PairCounters   = abi.PairState
	Pressure       = install.Pressure
	Probe          = kernel.Probe
	ProgramStats   = kernel.ProgramStats
	Programs       = pair.Programs
	Ring           = kernel.Ring
	RuleCounters   = stats.RuleCounters
	Tuning         = install.Tuning
)

// OwnThreshold is, in place of an override's number, the rule's own threshold.
const OwnThreshold = install.OwnThreshold

// RingParts is how many parts a ring of plain memory has.
const RingParts = abi.RingParts

// Errors of Retune and Read.
var (
	ErrStale  = install.ErrStale
	ErrSample = reader.ErrSample
)

// Groups are the names that recorder.events may hold.
var Groups = kinds.Groups

// Probes asks the running kernel for every hook, and for which kinds of hooks
// rules may declare. It needs no privileges.
func Probes() ([]Probe, error) {
	probes, err := kernel.Probes()
	if err != nil {
		return nil, err
	}
	return append(probes, pair.Probes()...), nil
}

// Events asks the running kernel for every kind of event of the recorder.
func Events() ([]Event, error) { return kernel.Events() }

// OverrideClass names an override by its conditions.
var OverrideClass = compile.OverrideClass

// PresentCPUs is how many CPUs have a ring of plain memory.
var PresentCPUs = kernel.PresentCPUs
