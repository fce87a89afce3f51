package trace

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/bpf/abi"
)

// NameKind is what a name in a trace is of.
type NameKind uint8

// Kinds of names.
const (
	TaskName   NameKind = iota // of a task: at most 15 bytes are kept
	FileName                   // of an open file
	DeviceName                 // of a disk, network device, interrupt handler or work queue
	HostName                   // of the machine
	BootName                   // its boot id
)

// Renamer returns the name to write in the place of another.
type Renamer func(kind NameKind, name string) string

// rename appends the fields of an event with other names. Fields that this release does
// not know are cleared: nobody knows what they hold.
func (r Renamer) rename(out, body []byte, d *decl) []byte {
	for i := range d.fields {
		f := &d.fields[i]
		v, size, ok := f.take(body)
		if !ok {
			return append(out, body...) // not reached: the event was decoded
		}
		text := func(kind NameKind, most int) {
			name := cutNUL([]byte(r(kind, string(v))))
			out = append(append(out, name[:min(len(name), most)]...), 0)
		}
		switch f.kind {
		case kComm:
			c := MakeComm(r(TaskName, string(cutNUL(v))))
			out = append(out, c[:]...)
		case kCommText:
			text(TaskName, len(Comm{})-1)
		case kIRQName:
			text(DeviceName, abi.WorkNameLen-1)
		case kRecordName:
			text(DeviceName, abi.RecordNameLen-1)
		case kText:
			switch {
			case f.off == valText && d.typ == DumpFile:
				text(FileName, maxText)
			case f.off == valText:
				text(DeviceName, maxText)
			default: // rule and tracker
				out = append(out, body[:size]...)
			}
		case kAddress:
			if bytes.HasPrefix(v, []byte("0x")) && len(v) <= 18 {
				out = append(out, body[:size]...)
				break
			}
			text(FileName, maxText)
		case kSkip:
			out = append(out, make([]byte, size)...)
		case kX32:
			if d.typ == TimerEntry && f.off == abi.OffTimerAddress && r.hides([4]byte(body[:4])) {
				out = append(out, 0, 0, 0, 0)
				break
			}
			out = append(out, body[:size]...)
		case kSkipText:
			out = append(out, 0)
		default:
			out = append(out, body[:size]...)
		}
		body = body[size:]
	}
	return out
}

// hides reports whether an address has another name: then it is left out.
func (r Renamer) hides(address [4]byte) bool {
	name := netip.AddrFrom4(address).String()
	return address != [4]byte{} && r(HostName, name) != name
}

// envKept are the entries of the environment that name nobody.
var envKept = []string{
	"domain", "sysname", "kernel_release", "kernel_version", "tracer_name", "tracer_major", "tracer_minor", "tracer_patchlevel",
	"trace_buffering_scheme", "trace_name", "trace_creation_datetime", "machine", envVersion, envLayout,
}

// metadata renames the machine, and leaves out what this release does not know of it.
func (r Renamer) metadata(text []byte, env *Env) []byte {
	boot := r(BootName, env.BootID)
	var out strings.Builder
	block := ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutSuffix(line, " {\n"); ok && line[0] != '\t' {
			block = name
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		switch {
		case block == "env" && strings.HasPrefix(line, "\t") && !slices.Contains(envKept, key):
			switch key {
			case "hostname":
				line = "\thostname = " + quote(r(HostName, env.Hostname)) + ";\n"
			case "boot_id":
				line = "\tboot_id = " + quote(boot) + ";\n"
			default:
				continue
			}
		case block == "clock" && key == "uuid" && strings.Trim(value, "\";") == strings.ToLower(env.BootID):
			line = "\tuuid = " + quote(boot) + ";\n"
		}
		if line == "};\n" {
			block = ""
		}
		out.WriteString(line)
	}
	return []byte(out.String())
}
