package tracker

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/field"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// maxStatic is in how many places one usdt probe may be.
const maxStatic = 64

// probed finds a function of a program or library.
func probed(h *rules.Hook) (site, error) {
	if err := hasSymbol(h.Path, h.Name); err != nil {
		return site{}, missing{err}
	}
	returns := h.Kind == rules.URetProbe
	source, err := field.Call(h.Text, returns, !returns && h.Offset == 0)
	if err != nil {
		return site{}, missing{err}
	}
	return site{template: templateRegs, source: source, attach: func(p *ebpf.Program) (link.Link, error) {
		ex, err := link.OpenExecutable(h.Path)
		if err != nil {
			return nil, err
		}
		if returns {
			return ex.Uretprobe(h.Name, p, nil)
		}
		return ex.Uprobe(h.Name, p, &link.UprobeOptions{Offset: h.Offset})
	}}, nil
}

// hasSymbol tells why a program has no such function.
func hasSymbol(path, name string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read from
	var functions []string
	for _, read := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		symbols, err := read()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return fmt.Errorf("read the symbols of %s: %w", path, err)
		}
		for i := range symbols {
			if elf.ST_TYPE(symbols[i].Info) != elf.STT_FUNC || symbols[i].Value == 0 {
				continue
			}
			if symbols[i].Name == name {
				return nil
			}
			functions = append(functions, symbols[i].Name)
		}
	}
	if len(functions) == 0 {
		return fmt.Errorf("%s has no symbols of functions: it is stripped", path)
	}
	return fmt.Errorf("%s: %s", path, rules.Unknown("function", name, functions))
}

// static finds all places of a usdt probe.
func static(h *rules.Hook) ([]site, error) {
	probes, err := usdt.Read(h.Path, h.Category, h.Name)
	if err != nil {
		return nil, missing{err}
	}
	if len(probes) > maxStatic {
		return nil, missing{fmt.Errorf("%s is in %d places, but at most %d are probed", h.Text, len(probes), maxStatic)}
	}
	slices.SortFunc(probes, func(a, b usdt.Probe) int { return int(int64(a.Offset) - int64(b.Offset)) })
	var list []site
	for _, probe := range probes {
		list = append(list, site{template: templateRegs, source: field.Static(h.Text, probe.Args), attach: func(p *ebpf.Program) (link.Link, error) {
			ex, err := link.OpenExecutable(h.Path)
			if err != nil {
				return nil, err
			}
			return ex.Uprobe(h.Name, p, &link.UprobeOptions{Address: probe.Offset, RefCtrOffset: probe.Semaphore})
		}})
	}
	return list, nil
}
