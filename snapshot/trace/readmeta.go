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

// meta is what a Reader takes from the metadata text. The layout of events is
// not read from it: layoutVersion stands for it.
type meta struct {
	uuid   [16]byte
	env    Env
	offset time.Duration
	events map[uint32]string // names of ids from firstSyscallID on
}

// parseMetadata reads what metadata wrote; it is no general TSDL parser.
func parseMetadata(text []byte) (*meta, error) {
	m := &meta{events: make(map[uint32]string)}
	layout, hasUUID := 0, false
	var block string
	values := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<10)
	for lines.Scan() {
		line := lines.Text()
		if key, value, ok := strings.Cut(line, " = "); ok && block != "" && len(key) > 1 && key[0] == '\t' && key[1] != '\t' {
			if len(values) < 64 {
				values[key[1:]] = strings.TrimSuffix(value, ";")
			}
			continue
		}
		if line != "};" {
			if name, ok := strings.CutSuffix(line, " {"); ok && line[0] != '\t' {
				block = name
				clear(values)
			}
			continue
		}
		text := func(key string) string { s, _ := unquote(values[key]); return s }
		switch block {
		case "trace":
			m.uuid, hasUUID = parseUUID(text("uuid"))
		case "env":
			layout, _ = strconv.Atoi(values[envLayout])
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
			if err == nil && id >= firstSyscallID {
				name := text("name")
				name = strings.TrimPrefix(strings.TrimPrefix(name, "syscall_entry_"), "syscall_exit_")
				if !identifier(name) {
					return nil, fmt.Errorf("event %d has an impossible name", id)
				}
				m.events[uint32(id)] = name
			}
		}
		block = ""
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case layout == 0:
		return nil, errors.New("not a trace of tailcam (no " + envLayout + "); babeltrace2 may read it")
	case layout != layoutVersion:
		return nil, fmt.Errorf("layout %d is of another release of tailcam, this one reads %d", layout, layoutVersion)
	case !hasUUID:
		return nil, errors.New("no trace uuid")
	}
	return m, nil
}
