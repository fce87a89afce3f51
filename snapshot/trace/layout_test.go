package trace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// writeLayout1 writes a trace as releases with layout 1 did: the same classes,
// but for system calls, and the files in the directory itself.
func writeLayout1(t *testing.T, records []Record) string {
	t.Helper()
	dir := t.TempDir()
	uuid := [16]byte{1, 2, 3}
	call := &namedCall{name: "kill", entry: callFields1(SyscallEntry), exit: callFields1(SyscallExit)}
	names := map[uint32]*namedCall{62: call}
	text := strings.Replace(string(metadata(&Trace{}, uuid, names, 0)), "tailcam_layout = 2", "tailcam_layout = 1", 1)
	pkt := packet{begin: records[0].Time(), end: records[len(records)-1].Time(), cpu: 4}
	body := make([]byte, packetPrefix)
	last := pkt.begin
	for i := range records {
		r := &records[i]
		id, fields := uint16(r.Type()), classes[r.Type()].fields
		if r.Type() == SyscallEntry {
			id, fields = syscallID(SyscallEntry, 62), call.entry
		}
		if r.Type() == SyscallExit {
			id, fields = syscallID(SyscallExit, 62), call.exit
		}
		body = appendFields(appendHeader(body, id, last, r.Time(), r.TID()), fields, r)
		last = r.Time()
	}
	pkt.size = uint64(len(body))
	pkt.put(body, &uuid)
	for name, data := range map[string][]byte{"metadata": []byte(text), "kernel_4": body} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadLayout1(t *testing.T) {
	b := newBuilder(4, 1000)
	b.switchTo(100, "bash", 1, 200, "worker")
	b.syscall(SyscallEntry, 62, 0)
	b.syscall(SyscallExit, 62, -3)
	dir := writeLayout1(t, b.out)
	got, _, err := readAll(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d events, want 3", len(got))
	}
	first, err := b.out[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{
		first,
		{Time: 1000, CPU: 4, Type: SyscallEntry, TID: 400, Body: Syscall{NR: 62, PID: 399, Name: "kill"}},
		{Time: 1000, CPU: 4, Type: SyscallExit, TID: 400, Body: Syscall{NR: 62, PID: 399, Ret: -3, Name: "kill"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	babeltrace(t, dir, 0)
}

// What a later release may add, events and fields, does not hide the rest.
func TestReadLaterRelease(t *testing.T) {
	b := newBuilder(0, 1000)
	b.switchTo(100, "bash", 1, 200, "worker")
	names := syscallNames{}
	w := writer{limit: defaultPacket, names: names}
	var out bytes.Buffer
	if err := w.stream(&out, &stream{records: b.out, begin: 1000, end: 1000}); err != nil {
		t.Fatal(err)
	}
	// A new event before, and two fields at the end of a known one.
	stream := out.Bytes()
	known := bytes.Clone(stream[packetPrefix:])
	body := appendHeader(bytes.Clone(stream[:packetPrefix]), 50, 1000, 1000, 9)
	body = append(body, make([]byte, 4+3*8)...)
	body = append(body, "a text\x00"...)
	body = append(body, known...)
	body = append(body, "more\x00\x01\x02"...)
	p := packet{begin: 1000, end: 1000, size: uint64(len(body))}
	p.put(body, new([16]byte))

	text := string(metadata(&Trace{}, [16]byte{}, nil, 0))
	switchEnd := "_prev_state_raw;\n"
	text = strings.Replace(text, switchEnd, switchEnd+
		"\t\tstring { encoding = UTF8; } _reason;\n\t\tinteger { size = 16; align = 8; signed = true; base = 10; } _node;\n", 1)
	text += "event {\n\tname = \"sched_of_2031\";\n\tid = 50;\n\tstream_id = 0;\n\tfields := struct {\n" +
		"\t\tinteger { size = 32; align = 8; signed = true; base = 10; } _a;\n" +
		"\t\tinteger { size = 64; align = 8; signed = false; base = 16; } _b[3];\n" +
		"\t\tstring { encoding = UTF8; } _c;\n\t};\n};\n\n"
	m, err := parseMetadata([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := newStreamReader(bytes.NewReader(body), m, 0)
	if err := s.next(); err != nil {
		t.Fatal(err)
	}
	want, err := b.out[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, s.event); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := s.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last event: %v", err)
	}
	if _, err := parseMetadata([]byte(strings.Replace(text, "size = 64; align = 8; signed = false; base = 16; } _b[3]", "size = 5; align = 1; } _b", 1))); err == nil {
		t.Error("a field of an unknown size was accepted")
	}
}

func TestArgumentsOfCalls(t *testing.T) {
	for call := range callArguments {
		seen := map[string]bool{}
		for _, f := range callFields(SyscallEntry, call) {
			if !identifier(f.name) || seen[f.name] || f.off+8 > RecordSize {
				t.Errorf("%s: field %+v", call, f)
			}
			seen[f.name] = true
		}
		if fromLTTng(toLTTng(call)) != call {
			t.Errorf("%s comes back as %s", call, fromLTTng(toLTTng(call)))
		}
	}
	b := newBuilder(0, 1000)
	b.syscall(SyscallEntry, 257, 0)
	b.syscall(SyscallEntry, 5, 0)
	b.syscall(SyscallEntry, abi.Syscalls32+108, 0)
	b.syscall(SyscallExit, abi.Syscalls32+108, -3)
	dir := write(t, Trace{CPUs: []CPU{{Records: b.out}}, SyscallName: func(nr int) string {
		return map[int]string{257: "openat", 5: "fstat", abi.Syscalls32 + 108: "fstat"}[nr]
	}})
	lines := strings.Join(babeltrace(t, dir, 0), "\n")
	for _, want := range []string{
		`syscall_entry_openat: { cpu_id = 0 }, { tid = 400 }, { dfd = 7, filename = "0x7ffc00001001", flags = 4096, mode = 3, caller_pid = 399 }`,
		`syscall_entry_newfstat: { cpu_id = 0 }, { tid = 400 }, { fd = 7, statbuf = 0x7FFC00001001, caller_pid = 399 }`,
		`compat_syscall_entry_fstat: { cpu_id = 0 }, { tid = 400 }, { args = [ [0] = 0x7, [1] = 0x7FFC00001001, [2] = 0x1000, [3] = 0x3, [4] = 0x4 ], caller_pid = 399 }`,
		`compat_syscall_exit_fstat: { cpu_id = 0 }, { tid = 400 }, { ret = -3, caller_pid = 399 }`,
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %s in\n%s", want, lines)
		}
	}
	got, _, err := readAll(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{
		{Time: 1000, Type: SyscallEntry, TID: 400, Body: Syscall{NR: 257, PID: 399, Name: "openat", Args: [5]uint64{7, 0x7ffc00001001, 4096, 3}}},
		{Time: 1000, Type: SyscallEntry, TID: 400, Body: Syscall{NR: 5, PID: 399, Name: "fstat", Args: [5]uint64{7, 0x7ffc00001001}}},
		{Time: 1000, Type: SyscallEntry, TID: 400, Body: Syscall{
			NR: abi.Syscalls32 + 108, PID: 399, Name: "fstat", Args: [5]uint64{7, 0x7ffc00001001, 4096, 3, 4},
		}},
		{Time: 1000, Type: SyscallExit, TID: 400, Body: Syscall{NR: abi.Syscalls32 + 108, PID: 399, Name: "fstat", Ret: -3}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
