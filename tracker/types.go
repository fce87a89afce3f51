package tracker

import (
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/call"
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
	// Adaptive is one threshold that follows the load.
	Adaptive = install.Adaptive
	// CPUCounters are one CPU's recorder counters since New.
	CPUCounters = kernel.CPUCounters
	// CallStatus is how far attaching to functions of system calls has come.
	CallStatus = call.Status
	// ClassHistogram is one part of a rule's histogram.
	ClassHistogram = stats.ClassHistogram
	// Counters are what the kernel side has counted; each number is read once.
	Counters = stats.Counters
	// Event is one kind of record of the recorder, and where it comes from.
	Event = kernel.Event
	// InactiveCalls says why a syscall rule is not attached.
	InactiveCalls = kernel.InactiveCalls
	// Histograms are the distributions of all delays since New.
	Histograms = install.Histograms
	// PairCounters are what a declared pair has counted.
	PairCounters = abi.PairState
	// Pressure is what the rate limit has done to a rule since New.
	Pressure = install.Pressure
	// Takeover is how the kernel side came about.
	Takeover = kernel.Takeover
	// Probe is one hook of the kernel and whether this kernel has it.
	Probe = kernel.Probe
	// ProgramStats is what the kernel has counted of one attached program.
	ProgramStats = kernel.ProgramStats
	// Programs finds places in programs and libraries.
	Programs = pair.Programs
	// Reading is how far reading outliers has come.
	Reading = reader.Reading
	// Shedding is what the kernel side does without for now.
	Shedding = kernel.Shedding
	// Ring is the state of one CPU's ring of plain memory.
	Ring = kernel.Ring
	// Name is what a thread is, or was, called.
	Name = kernel.Name
	// RuleCounters are what a rule has done since New.
	RuleCounters = stats.RuleCounters
	// Tuning is a new threshold of a running rule.
	Tuning = install.Tuning
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

// KeptRing is the size of the rings that could be taken over.
var KeptRing = kernel.KeptRing

// PresentCPUs is how many CPUs have a ring of plain memory.
var PresentCPUs = kernel.PresentCPUs
