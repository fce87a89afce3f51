package trace

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func copyTrace(t testing.TB, src string, span Span) (string, uint64, error) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "copy")
	n, err := Copy(context.Background(), dst, src, &CopyOptions{Span: span})
	return dst, n, err
}

func someTrace(t testing.TB) string {
	t.Helper()
	tr := Trace{ClockOffset: time.Hour, SyscallName: syscallName, PacketSize: 5000}
	for cpu := range 3 {
		b := newBuilder(cpu, 1_000_000_000)
		b.busy(5_000)
		b.now += 10 << 32 // a header with the whole time
		b.busy(6_000)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out, Discarded: uint64(cpu)})
	}
	tr.CPUs = append(tr.CPUs, CPU{CPU: 7}) // a quiet one
	return write(t, tr)
}

func TestCopyIsTheSame(t *testing.T) {
	src := someTrace(t)
	dst, n, err := copyTrace(t, src, Span{})
	if err != nil || n != 18_000 {
		t.Fatalf("%d events, %v", n, err)
	}
	files, _ := filepath.Glob(filepath.Join(src, kernelDir, "*"))
	if len(files) != 5 {
		t.Fatalf("files %v", files)
	}
	for _, f := range files {
		want, _ := os.ReadFile(f)
		got, err := os.ReadFile(filepath.Join(dst, kernelDir, filepath.Base(f)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: differs, %v", f, err)
		}
	}
}

func TestCopyOfASpan(t *testing.T) {
	src := someTrace(t)
	all, _, _ := readAll(t, src)
	for span, lossy := range map[Span]int{ // streams that tell of their loss
		{all[100].Time, all[12_000].Time}: 2, {all[4_000].Time, all[4_000].Time}: 2,
		{all[len(all)-1].Time + 1, 1 << 61}: 0, {0, 1}: 0,
	} {
		var want []Event
		for _, ev := range all {
			if span.Has(ev.Time) {
				want = append(want, ev)
			}
		}
		dst, n, err := copyTrace(t, src, span)
		if err != nil || n != uint64(len(want)) {
			t.Fatalf("%v: %d events, want %d, %v", span, n, len(want), err)
		}
		got, r, err := readAll(t, dst)
		if err != nil {
			t.Fatalf("%v: %v", span, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%v: (-want +got):\n%s", span, diff)
		}
		if r.meta.uuid == mustMeta(t, src).uuid {
			t.Errorf("%v: it has the id of the whole trace", span)
		}
		if lines := len(babeltrace(t, dst, lossy)); lines != max(1, len(want)) {
			t.Errorf("%v: babeltrace2 reads %d events, want %d", span, lines, len(want))
		}
	}
}

func mustMeta(t testing.TB, dir string) *meta {
	t.Helper()
	m, _, err := readMetadata(filepath.Join(dir, kernelDir, "metadata"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCopyOfDamage(t *testing.T) {
	src := someTrace(t)
	path := filepath.Join(src, kernelDir, "kernel_1")
	data, _ := os.ReadFile(path)
	if err := os.WriteFile(path, data[:len(data)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, span := range []Span{{}, {0, 1_100_000_000}} {
		if _, _, err := copyTrace(t, src, span); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v: %v", span, err)
		}
	}
	if _, _, err := copyTrace(t, filepath.Join(src, "none"), Span{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// What nextPacket and decode accept, a copy has, and can be read again.
func FuzzCopy(f *testing.F) {
	b := newBuilder(0, 1_000_000_000)
	b.oneOfEach()
	dir := filepath.Join(f.TempDir(), "trace")
	if err := Write(dir, Trace{CPUs: []CPU{{Records: b.out}}, SyscallName: syscallName, PacketSize: 300}); err != nil {
		f.Fatal(err)
	}
	stream, _ := os.ReadFile(filepath.Join(dir, kernelDir, "kernel_0"))
	f.Add(stream, uint64(0), uint64(1<<61))
	f.Add(stream, uint64(1_000_003_000), uint64(1_000_009_000))
	m, _, err := readMetadata(filepath.Join(dir, kernelDir, "metadata"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stream []byte, from, to uint64) {
		from, to = from%maxTime, to%maxTime
		var out bytes.Buffer
		c := copier{ctx: context.Background(), span: Span{min(from, to), max(from, to)}, uuid: m.uuid, out: &out}
		if c.stream(newStreamReader(bytes.NewReader(stream), m, 0)) != nil {
			return
		}
		var n uint64
		s := newStreamReader(&out, m, 0)
		for s.next() == nil {
			if n++; !c.span.Has(s.last) {
				t.Fatalf("time %d is not in %v", s.event.Time, c.span)
			}
		}
		if n != c.events {
			t.Fatalf("%d events read, %d copied", n, c.events)
		}
	})
}

// A part of a trace keeps its state dump, at its begin.
func TestCopyKeepsTheStateDump(t *testing.T) {
	var tr Trace
	for cpu := range 2 {
		b := newBuilder(cpu, 1_000_000_000)
		b.busy(3_000)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out, From: 1_000_000_000, To: b.now + 1000})
	}
	tr.PacketSize, tr.SyscallName = 5000, syscallName
	tr.Known = &Known{Devices: []DeviceState{{Dev: 1, Name: "sda"}}, Files: []FileState{{PID: 399, FD: 77, Name: "/x"}}}
	src := write(t, tr)
	all, _, err := readAll(t, src)
	if err != nil {
		t.Fatal(err)
	}
	span := Span{all[4_000].Time, all[5_000].Time}
	var dumped, want []Event
	for _, ev := range all {
		if !ev.Type.ofRecord() {
			ev.Time = span.From
			if b, ok := ev.Body.(TaskState); ok {
				b.Status = 0
				ev.Body = b
			}
			dumped = append(dumped, ev)
		} else if span.Has(ev.Time) {
			want = append(want, ev)
		}
	}
	if len(dumped) < 10 {
		t.Fatalf("only %d events of a state dump", len(dumped))
	}
	for span, want := range map[Span][]Event{span: want, {all[len(all)-1].Time + 1, all[len(all)-1].Time + 9}: nil} {
		dst, n, err := copyTrace(t, src, span)
		if err != nil || n != uint64(len(dumped)+len(want)) {
			t.Fatalf("%v: %d events, want %d and %d, %v", span, n, len(dumped), len(want), err)
		}
		got, _, err := readAll(t, dst)
		if err != nil {
			t.Fatal(err)
		}
		var first, rest []Event
		for _, ev := range got {
			if !ev.Type.ofRecord() {
				if ev.Time != span.From {
					t.Errorf("%v: %v at %d", span, ev.Type, ev.Time)
				}
				ev.Time = dumped[0].Time
				first = append(first, ev)
			} else {
				rest = append(rest, ev)
			}
		}
		if diff := cmp.Diff(dumped, first); diff != "" {
			t.Errorf("%v: state dump (-want +got):\n%s", span, diff)
		}
		if diff := cmp.Diff(want, rest); diff != "" {
			t.Errorf("%v: (-want +got):\n%s", span, diff)
		}
		babeltrace(t, dst, 0)
	}
}
