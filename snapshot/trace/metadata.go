package trace

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Env says where a trace comes from. Empty fields are left out of the file.
type Env struct {
	Hostname      string
	KernelRelease string // uname -r
	KernelVersion string // uname -v
	Machine       string // uname -m
	// BootID is /proc/sys/kernel/random/boot_id: traces of one boot share
	// their clock. Ignored unless it is a UUID.
	BootID  string
	Version string    // of tailcam
	Name    string    // of the snapshot
	Created time.Time // zero: left out
}

// Names of the environment's entries beside LTTng's own.
const (
	envLayout  = "tailcam_layout"
	envVersion = "tailcam_version"
	envBytes   = "tailcam_bytes" // of all streams, if they are compressed
)

// The release of lttng-modules whose event and field names the trace has.
const (
	lttngMajor, lttngMinor, lttngPatch = 2, 13, 9
)

const metadataTypes = `typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
`

const metadataStream = `typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := uint32_clock_monotonic_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_monotonic_t;

struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	uint64_t events_discarded;
	uint32_t cpu_id;
};

struct event_header_large {
	enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
	variant <id> {
		struct {
			uint32_clock_monotonic_t timestamp;
		} compact;
		struct {
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		} extended;
	} v;
} align(8);

stream {
	id = 0;
	event.header := struct event_header_large;
	packet.context := struct packet_context;
	event.context := struct {
		integer { size = 32; align = 8; signed = true; base = 10; } _tid;
	};
};

`

// metadata builds the TSDL text. names holds the name of each system call
// that has event ids of its own, total how many bytes the
// streams have.
func metadata(t *Trace, uuid [16]byte, names map[uint32]*namedCall, total uint64) []byte {
	var b strings.Builder
	b.WriteString("/* CTF 1.8 */\n\n" + metadataTypes)
	fmt.Fprintf(&b, `
trace {
	major = 1;
	minor = 8;
	uuid = "%s";
	byte_order = le;
	packet.header := struct {
		uint32_t magic;
		uint8_t  uuid[16];
		uint32_t stream_id;
		uint64_t stream_instance_id;
	};
};

`, formatUUID(uuid))
	if !t.Compress {
		total = 0
	}
	writeEnv(&b, &t.Env, total)
	writeClock(&b, t.ClockOffset, t.Env.BootID)
	b.WriteString(metadataStream)
	for id := range classes {
		if c := classOf(Type(id)); c != nil {
			writeClass(&b, id, c.name, c.fields)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(memcgClasses)) {
		writeClass(&b, int(uint16(t)+memcgID), memcgClasses[t], classes[t].fields)
	}
	for _, nr := range slices.Sorted(maps.Keys(names)) {
		call := names[nr]
		name, table := toLTTng(call.name), ""
		if isNarrow(nr) {
			name, table = call.name, narrowPrefix
		}
		writeClass(&b, int(syscallID(SyscallEntry, nr)), table+"syscall_entry_"+name, call.entry)
		writeClass(&b, int(syscallID(SyscallExit, nr)), table+"syscall_exit_"+name, call.exit)
	}
	return []byte(b.String())
}

// writeEnv writes the environment; total is 0 if the streams are not compressed.
func writeEnv(b *strings.Builder, e *Env, total uint64) {
	b.WriteString("env {\n")
	text := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, "\t%s = %s;\n", key, quote(value))
		}
	}
	number := func(key string, value int) { fmt.Fprintf(b, "\t%s = %d;\n", key, value) }
	text("hostname", e.Hostname)
	text("domain", "kernel")
	text("sysname", "Linux")
	text("kernel_release", e.KernelRelease)
	text("kernel_version", e.KernelVersion)
	text("tracer_name", "lttng-modules")
	number("tracer_major", lttngMajor)
	number("tracer_minor", lttngMinor)
	number("tracer_patchlevel", lttngPatch)
	text("trace_buffering_scheme", "global")
	text("trace_name", e.Name)
	if !e.Created.IsZero() {
		text("trace_creation_datetime", e.Created.UTC().Format("20060102T150405+0000"))
	}
	text("machine", e.Machine)
	text("boot_id", e.BootID)
	text(envVersion, e.Version)
	if total > 0 {
		number(envLayout, layoutCompressed)
		number(envBytes, int(total))
	} else {
		number(envLayout, layoutVersion)
	}
	b.WriteString("};\n\n")
}

// plainMetadata makes the text of a compressed trace that of an uncompressed one.
func plainMetadata(text []byte, m *meta) []byte {
	if m.bytes == 0 {
		return text
	}
	layout := fmt.Sprintf("\t%s = ", envLayout)
	return bytes.Replace(text, fmt.Appendf(nil, "%s%d;\n\t%s = %d;\n", layout, layoutCompressed, envBytes, m.bytes),
		fmt.Appendf(nil, "%s%d;\n", layout, layoutVersion), 1)
}

// writeClock maps monotonic time to wall time.
func writeClock(b *strings.Builder, offset time.Duration, bootID string) {
	b.WriteString("clock {\n\tname = \"monotonic\";\n")
	if uuid, ok := parseUUID(bootID); ok {
		fmt.Fprintf(b, "\tuuid = \"%s\";\n", formatUUID(uuid))
	}
	b.WriteString("\tdescription = \"Monotonic Clock\";\n\tfreq = 1000000000;\n")
	// An offset in cycles cannot be negative in every reader, seconds can.
	if s := floorSeconds(offset); s < 0 {
		fmt.Fprintf(b, "\toffset_s = %d;\n", s)
		offset -= time.Duration(s) * time.Second
	}
	fmt.Fprintf(b, "\toffset = %d;\n};\n\n", offset)
}

func floorSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second < 0 {
		s--
	}
	return s
}

// writeClass declares an event. Names of fields get LTTng's leading
// underscore, which readers take away.
func writeClass(b *strings.Builder, id int, name string, fields []field) {
	fmt.Fprintf(b, "event {\n\tname = \"%s\";\n\tid = %d;\n\tstream_id = 0;\n\tfields := struct {\n", name, id)
	for i := range fields {
		fmt.Fprintf(b, "\t\t%s;\n", fieldDecl(&fields[i]))
	}
	b.WriteString("\t};\n};\n\n")
}

func fieldDecl(f *field) string { return fmt.Sprintf(fieldTypes[f.kind], "_"+f.name) }

const (
	tsdlS32  = "integer { size = 32; align = 8; signed = true; base = 10; } %s"
	tsdlU32  = "integer { size = 32; align = 8; signed = false; base = 10; } %s"
	tsdlText = "string { encoding = UTF8; } %s"
)

var fieldTypes = [...]string{
	kS32: tsdlS32, kPrio16: tsdlS32, kPrio32: tsdlS32, kErrno: tsdlS32, kTID: tsdlS32,
	kU32: tsdlU32, kU16: tsdlU32, kRWBS: tsdlU32, kSectors: tsdlU32,
	kX32:     "integer { size = 32; align = 8; signed = false; base = 16; } %s",
	kS64:     "integer { size = 64; align = 8; signed = true; base = 10; } %s",
	kState:   "integer { size = 64; align = 8; signed = true; base = 10; } %s",
	kU64:     "integer { size = 64; align = 8; signed = false; base = 10; } %s",
	kX64:     "integer { size = 64; align = 8; signed = false; base = 16; } %s",
	kComm:    "integer { size = 8; align = 8; signed = false; encoding = UTF8; base = 10; } %s[16]",
	kIRQName: tsdlText, kRecordName: tsdlText, kCommText: tsdlText, kText: tsdlText, kAddress: tsdlText,
	kFrames: "integer { size = 64; align = 8; signed = false; base = 16; } %s[7]",
	kArgs:   "integer { size = 64; align = 8; signed = false; base = 16; } %s[5]",
}
