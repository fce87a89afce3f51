package tracefs

import (
	"fmt"
	"strconv"
	"strings"
)

// Field is one field of a tracepoint's record.
type Field struct {
	Name    string
	Type    string // as the kernel writes it, without the name: "char[16]", "__data_loc char[]"
	Offset  uint32
	Size    uint32
	Signed  bool
	DataLoc bool // the record holds where the text stands, not the text
	Array   bool
}

// ParseFormat reads a format file. Fields that all tracepoints have in common
// are left out. Any text will do.
func ParseFormat(text string) ([]Field, error) {
	var fields []Field
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "field:")
		if !ok {
			continue
		}
		f, err := parseField(rest)
		if err != nil {
			return nil, fmt.Errorf("format of a tracepoint: %w", err)
		}
		if !strings.HasPrefix(f.Name, "common_") {
			fields = append(fields, f)
		}
	}
	return fields, nil
}

// parseField reads `unsigned short common_type;	offset:0;	size:2;	signed:0;`.
func parseField(line string) (Field, error) {
	var f Field
	parts := strings.Split(line, ";")
	if len(parts) < 4 {
		return f, fmt.Errorf("field %q has no offset, size and sign", line)
	}
	declaration := strings.TrimSpace(parts[0])
	array := ""
	if i := strings.LastIndexByte(declaration, '['); i >= 0 && strings.HasSuffix(declaration, "]") {
		declaration, array = declaration[:i], declaration[i:]
	}
	i := strings.LastIndexAny(declaration, " *\t")
	if i < 0 {
		return f, fmt.Errorf("field %q has no type", declaration)
	}
	f.Name = declaration[i+1:]
	f.Type = strings.TrimSpace(declaration[:i+1]) + array
	if f.DataLoc = strings.HasPrefix(f.Type, "__data_loc"); !f.DataLoc {
		f.Array = array != "" || strings.HasSuffix(f.Type, "[]")
	}
	for _, p := range parts[1:] {
		key, value, ok := strings.Cut(strings.TrimSpace(p), ":")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return f, fmt.Errorf("field %s: %s is %q", f.Name, key, value)
		}
		switch key {
		case "offset":
			f.Offset = uint32(n)
		case "size":
			f.Size = uint32(n)
		case "signed":
			f.Signed = n != 0
		}
	}
	return f, nil
}
