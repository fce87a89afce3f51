package pair

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/field"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// probed finds a function of a program or library.
func (s *sites) probed(h *rules.Hook) (site, error) {
	offset, size, err := s.programs.Function(h.Path, h.Name)
	if err != nil {
		return site{}, missing{err}
	}
	if h.Offset > 0 && h.Offset >= size {
		return site{}, missing{fmt.Errorf("%s: function %s has %d bytes", h.Path, h.Name, size)}
	}
	if err := plausible(h.Path, offset); err != nil {
		return site{}, missing{err}
	}
	returns := h.Kind == rules.URetProbe
	source, err := field.Call(h.Text, returns, !returns && h.Offset == 0)
	if err != nil {
		return site{}, missing{err}
	}
	at := link.UprobeOptions{Address: offset, Offset: h.Offset}
	return site{template: templateRegs, source: source, attach: s.at(h, returns, at), place: placeOf(&at), file: s.identity(h.Path)}, nil
}

// plausible refuses places that no file can have. cilium/ebpf takes 0 for none,
// and would parse the file itself.
func plausible(path string, offset uint64) error {
	if offset == 0 || offset > math.MaxInt64/2 {
		return fmt.Errorf("%s: no program has code at offset %#x", path, offset)
	}
	return nil
}

// at attaches to a place in a file. The kernel opens the file then, in this
// thread, so that it had better answer.
func (s *sites) at(h *rules.Hook, returns bool, at link.UprobeOptions) func(*ebpf.Program) (link.Link, error) {
	programs := s.programs
	return func(p *ebpf.Program) (link.Link, error) {
		if err := programs.Answers(h.Path); err != nil {
			return nil, err
		}
		ex, err := link.OpenExecutable(h.Path)
		if err != nil {
			return nil, err
		}
		attach := ex.Uprobe
		if returns {
			attach = ex.Uretprobe
		}
		l, err := attach(h.Name, p, &at)
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("%w (hooks in programs need CAP_SYS_ADMIN; under systemd install the drop-in programs.conf of configs/systemd)", err)
		}
		return l, err
	}
}

func placeOf(at *link.UprobeOptions) string {
	return fmt.Sprintf("%#x+%#x, semaphore %#x", at.Address, at.Offset, at.RefCtrOffset)
}

// identity tells apart files that have had one name: a hook stays with the one that it was
// attached to, whose inode is not used again meanwhile (uprobes hold it).
func (s *sites) identity(path string) func() (string, error) {
	programs := s.programs
	return func() (string, error) {
		if err := programs.Answers(path); err != nil {
			return "", err
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", fmt.Errorf("look at %s: %w", path, err)
		}
		return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
	}
}

// static finds all places of a usdt probe.
func (s *sites) static(h *rules.Hook) ([]site, error) {
	places, err := s.programs.Static(h.Path, h.Category, h.Name)
	if err != nil {
		return nil, missing{err}
	}
	slices.SortFunc(places, func(a, b usdt.Place) int { return int(int64(a.Offset) - int64(b.Offset)) })
	var list []site
	for _, place := range places {
		if err := plausible(h.Path, place.Offset); err != nil {
			return nil, missing{err}
		}
		args, err := usdt.ParseArgs(ownMachine(), place.Args)
		if err != nil {
			return nil, missing{fmt.Errorf("%s: probe %s:%s: %w", h.Path, h.Category, h.Name, err)}
		}
		at := link.UprobeOptions{Address: place.Offset, RefCtrOffset: place.Semaphore}
		list = append(list, site{
			template: templateRegs, source: field.Static(h.Text, args), attach: s.at(h, false, at), place: placeOf(&at), file: s.identity(h.Path),
		})
	}
	return list, nil
}

// ownMachine is what programs that can be probed here are made for.
func ownMachine() elf.Machine {
	if runtime.GOARCH == "arm64" {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}
