package symbols

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/tailcam/tailcam/internal/linux"
)

// ErrHidden says that the kernel gives no symbol addresses to this process.
var ErrHidden = errors.New("kernel symbol addresses are hidden: run as root or with CAP_SYSLOG, " +
	"and set sysctl kernel.kptr_restrict to 0 or 1")

const (
	maxKernelSymbols = 4 << 20
	maxKernelNames   = 512 << 20
	// A kernel address further than this from any symbol has no name.
	maxKernelFunction = 1 << 20
	// In a module, an address further than this from its symbol may belong to
	// something that was loaded later: the table is read again, if it is old.
	sureModuleOffset = 4 << 10
)

// kernelSymbol is one entry of the sorted table. Entries that are not code
// have no name: they end the function before them.
type kernelSymbol struct {
	addr   uint64
	name   uint32 // offset in names; 0: not code
	module uint16 // index in modules; 0: the kernel itself
}

// kernelSymbols is immutable once parsed.
type kernelSymbols struct {
	symbols []kernelSymbol
	names   []byte // each ended by a zero byte
	modules []string
	text    uint64 // address of _stext, 0 if there is none
}

// kernelTable reads kallsyms when it is first needed, and again when an
// address is not known. Lookups never wait for a second reading by others.
type kernelTable struct {
	path     string
	interval time.Duration
	table    atomic.Pointer[kernelSymbols]

	mu   sync.Mutex // held while reading
	last time.Time  // of the last reading
	err  error      // of the last reading

	// Addresses that a reading for their sake did not find, such as those of trampolines of BPF.
	// A reading takes some 75 ms, for which a snapshot waits: it is not repeated for them until
	// vainIntervals have gone by.
	vain *xsync.MapOf[uint64, time.Time]
}

const (
	vainIntervals = 20
	maxVain       = 4096
)

func newKernelTable(path string, interval time.Duration) *kernelTable {
	return &kernelTable{path: path, interval: interval, vain: xsync.NewMapOf[uint64, time.Time]()}
}

func (k *kernelTable) frames(addrs []uint64) ([]string, *kernelSymbols, error) {
	out := unknowns(addrs)
	at := lookups(addrs)
	table, err := k.current()
	if err != nil || len(addrs) == 0 {
		return out, table, err
	}
	for _, a := range at {
		if !table.conclusive(a) && !k.inVain(a) {
			table = k.refreshed(table, at)
			break
		}
	}
	table.describe(out, addrs, at)
	return out, table, nil
}

// current returns the table, reading it if that was never done.
func (k *kernelTable) current() (*kernelSymbols, error) {
	if t := k.table.Load(); t != nil {
		return t, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.table.Load(); t != nil {
		return t, nil
	}
	if k.err != nil && time.Since(k.last) < k.interval {
		return nil, k.err
	}
	if err := k.readLocked(); err != nil {
		return nil, err
	}
	return k.table.Load(), nil
}

// inVain reports whether the table has been read for an address lately, which was not in it.
func (k *kernelTable) inVain(addr uint64) bool {
	at, ok := k.vain.Load(addr)
	return ok && time.Since(at) < vainIntervals*k.interval
}

// refreshed returns a table that is at most one interval old, or old while
// somebody else reads. It notes which addresses are not in it.
func (k *kernelTable) refreshed(old *kernelSymbols, at []uint64) *kernelSymbols {
	if !k.mu.TryLock() {
		return old
	}
	defer k.mu.Unlock()
	if time.Since(k.last) < k.interval {
		return k.table.Load()
	}
	if k.readLocked() != nil {
		return k.table.Load() // the old one
	}
	table := k.table.Load()
	if k.vain.Size() > maxVain {
		k.vain.Clear()
	}
	for _, a := range at {
		if !table.conclusive(a) {
			k.vain.Store(a, k.last)
		}
	}
	return table
}

func (k *kernelTable) reload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readLocked()
}

func (k *kernelTable) readLocked() error {
	k.last = time.Now()
	t, err := readKallsyms(k.path)
	if k.err = err; err == nil {
		k.table.Store(t)
	}
	return err
}

func readKallsyms(path string) (*kernelSymbols, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols (needs CONFIG_KALLSYMS and procfs): %w", err)
	}
	defer f.Close()
	t, err := parseKallsyms(f)
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols from %s: %w", path, err)
	}
	return t, nil
}

// parseKallsyms reads lines of "address type name [module]".
func parseKallsyms(r io.Reader) (*kernelSymbols, error) {
	t := &kernelSymbols{names: []byte{0}, modules: []string{""}}
	modules := map[string]uint16{"": 0}
	hidden := true
	err := linux.ReadSymbols(r, func(sym *linux.Symbol) error {
		if sym.Addr == 0 {
			return nil
		}
		hidden = false
		if t.text == 0 && len(sym.Module) == 0 && string(sym.Name) == textSymbol {
			t.text = sym.Addr
		}
		s := kernelSymbol{addr: sym.Addr}
		if isKernelCode(sym.Kind) {
			if len(t.names)+len(sym.Name) >= maxKernelNames {
				return fmt.Errorf("more than %d bytes of names", maxKernelNames)
			}
			index, known := modules[string(sym.Module)]
			if !known && len(t.modules) < 1<<16 {
				index = uint16(len(t.modules))
				modules[string(sym.Module)] = index
				t.modules = append(t.modules, clean(string(sym.Module)))
			}
			s.name, s.module = uint32(len(t.names)), index
			t.names = append(append(t.names, sym.Name...), 0)
		}
		if len(t.symbols) == maxKernelSymbols {
			return fmt.Errorf("more than %d symbols", maxKernelSymbols)
		}
		t.symbols = append(t.symbols, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if hidden {
		return nil, ErrHidden
	}
	t.compact()
	return t, nil
}

func isKernelCode(kind byte) bool {
	return kind == 't' || kind == 'T' || kind == 'w' || kind == 'W'
}

// compact sorts by address, and keeps one symbol an address (the first code of
// the file, as the kernel itself does) and one of a run that is not code.
func (t *kernelSymbols) compact() {
	slices.SortStableFunc(t.symbols, func(a, b kernelSymbol) int { return cmp.Compare(a.addr, b.addr) })
	kept := t.symbols[:0]
	for _, s := range t.symbols {
		if n := len(kept); n > 0 {
			last := &kept[n-1]
			if last.addr == s.addr {
				if last.name == 0 {
					*last = s
				}
				continue
			}
			if last.name == 0 && s.name == 0 {
				continue
			}
		}
		kept = append(kept, s)
	}
	t.symbols = slices.Clone(kept)
	t.names = slices.Clone(t.names)
}

// find returns the code symbol at or before addr.
func (t *kernelSymbols) find(addr uint64) (kernelSymbol, bool) {
	i, exact := slices.BinarySearchFunc(t.symbols, addr, func(s kernelSymbol, a uint64) int { return cmp.Compare(s.addr, a) })
	if !exact {
		i--
	}
	if i < 0 {
		return kernelSymbol{}, false
	}
	s := t.symbols[i]
	return s, s.name != 0 && addr-s.addr < maxKernelFunction
}

// conclusive tells whether a newer table could not know addr better.
func (t *kernelSymbols) conclusive(addr uint64) bool {
	s, ok := t.find(addr)
	return ok && (s.module == 0 || addr-s.addr < sureModuleOffset)
}

// describe writes a frame for each address that has a name.
func (t *kernelSymbols) describe(out []string, addrs, at []uint64) {
	for i, a := range at {
		s, ok := t.find(a)
		if !ok {
			continue
		}
		name := t.names[s.name:]
		name = name[:bytes.IndexByte(name, 0)]
		out[i] = fmt.Sprintf("%s+0x%x", clean(string(name)), addrs[i]-s.addr)
		if s.module != 0 {
			out[i] += " [" + t.modules[s.module] + "]"
		}
	}
}
