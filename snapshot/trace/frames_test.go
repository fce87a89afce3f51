package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// twoCPUs is a trace of many packets, with outliers, losses and a state dump.
func twoCPUs() Trace {
	tr := Trace{
		UUID: [16]byte{7}, SyscallName: syscallName, PacketSize: compressedPacket,
		Known:    &Known{Tasks: []KnownTask{{TID: 100, PID: 100, Comm: "bash"}}, Files: []FileState{{PID: 100, FD: 3, Name: "/a"}}},
		Outliers: []Outlier{{Rule: "slow", Track: "wakeup", Start: 1_000_400_000, End: 1_010_000_000, ExitCPU: 1, TID: 5, Comm: "slow"}},
	}
	for cpu := range 2 {
		b := newBuilder(cpu, 1_000_000_000)
		b.oneOfEach()
		b.busy(20_000)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out, Discarded: uint64(cpu * 9)})
	}
	return tr
}

// both writes a trace compressed and not.
func both(t testing.TB) (zipped, plain string) {
	t.Helper()
	tr := twoCPUs()
	plain = write(t, tr)
	tr.Compress = true
	return write(t, tr), plain
}

func streamFile(t testing.TB, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, kernelDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCompressedIsTheSame(t *testing.T) {
	zipped, plain := both(t)
	want, pr, err := readAll(t, plain)
	if err != nil {
		t.Fatal(err)
	}
	got, zr, err := readAll(t, zipped)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	read, total := zr.Progress()
	if pread, ptotal := pr.Progress(); read != pread || total != ptotal || read != total {
		t.Errorf("progress %d of %d, uncompressed %d of %d", read, total, pread, ptotal)
	}
	if zr.Discarded(1) != 9 {
		t.Errorf("%d discarded", zr.Discarded(1))
	}
	small, large := len(streamFile(t, zipped, "kernel_0.zst")), len(streamFile(t, plain, "kernel_0"))
	if small > large/3 {
		t.Errorf("%d bytes of %d", small, large)
	}

	dst, n, err := copyTrace(t, zipped, Span{})
	if err != nil || n != uint64(len(want)) {
		t.Fatal(n, err)
	}
	for _, name := range []string{"metadata", "kernel_0", "kernel_1"} {
		if !bytes.Equal(streamFile(t, dst, name), streamFile(t, plain, name)) {
			t.Errorf("the copy's %s differs from the uncompressed trace's", name)
		}
	}
}

// Others decompress a stream, whole or from any frame of its seek table on.
func TestCompressedIsSeekable(t *testing.T) {
	zipped, plain := both(t)
	want := streamFile(t, plain, "kernel_1")
	path := filepath.Join(zipped, kernelDir, "kernel_1.zst")
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	got, err := dec.DecodeAll(streamFile(t, zipped, "kernel_1.zst"), nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
	}
	if tool, err := exec.LookPath("zstd"); err == nil { // the reference, where it is installed
		if out, err := exec.Command(tool, "-dc", path).Output(); err != nil || !bytes.Equal(out, want) {
			t.Errorf("zstd -dc: %d bytes, %v", len(out), err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	frames := readSeekTable(f)
	if len(frames) < 5 {
		t.Fatalf("%d frames", len(frames))
	}
	for _, at := range frames {
		part, err := dec.DecodeAll(streamFile(t, zipped, "kernel_1.zst")[at.at:], nil)
		if err != nil || !bytes.Equal(part, want[at.from:]) {
			t.Fatalf("from byte %d: %d bytes, %v", at.at, len(part), err)
		}
		if binary.LittleEndian.Uint32(part) != ctfMagic {
			t.Errorf("byte %d does not begin a packet", at.at)
		}
	}
}

// A part of a compressed trace is that of the uncompressed one, with a seek table and without.
func TestCompressedSpans(t *testing.T) {
	zipped, plain := both(t)
	all, _, _ := readAll(t, plain)
	last := all[len(all)-1].Time
	for _, damage := range []bool{false, true} {
		if damage {
			for _, name := range []string{"kernel_0.zst", "kernel_1.zst"} {
				data := streamFile(t, zipped, name)
				data[len(data)-1] ^= 1
				if err := os.WriteFile(filepath.Join(zipped, kernelDir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range uint64(4) {
			span := Span{all[0].Time + (last-all[0].Time)*i/4, last - (last-all[0].Time)*i/8}
			want, n, err := copyTrace(t, plain, span)
			if err != nil {
				t.Fatal(err)
			}
			got, m, err := copyTrace(t, zipped, span)
			if err != nil || m != n {
				t.Fatalf("%v: %d events, want %d, %v", span, m, n, err)
			}
			a, _, _ := readAll(t, want)
			b, _, err := readAll(t, got)
			if diff := cmp.Diff(a, b); err != nil || diff != "" {
				t.Fatalf("%v: %v (-want +got):\n%s", span, err, diff)
			}
		}
	}
}

// seek goes to the packet, and not through those before it.
func TestSeek(t *testing.T) {
	zipped, _ := both(t)
	m, _, err := readMetadata(filepath.Join(zipped, kernelDir, "metadata"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := m.unzip()
	if err != nil {
		t.Fatal(err)
	}
	defer z.close()
	s, err := openStream(filepath.Join(zipped, kernelDir, "kernel_0.zst"), m, 0, z)
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	frames := readSeekTable(s.file)
	if err := s.nextPacket(); err != nil {
		t.Fatal(err)
	}
	first := s.pkt
	s.left = 0
	if err := s.seek(first.end + 1_000_000); err != nil {
		t.Fatal(err)
	}
	if s.packets == 0 || s.pos != frames[s.packets].from {
		t.Fatalf("at packet %d, byte %d", s.packets, s.pos)
	}
	if err := s.nextPacket(); err != nil || s.pkt.end < first.end+1_000_000 {
		t.Fatalf("packet %+v, %v", s.pkt, err)
	}
	if err := s.seek(maxTime); err != nil || s.packets != uint64(len(frames)-1) {
		t.Fatalf("at packet %d of %d, %v", s.packets, len(frames), err)
	}
}

// Whatever is cut off or flipped is damage, and what came before it is read.
func TestCompressedDamage(t *testing.T) {
	zipped, plain := both(t)
	want, _, _ := readAll(t, plain)
	path := filepath.Join(zipped, kernelDir, "kernel_0.zst")
	whole := streamFile(t, zipped, "kernel_0.zst")
	check := func(what string, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := readAll(t, zipped)
		if err != nil && !errors.Is(err, ErrDamaged) || err == nil && len(got) != len(want) {
			t.Errorf("%s: %d events of %d, %v", what, len(got), len(want), err)
		}
	}
	for i := range 60 {
		check("torn", whole[:len(whole)*i/60])
		flipped := bytes.Clone(whole)
		flipped[(len(whole)-1)*i/59] ^= 0x10
		check("flipped", flipped)
	}
	check("empty frames", append(bytes.Repeat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0}, 1000), whole...))
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(zipped, kernelDir, "kernel_0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(zipped); !errors.Is(err, ErrDamaged) {
		t.Errorf("twice the same CPU: %v", err)
	}
}

// bomb is a frame of n zeros, in some ten bytes for each 128 KiB.
func bomb(n int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0} // single segment, 4 bytes of size, no checksum
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	for n > 0 {
		size := min(n, 128<<10)
		n -= size
		head := uint32(size)<<3 | 1<<1
		if n == 0 {
			head |= 1
		}
		b = append(b, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return b
}

// A few bytes that would become gigabytes cost neither memory nor time.
func TestCompressedBomb(t *testing.T) {
	for name, data := range map[string][]byte{
		"one frame":   bomb(1 << 30),
		"many frames": bytes.Repeat(bomb(maxFrame), 4096),
	} {
		t.Run(name, func(t *testing.T) {
			zipped, _ := both(t)
			// Damage ends a stream at once: its packets must be good for it to go on.
			head := streamFile(t, zipped, "kernel_0.zst")
			frames := 0
			f, err := os.Open(filepath.Join(zipped, kernelDir, "kernel_0.zst"))
			if err != nil {
				t.Fatal(err)
			}
			if table := readSeekTable(f); len(table) > 1 {
				frames = int(table[1].at)
			}
			f.Close()
			if err := os.WriteFile(filepath.Join(zipped, kernelDir, "kernel_0.zst"), append(head[:frames:frames], data...), 0o600); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			_, _, err = readAll(t, zipped)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
				t.Errorf("%d MiB allocated", n>>20)
			}
			t.Log(time.Since(begun), err)
			m := mustMeta(t, zipped)
			z, err := m.unzip()
			if err != nil {
				t.Fatal(err)
			}
			defer z.close()
			n, err := io.Copy(io.Discard, newFrameReader(bytes.NewReader(data), z))
			if !errors.Is(err, ErrDamaged) || uint64(n) > m.bytes {
				t.Errorf("%d bytes, %d declared, %v", n, m.bytes, err)
			}
		})
	}
}

func TestCompressedMetadata(t *testing.T) {
	zipped, _ := both(t)
	path := filepath.Join(zipped, kernelDir, "metadata")
	text := string(streamFile(t, zipped, "metadata"))
	for what, bad := range map[string]string{
		"no size":        strings.Replace(text, "\ttailcam_bytes", "\ttailcam_none", 1),
		"too large":      strings.Replace(text, "\ttailcam_bytes = ", "\ttailcam_bytes = 9999999", 1),
		"an old layout":  strings.Replace(text, "tailcam_layout = 3", "tailcam_layout = 2", 1),
		"a later layout": strings.Replace(text, "tailcam_layout = 3", "tailcam_layout = 4", 1),
		"neither": strings.Replace(strings.Replace(text, "tailcam_layout = 3", "tailcam_layout = 2", 1),
			"\ttailcam_bytes", "\ttailcam_none", 1),
	} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(zipped); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Decompressed by hand, it is read as well.
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dec, _ := zstd.NewReader(nil)
	defer dec.Close()
	for _, name := range []string{"kernel_0", "kernel_1"} {
		data, err := dec.DecodeAll(streamFile(t, zipped, name+compressedExt), nil)
		if err == nil {
			err = os.WriteFile(filepath.Join(zipped, kernelDir, name), data, 0o600)
		}
		if err = errors.Join(err, os.Remove(filepath.Join(zipped, kernelDir, name+compressedExt))); err != nil {
			t.Fatal(err)
		}
	}
	if got, _, err := readAll(t, zipped); err != nil || len(got) == 0 {
		t.Errorf("%d events, %v", len(got), err)
	}
}

// What Events returns is what Read returns of what Write has written.
func TestEventsAreThoseOfFiles(t *testing.T) {
	tr := twoCPUs()
	rare := newBuilder(2, 1_000_000_000)
	rare.oneOfEachRare()
	tr.CPUs = append(tr.CPUs, CPU{CPU: 2, Records: rare.out})
	want, _, err := readAll(t, write(t, tr))
	if err != nil {
		t.Fatal(err)
	}
	r, err := tr.Events()
	if err != nil {
		t.Fatal(err)
	}
	var got []Event
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-files +memory):\n%s", diff)
	}
	if r.Discarded(1) != 9 || r.Close() != nil {
		t.Error(r.Discarded(1))
	}
}

// FuzzFrames: any bytes end, with no more of them than declared.
func FuzzFrames(f *testing.F) {
	zipped, _ := both(f)
	f.Add(streamFile(f, zipped, "kernel_0.zst"))
	f.Add(bomb(1 << 20))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := meta{bytes: 1 << 20}
		z, err := m.unzip()
		if err != nil {
			t.Fatal(err)
		}
		defer z.close()
		n, err := io.Copy(io.Discard, newFrameReader(bytes.NewReader(data), z))
		if n > 1<<20 || err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
}
