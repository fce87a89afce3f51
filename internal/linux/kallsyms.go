package linux

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// Symbol is a line of /proc/kallsyms. Its bytes are valid until the next one.
type Symbol struct {
	Addr   uint64 // 0: hidden from this process
	Kind   byte   // as nm prints it
	Name   []byte
	Module []byte // empty: of the kernel itself
}

// ReadSymbols calls yield for each line of "address type name [module]", until
// it returns an error.
func ReadSymbols(r io.Reader, yield func(s *Symbol) error) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 64<<10), 64<<10)
	var s Symbol
	for line := 1; scan.Scan(); line++ {
		if !s.parse(scan.Bytes()) {
			return fmt.Errorf("line %d: unexpected form %.60q", line, scan.Bytes())
		}
		if err := yield(&s); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	return scan.Err()
}

func (s *Symbol) parse(line []byte) bool {
	hex, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return false
	}
	addr, err := strconv.ParseUint(string(hex), 16, 64)
	if err != nil {
		return false
	}
	s.Addr, s.Kind = addr, rest[0]
	s.Name, s.Module, _ = bytes.Cut(rest[2:], []byte{'\t'})
	s.Module = bytes.TrimSuffix(bytes.TrimPrefix(s.Module, []byte{'['}), []byte{']'})
	return len(s.Name) > 0 && bytes.IndexByte(s.Name, 0) < 0
}

// HasSymbol reports whether the running kernel or one of its modules lists a
// symbol. Addresses need not be readable. Variables are listed only with
// CONFIG_KALLSYMS_ALL.
func HasSymbol(name string) (bool, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return false, fmt.Errorf("look up a kernel symbol: %w", err)
	}
	defer f.Close()
	found := errors.New("found")
	err = ReadSymbols(f, func(s *Symbol) error {
		if string(s.Name) == name {
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}
