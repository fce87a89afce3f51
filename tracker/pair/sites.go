package pair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/field"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/tracefs"
)

// Templates of bpf/pair.bpf.c.
const (
	templateRaw     = "pair_raw"
	templateRecord  = "pair_record"
	templateRegs    = "pair_regs"
	templateTracing = "pair_tracing"
)

// site is a hook that was found on this machine.
type site struct {
	template   string
	source     *field.Source
	attachTo   string
	attachType ebpf.AttachType
	attach     func(*ebpf.Program) (link.Link, error)
	place      string                 // where it is, beside the text of the hook
	file       func() (string, error) // tells apart files of one name; nil: it is in none
}

// sites finds hooks.
type sites struct {
	types    *btf.Spec
	programs Programs
	trace    *tracefs.FS // opened when it is first needed
}

func newSites(types *btf.Spec, programs Programs) *sites {
	return &sites{types: types, programs: programs}
}

func (s *sites) close() {
	if s.trace != nil {
		_ = s.trace.Close() // only read from
	}
}

// missing says that a hook is not here: errMissing.
type missing struct{ err error }

func (m missing) Error() string   { return m.err.Error() }
func (m missing) Unwrap() []error { return []error{m.err, errMissing} }

// find finds a hook; errMissing if this kernel or machine does not have it.
func (s *sites) find(h *rules.Hook) ([]site, error) {
	find := s.function
	switch h.Kind {
	case rules.RawTracepoint:
		find = s.rawTracepoint
	case rules.Tracepoint:
		find = s.tracepoint
	case rules.UProbe, rules.URetProbe:
		find = s.probed
	case rules.USDT:
		return s.static(h)
	}
	one, err := find(h)
	if err != nil {
		return nil, err
	}
	return []site{one}, nil
}

func (s *sites) rawTracepoint(h *rules.Hook) (site, error) {
	source, err := field.RawTracepoint(s.types, h.Name)
	if err != nil {
		return site{}, missing{err}
	}
	return site{template: templateRaw, source: source, attach: func(p *ebpf.Program) (link.Link, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: h.Name, Program: p})
	}}, nil
}

func (s *sites) tracepoint(h *rules.Hook) (site, error) {
	if s.trace == nil {
		trace, err := tracefs.Open()
		if err != nil {
			return site{}, missing{err}
		}
		s.trace = trace
	}
	fields, err := s.trace.Format(h.Category, h.Name)
	if err != nil {
		return site{}, missing{err}
	}
	id, err := s.trace.ID(h.Category, h.Name)
	if err != nil {
		return site{}, missing{err}
	}
	return site{template: templateRecord, place: strconv.FormatUint(id, 10), source: field.Record(s.types, h.Text, fields), attach: func(p *ebpf.Program) (link.Link, error) {
		return attachEvent(p, id)
	}}, nil
}

// eventLink is a link to a perf event, which lives as long as it.
type eventLink struct {
	*link.RawLink
	fd int
}

// Close detaches.
func (l *eventLink) Close() error { return errors.Join(l.RawLink.Close(), unix.Close(l.fd)) }

// attachEvent attaches to the tracepoint with this id. Needs kernel 5.15+.
func attachEvent(p *ebpf.Program, id uint64) (link.Link, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample: 1, Sample_type: unix.PERF_SAMPLE_RAW, Wakeup: 1,
	}
	attr.Size = unix.PERF_ATTR_SIZE_VER1
	// The program runs on every CPU, whichever the event is opened on.
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open the perf event of the tracepoint: %w", err)
	}
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: p, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &eventLink{l, fd}, nil
}

// function finds a kernel function for fentry, fexit, kprobe or kretprobe. Of
// both ways to be called at it, the kernel may offer the other one only.
func (s *sites) function(h *rules.Hook) (site, error) {
	returns := h.Returns()
	types := field.FunctionTypes(s.types, h.Name)
	trace, tracing := types != nil && h.Offset == 0, kernel.CanTrace()
	probe := canProbe()
	wantTrace := h.Kind == rules.FEntry || h.Kind == rules.FExit
	switch {
	case wantTrace && trace && tracing == nil, trace && tracing == nil && probe != nil:
		source, err := field.Function(s.types, h.Text, h.Name, returns)
		if err != nil {
			return site{}, missing{err}
		}
		at := site{template: templateTracing, source: source, attachTo: h.Name, attachType: ebpf.AttachTraceFEntry}
		if returns {
			at.attachType = ebpf.AttachTraceFExit
		}
		at.attach = func(p *ebpf.Program) (link.Link, error) {
			return link.AttachTracing(link.TracingOptions{Program: p})
		}
		return at, nil
	case probe == nil:
		// Where the list cannot be read, the kernel itself will tell.
		if has, err := linux.HasSymbol(h.Name); err == nil && !has {
			return site{}, missing{fmt.Errorf("this kernel has no function %s that a probe can be set at", h.Name)}
		}
		source, err := field.Registers(s.types, h.Text, types, returns, !returns && h.Offset == 0)
		if err != nil {
			return site{}, missing{err}
		}
		return site{template: templateRegs, source: source, attach: func(p *ebpf.Program) (link.Link, error) {
			if returns {
				return link.Kretprobe(h.Name, p, nil)
			}
			return link.Kprobe(h.Name, p, &link.KprobeOptions{Offset: h.Offset})
		}}, nil
	case types == nil && wantTrace:
		return site{}, missing{fmt.Errorf("%w: %s", field.ErrNoFunction, h.Name)}
	default:
		return site{}, missing{fmt.Errorf("this kernel offers neither kprobes (%w) nor fentry (%w)", probe, tracing)}
	}
}

// canProbe tells why the kernel has no kprobes; nil: it has.
func canProbe() error {
	_, err := os.Stat("/sys/bus/event_source/devices/kprobe/type")
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("not built in")
	}
	return err
}
