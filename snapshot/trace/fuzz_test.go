package trace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// FuzzDecode: whatever decodes must come back the same through CTF, but for
// what a named system call does not have of its arguments.
func FuzzDecode(f *testing.F) {
	b := newBuilder(0, 1)
	b.oneOfEach()
	for i := range b.out {
		f.Add(b.out[i][:])
	}
	names := syscallNames{ask: func(nr int) string {
		return map[int]string{0: "read", 1: "openat", 2: "getpid", 3: "no_arguments_known", 4: "stat"}[nr]
	}}
	for nr := range uint32(8) {
		names.get(nr)
	}
	m, err := parseMetadata(metadata(&Trace{}, [16]byte{}, names.known, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Record
		copy(r[:], data)
		want, err := r.Decode()
		if err != nil {
			if !errors.Is(err, ErrUnknown) {
				t.Fatalf("error %v", err)
			}
			return
		}
		want.CPU = 3 // the stream's
		if call, ok := want.Body.(Syscall); ok && names.known[call.NR] != nil {
			call.Name = names.known[call.NR].name
			call.Args = kept(&r, names.known[call.NR].entry, call.Args)
			want.Body = call
		}
		w := writer{limit: defaultPacket, names: names}
		var out bytes.Buffer
		if err := w.stream(&out, &stream{cpu: 3, records: []Record{r}, begin: r.Time(), end: r.Time()}); err != nil {
			t.Fatal(err)
		}
		s := newStreamReader(&out, m, 3)
		if err := s.next(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.event); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if err := s.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last event: %v", err)
		}
	})
}

// kept cuts arguments to those that the fields have.
func kept(r *Record, fields []field, args [abi.SyscallArgs]uint64) (out [abi.SyscallArgs]uint64) {
	if r.Type() == SyscallExit {
		return args
	}
	for _, f := range fields {
		n := (f.off - abi.OffSyscallArgs) / 8
		switch {
		case f.off < abi.OffSyscallArgs:
		case f.kind == kArgs:
			return args
		case f.fixedSize() == 4:
			out[n] = args[n] & 0xffffffff
		default:
			out[n] = args[n]
		}
	}
	return out
}

// sampleTrace writes a small trace. All has one event of each type.
func sampleTrace(f testing.TB, all bool) (metadata, stream []byte) {
	b := newBuilder(0, 1000)
	if all {
		b.oneOfEach()
	}
	b.now += 5 << 32
	b.busy(len(b.out) + 40)
	dir := write(f, Trace{
		CPUs:     []CPU{{Records: b.out, Discarded: 1}},
		Outliers: []Outlier{{Rule: "r", Track: "wakeup", Start: 1000, End: 3000, Comm: "c"}},
		Known: &Known{
			Tasks: []KnownTask{{TID: 200, PID: 199, PPID: 1, Comm: "x"}}, Devices: []DeviceState{{Dev: 8 << 20, Name: "sda"}},
			Files: []FileState{{PID: 199, FD: 3, Flags: 2, Name: "/a/b"}},
		},
		PacketSize: 700, SyscallName: syscallName, UUID: [16]byte{1, 2, 3},
	})
	metadata, err := os.ReadFile(filepath.Join(dir, "kernel", "metadata"))
	if err != nil {
		f.Fatal(err)
	}
	stream, err = os.ReadFile(filepath.Join(dir, "kernel", "kernel_0"))
	if err != nil {
		f.Fatal(err)
	}
	if all {
		return metadata, stream
	}
	// Without the declarations that this stream does not need: mutations stay cheap.
	text := string(metadata)
	kept, events, _ := strings.Cut(text, "event {\n")
	for _, event := range strings.Split(events, "event {\n") {
		for _, name := range []string{"sched_switch", "sched_waking", "block_rq_issue", "syscall_", "statedump", "tailcam_e"} {
			if strings.Contains(event, name) {
				kept += "event {\n" + event
				break
			}
		}
	}
	return []byte(kept), stream
}

// FuzzRead: no metadata and no stream may do more than fail.
func FuzzRead(f *testing.F) {
	text, stream := sampleTrace(f, false)
	f.Add(text, stream)
	f.Add(text, stream[:len(stream)/2])
	f.Add(text[:len(text)/2], stream)
	f.Add(text, []byte{})
	good, err := parseMetadata(text)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, stream []byte) {
		m, err := parseMetadata(text)
		if err != nil {
			m = good
		}
		r := &Reader{meta: m, streams: []*streamReader{
			newStreamReader(bytes.NewReader(stream), m, 0), newStreamReader(bytes.NewReader(stream), m, 0),
		}}
		r.start()
		var last uint64
		for n := 0; ; n++ {
			if n > len(stream)*2+4 {
				t.Fatal("more events than bytes")
			}
			ev, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				if !errors.Is(err, ErrDamaged) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			if ev.Time < last {
				t.Fatal("time goes backwards")
			}
			last = ev.Time
		}
	})
}

// Wherever a file is cut, what comes before the cut is read, and told apart
// from a whole file.
func TestTornStream(t *testing.T) {
	text, whole := sampleTrace(t, true)
	m, err := parseMetadata(text)
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) (events []Event, ends []uint64, err error) {
		s := newStreamReader(bytes.NewReader(b), m, 0)
		for {
			if err := s.next(); err != nil {
				return events, ends, err
			}
			events, ends = append(events, s.event), append(ends, s.pos)
		}
	}
	all, ends, err := read(whole)
	if !errors.Is(err, io.EOF) || len(all) < 40 {
		t.Fatalf("whole: %d events, %v", len(all), err)
	}
	boundary := make(map[int]bool)
	for pos := 0; pos < len(whole); {
		var p packet
		if err := p.parse(whole[pos:], &m.uuid); err != nil {
			t.Fatal(err)
		}
		pos += int(p.size)
		boundary[pos] = true
	}
	for cut := range len(whole) {
		got, _, err := read(whole[:cut])
		if boundary[cut] {
			if !errors.Is(err, io.EOF) {
				t.Fatalf("cut at %d, between packets: %v", cut, err)
			}
		} else if !errors.Is(err, ErrDamaged) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := 0
		for want < len(ends) && ends[want] <= uint64(cut) {
			want++
		}
		if len(got) != want {
			t.Fatalf("cut at %d: %d events, want %d", cut, len(got), want)
		}
	}
}

// One CPU's damage does not hide the others' events.
func TestDamagedStreamAmongOthers(t *testing.T) {
	var tr Trace
	for cpu := range 3 {
		b := newBuilder(cpu, 1000)
		b.busy(100)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out})
	}
	dir := write(t, tr)
	if err := os.Truncate(filepath.Join(dir, "kernel", "kernel_1"), packetPrefix+1); err != nil {
		t.Fatal(err)
	}
	events, _, err := readAll(t, dir)
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v", err)
	}
	if len(events) != 200 {
		t.Errorf("%d events, want 200", len(events))
	}
}

func TestReadRefuses(t *testing.T) {
	fill := func(change func(dir string) error) string {
		dir := write(t, Trace{CPUs: []CPU{{CPU: 0}}})
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	meta := func(text string) func(string) error {
		return func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kernel", "metadata"), []byte(text), 0o600)
		}
	}
	for name, change := range map[string]func(dir string) error{
		"no tailcam":   meta("/* CTF 1.8 */\n"),
		"later layout": meta("env {\n\ttailcam_layout = 3;\n};\n"),
		"no uuid":      meta("env {\n\ttailcam_layout = 1;\n};\n"),
		"long line":    meta(string(make([]byte, 20_000))),
		"huge metadata": func(dir string) error {
			return os.Truncate(filepath.Join(dir, "kernel", "metadata"), maxMetadata+1)
		},
		"a pipe for a stream": func(dir string) error {
			return syscall.Mkfifo(filepath.Join(dir, "kernel", "kernel_1"), 0o600)
		},
	} {
		r, err := Read(fill(change))
		if err == nil {
			r.Close()
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("empty directory: error %v", err)
	}
	link := fill(func(dir string) error { return os.Symlink("kernel_0", filepath.Join(dir, "kernel", "kernel_1")) })
	if _, err := Read(link); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link for a stream: error %v", err)
	}
}
