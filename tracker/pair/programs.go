package pair

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// Programs finds places in programs and libraries, by absolute path. The files
// may be anybody's, and may lie where nobody answers: its methods must return
// after a few seconds whatever they are. Errors are for people and name the file.
type Programs interface {
	// Function returns where in the file a function begins, and its size in bytes.
	Function(path, name string) (offset, size uint64, err error)
	// Static returns every place of a usdt probe, at most usdt.MaxPlaces.
	Static(path, provider, name string) ([]usdt.Place, error)
	// Answers tells why a file, which was found before, cannot be read now.
	Answers(path string) error
}

// OwnPrograms implements Programs. It reads files in this process, as long as that takes: for tests,
// and for whoever trusts all files that the rules name.
type OwnPrograms struct{}

// Static implements Programs.
func (OwnPrograms) Static(path, provider, name string) ([]usdt.Place, error) {
	return usdt.Read(path, provider, name)
}

// Answers implements Programs.
func (OwnPrograms) Answers(string) error { return nil }

// Function implements Programs.
func (OwnPrograms) Function(path, name string) (offset, size uint64, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read from
	var functions []string
	var found *elf.Symbol
	for _, read := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		symbols, err := read()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return 0, 0, fmt.Errorf("read the symbols of %s: %w", path, err)
		}
		for i := range symbols {
			if elf.ST_TYPE(symbols[i].Info) != elf.STT_FUNC || symbols[i].Value == 0 {
				continue
			}
			if symbols[i].Name == name {
				found = &symbols[i]
			}
			functions = append(functions, symbols[i].Name)
		}
	}
	switch {
	case found != nil:
	case len(functions) == 0:
		return 0, 0, fmt.Errorf("%s has no symbols of functions: it is stripped", path)
	default:
		return 0, 0, fmt.Errorf("%s: %s", path, rules.Unknown("function", name, functions))
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && found.Value >= p.Vaddr && found.Value-p.Vaddr < p.Filesz {
			return found.Value - p.Vaddr + p.Off, found.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("%s: function %s is not in its code", path, name)
}
