package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxMetadata bounds the metadata file: every system call declared, with room.
const maxMetadata = 4 << 20

// meta is what a Reader takes from the metadata text.
type meta struct {
	uuid   [16]byte
	env    Env
	layout int
	offset time.Duration
	bytes  uint64 // of all streams, if they are compressed; 0: they are not
	events map[uint32]*decl
}

// decl is one event as the metadata declares it.
type decl struct {
	typ    Type // 0: an event of a later release
	call   string
	nr     uint32 // of a named system call
	fields []field
}

// parseMetadata reads what metadata wrote; it is no general TSDL parser.
func parseMetadata(text []byte) (*meta, error) {
	m := &meta{events: make(map[uint32]*decl)}
	hasUUID := false
	var fields []string
	var events []eventText
	var block string
	values := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<10)
	for lines.Scan() {
		line := lines.Text()
		if block == "event" && strings.HasPrefix(line, "\t\t") {
			fields = append(fields, strings.TrimSuffix(line[2:], ";"))
			if len(fields) > maxFields || len(events) > maxEvents {
				return nil, errors.New("too many events or fields")
			}
			continue
		}
		if key, value, ok := strings.Cut(line, " = "); ok && block != "" && len(key) > 1 && key[0] == '\t' && key[1] != '\t' {
			if len(values) < 64 {
				values[key[1:]] = strings.TrimSuffix(value, ";")
			}
			continue
		}
		if line != "};" {
			if name, ok := strings.CutSuffix(line, " {"); ok && line[0] != '\t' {
				block = name
				fields = nil
				clear(values)
			}
			continue
		}
		text := func(key string) string { s, _ := unquote(values[key]); return s }
		switch block {
		case "trace":
			m.uuid, hasUUID = parseUUID(text("uuid"))
		case "env":
			m.layout, _ = strconv.Atoi(values[envLayout])
			m.bytes, _ = strconv.ParseUint(values[envBytes], 10, 63)
			m.env = Env{
				Hostname: text("hostname"), KernelRelease: text("kernel_release"), KernelVersion: text("kernel_version"),
				Machine: text("machine"), BootID: text("boot_id"), Version: text(envVersion), Name: text("trace_name"),
			}
			m.env.Created, _ = time.Parse("20060102T150405-0700", text("trace_creation_datetime"))
		case "clock":
			s, _ := strconv.ParseInt(values["offset_s"], 10, 32)
			ns, _ := strconv.ParseInt(values["offset"], 10, 64)
			m.offset = time.Duration(s)*time.Second + time.Duration(ns)
		case "event":
			id, err := strconv.ParseUint(values["id"], 10, 16)
			if err == nil {
				events = append(events, eventText{uint32(id), text("name"), fields})
			}
		}
		block = ""
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case m.layout == 0:
		return nil, errors.New("not a trace of tailcam (no " + envLayout + "); babeltrace2 may read it")
	case m.layout < 0 || m.layout > layoutCompressed:
		return nil, fmt.Errorf("layout %d is of a later release of tailcam, this one reads up to %d", m.layout, layoutCompressed)
	case (m.layout == layoutCompressed) != (m.bytes > 0):
		return nil, fmt.Errorf("layout %d, and %s is %d", m.layout, envBytes, m.bytes)
	case m.bytes > maxTrace:
		return nil, fmt.Errorf("compressed streams of %d bytes; at most %d are read", m.bytes, uint64(maxTrace))
	case !hasUUID:
		return nil, errors.New("no trace uuid")
	}
	types := make(map[string]Type)
	for t := range classes {
		if c := classOf(Type(t)); c != nil {
			types[c.name] = Type(t)
		}
	}
	for t, name := range memcgClasses {
		types[name] = t
	}
	for _, e := range events {
		d, err := m.declare(&e, types)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", e.id, err)
		}
		m.events[e.id] = d
	}
	return m, nil
}

// Bounds of what the metadata may declare.
const (
	maxFields = 64 // of an event
	maxEvents = 2*namedSyscalls + firstSyscallID
)

// eventText is an event's declaration, not understood yet.
type eventText struct {
	id     uint32
	name   string
	fields []string
}

// declare finds out what an event is, and which of its fields are known here.
func (m *meta) declare(e *eventText, types map[string]Type) (*decl, error) {
	if !identifier(e.name) {
		return nil, errors.New("impossible name")
	}
	d := &decl{typ: types[e.name]}
	var known []field
	name, narrow := strings.CutPrefix(e.name, narrowPrefix)
	entry, isEntry := strings.CutPrefix(name, "syscall_entry_")
	exit, isExit := strings.CutPrefix(name, "syscall_exit_")
	switch {
	case d.typ != 0:
		known = classOf(d.typ).fields
	case (isEntry || isExit) && e.id >= firstSyscallID:
		d.typ, d.call, d.nr = SyscallEntry, entry, (e.id-firstSyscallID)/2
		if isExit {
			d.typ, d.call = SyscallExit, exit
		}
		if m.layout > 1 && !narrow {
			d.call = fromLTTng(d.call)
		}
		if known = callFields(d.typ, d.call); narrow {
			known = callFields(d.typ, "")
		}
	}
	if m.layout == 1 && (d.typ == SyscallEntry || d.typ == SyscallExit) {
		known = callFields1(d.typ)
	}
	for _, text := range e.fields {
		f, err := declaredField(text, known)
		if err != nil {
			return nil, err
		}
		d.fields = append(d.fields, f)
	}
	return d, nil
}

// declaredField finds a declared field among the known ones. Others, and those
// of another type, are skipped.
func declaredField(text string, known []field) (field, error) {
	for _, f := range known {
		if strings.Contains(text, " _"+f.name) && text == fieldDecl(&f) {
			return f, nil
		}
	}
	typ, name, ok := cutLast(text, "} ")
	var count uint64 = 1
	if _, length, isArray := strings.Cut(name, "["); isArray {
		var err error
		count, err = strconv.ParseUint(strings.TrimSuffix(length, "]"), 10, 8)
		ok = ok && err == nil
	}
	var size, align uint64
	_, err := fmt.Sscanf(typ, "integer { size = %d; align = %d;", &size, &align)
	switch {
	case !ok:
	case strings.HasPrefix(typ, "string {") && !strings.Contains(name, "["):
		return field{kind: kSkipText}, nil
	case err == nil && align == 8 && size%8 == 0 && size > 0 && size <= 64 && count > 0:
		return field{kind: kSkip, off: int(size / 8 * count)}, nil
	}
	return field{}, fmt.Errorf("a field of a type that this tailcam cannot read: %.80q", text)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", "", false
}
