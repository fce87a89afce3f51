package trace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

func readAll(t testing.TB, dir string) ([]Event, *Reader, error) {
	t.Helper()
	r, err := Read(dir)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	t.Cleanup(func() { r.Close() })
	var events []Event
	var failed error
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events, r, failed
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		events = append(events, ev)
	}
}

// decoded is what a reader should return for records of one CPU.
func decoded(t testing.TB, records []Record) []Event {
	t.Helper()
	var events []Event
	for i := range records {
		ev, err := records[i].Decode()
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if call, ok := ev.Body.(Syscall); ok {
			call.Name = syscallName(int(call.NR))
			if call.Name != "" {
				clear(call.Args[3:]) // both have three
			}
			ev.Body = call
		}
		events = append(events, ev)
	}
	return events
}

func write(t testing.TB, tr Trace) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "trace")
	if err := Write(dir, tr); err != nil {
		t.Fatalf("write: %v", err)
	}
	return dir
}

func TestRoundTripEachType(t *testing.T) {
	b := newBuilder(2, 5_000_000_000)
	b.oneOfEach()
	env := Env{
		Hostname: `quo"te\d`, KernelRelease: "6.18.0", KernelVersion: "#1 SMP", Machine: "x86_64",
		BootID: "12345678-9abc-def0-1234-56789abcdef0", Version: "0.1", Name: "wakeup-000042",
		Created: time.Date(2026, 11, 20, 23, 15, 2, 0, time.UTC),
	}
	offset := 1_795_000_000*time.Second + 123456789
	dir := write(t, Trace{CPUs: []CPU{{CPU: 2, Records: b.out}}, Env: env, ClockOffset: offset, SyscallName: syscallName})
	got, r, err := readAll(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, b.out), got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(env, r.Env()); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if r.ClockOffset() != offset {
		t.Errorf("clock offset %v, want %v", r.ClockOffset(), offset)
	}
	if want := time.Unix(1_795_000_005, 123456789); !r.Wall(5_000_000_000).Equal(want) {
		t.Errorf("wall time %v, want %v", r.Wall(5_000_000_000), want)
	}
	seen := make(map[Type]bool)
	for _, ev := range got {
		seen[ev.Type] = true
	}
	for ty := SchedSwitch; ty <= Interrupts; ty++ {
		if !seen[ty] {
			t.Errorf("the builder makes no %v", ty)
		}
	}
}

func TestRoundTripManyPackets(t *testing.T) {
	var tr Trace
	want := 0
	for cpu := range 4 {
		b := newBuilder(cpu, 1_000_000_000)
		b.busy(3000 + cpu)
		b.now += 10 << 32 // a long idle time, past the 32 bits of a short header
		b.busy(6000)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out})
		want += len(b.out)
	}
	tr.PacketSize = 4096
	tr.SyscallName = syscallName
	got, _, err := readAll(t, write(t, tr))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != want {
		t.Fatalf("%d events, want %d", len(got), want)
	}
	byCPU := make(map[int][]Event)
	for i, ev := range got {
		if i > 0 && ev.Time < got[i-1].Time {
			t.Fatalf("event %d goes back in time", i)
		}
		byCPU[ev.CPU] = append(byCPU[ev.CPU], ev)
	}
	for _, c := range tr.CPUs {
		if diff := cmp.Diff(decoded(t, c.Records), byCPU[c.CPU]); diff != "" {
			t.Errorf("CPU %d (-want +got):\n%s", c.CPU, diff)
		}
	}
}

func TestMarkersEncloseTheirEvents(t *testing.T) {
	b0 := newBuilder(0, 1000)
	b0.wake(SchedWaking, 1, 2, "a", 1)
	b0.wake(SchedWaking, 1, 3, "b", 1)
	b1 := newBuilder(1, 9000)
	b1.switchTo(0, "swapper/1", 0, 2, "a")
	b1.switchTo(2, "a", 1, 0, "swapper/1")
	o := Outlier{
		Number: 42, Rule: "wakeup", Track: "wakeup", Start: 1000, End: 9000, EntryCPU: 0, ExitCPU: 1,
		DelayNS: 8000, TID: 2, PID: 2, Comm: "a",
	}
	// An outlier on a CPU of which there are no records, older than all.
	alone := Outlier{Number: 43, Rule: "r", Start: 5, End: 6, EntryCPU: 9, ExitCPU: 9, TID: 7, PID: 6, Comm: "name of many bytes"}
	got, _, err := readAll(t, write(t, Trace{
		CPUs: []CPU{{CPU: 0, Records: b0.out}, {CPU: 1, Records: b1.out}}, Outliers: []Outlier{o, alone},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var order []Type
	for _, ev := range got {
		order = append(order, ev.Type)
	}
	want := []Type{
		OutlierEntry, OutlierExit,
		OutlierEntry, SchedWaking, SchedWaking, SchedSwitch, SchedSwitch, OutlierExit,
	}
	if !slices.Equal(order, want) {
		t.Fatalf("order %v, want %v", order, want)
	}
	m := Marker{Rule: "wakeup", Track: "wakeup", DelayNS: 8000, PID: 2, Comm: MakeComm("a"), Outlier: 42}
	if diff := cmp.Diff(Event{Time: 1000, CPU: 0, Type: OutlierEntry, TID: 2, Body: m}, got[2]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Event{Time: 9000, CPU: 1, Type: OutlierExit, TID: 2, Body: m}, got[7]); diff != "" {
		t.Error(diff)
	}
	if c := got[0].Body.(Marker).Comm.String(); c != "name of many byt" {
		t.Errorf("comm %q", c)
	}
}

func TestUnsortedRecordsAreSorted(t *testing.T) {
	b := newBuilder(0, 1000)
	b.busy(500)
	shuffled := slices.Clone(b.out)
	b.rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	before := slices.Clone(shuffled)
	got, _, err := readAll(t, write(t, Trace{CPUs: []CPU{{Records: shuffled}}, SyscallName: syscallName}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, b.out), got); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(before, shuffled) {
		t.Error("the caller's records were moved")
	}
}

func TestLossIsCounted(t *testing.T) {
	b := newBuilder(0, 1000)
	b.busy(100)
	b.add(999, 1)                                                   // of a later kernel side
	put64(b.add(SchedSwitch, 1), abi.OffTimeNs, 0xffffffffffffffff) // torn
	good := newBuilder(1, 1000)
	good.busy(10)
	got, r, err := readAll(t, write(t, Trace{CPUs: []CPU{
		{CPU: 0, Records: b.out, Discarded: 5}, {CPU: 1, Records: good.out}, {CPU: 2, Discarded: 3},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 110 {
		t.Errorf("%d events, want 110", len(got))
	}
	for cpu, want := range []uint64{7, 0, 3} {
		if n := r.Discarded(cpu); n != want {
			t.Errorf("CPU %d: %d discarded, want %d", cpu, n, want)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, tr := range map[string]Trace{
		"CPU twice":     {CPUs: []CPU{{CPU: 1}, {CPU: 1}}},
		"negative CPU":  {CPUs: []CPU{{CPU: -1}}},
		"outlier's CPU": {Outliers: []Outlier{{ExitCPU: 1 << 20}}},
		"outlier's end": {Outliers: []Outlier{{Start: 2, End: 1}}},
	} {
		dir := filepath.Join(t.TempDir(), "trace")
		if err := Write(dir, tr); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: a directory was made", name)
		}
	}
	dir := write(t, Trace{CPUs: []CPU{{CPU: 0}}})
	if err := Write(dir, Trace{CPUs: []CPU{{CPU: 0}}}); !errors.Is(err, os.ErrExist) {
		t.Errorf("second write: %v, want %v", err, os.ErrExist)
	}
}

func TestDecodeRefusesUnknown(t *testing.T) {
	for _, ty := range []Type{0, Interrupts + 1, OutlierEntry, OutlierExit, 64, 65535} {
		r := *newBuilder(0, 1).add(ty, 1)
		if _, err := r.Decode(); !errors.Is(err, ErrUnknown) {
			t.Errorf("type %d: %v", ty, err)
		}
	}
}

func TestLTTngValues(t *testing.T) {
	for raw, want := range map[uint32]int64{
		0: 0, 1: 1, 2: 2, 4: 4, 8: 8, 0x40: 0x40, 0x402: 0x80, 0x80: 0x10, 0x80000000: 0x100,
		0x1000: 2, 0x2001: 1, 0x101: 1,
	} {
		if got := lttngState(raw); got != want {
			t.Errorf("state %#x: %#x, want %#x", raw, got, want)
		}
	}
	for status, want := range map[int32]int32{0: 0, 10: -5, 3: -28, 13: -16, 77: -5, -1: -5} {
		if got := statusErrno(status); got != want {
			t.Errorf("status %d: %d, want %d", status, got, want)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	b.Run("dump", func(b *testing.B) { benchmarkWrite(b, Trace{Known: &Known{}}) })
	b.Run("plain", func(b *testing.B) { benchmarkWrite(b, Trace{}) })
	b.Run("compressed", func(b *testing.B) { benchmarkWrite(b, Trace{Compress: true}) })
}

func benchmarkWrite(b *testing.B, tr Trace) {
	for cpu := range 4 {
		bb := newBuilder(cpu, 1_000_000_000)
		bb.busy(50_000)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: bb.out})
	}
	tr.SyscallName = syscallName
	root := b.TempDir()
	bytes := int64(0)
	b.ResetTimer()
	for b.Loop() {
		dir := filepath.Join(root, "t")
		if err := Write(dir, tr); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if r, err := Read(dir); err == nil {
			_, total := r.Progress()
			bytes = int64(total)
			r.Close()
		}
		os.RemoveAll(dir)
		b.StartTimer()
	}
	b.SetBytes(bytes) // uncompressed
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200_000, "ns/event")
}

func BenchmarkRead(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkRead(b, false) })
	b.Run("compressed", func(b *testing.B) { benchmarkRead(b, true) })
}

func benchmarkRead(b *testing.B, compress bool) {
	bb := newBuilder(0, 1_000_000_000)
	bb.busy(200_000)
	dir := write(b, Trace{CPUs: []CPU{{Records: bb.out}}, SyscallName: syscallName, Compress: compress})
	for b.Loop() {
		r, err := Read(dir)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200_000, "ns/event")
}
