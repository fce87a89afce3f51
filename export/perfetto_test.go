package export

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// packets is what the tests want to know of an export to Perfetto.
type packets struct {
	ftrace int               // events
	tracks map[uint64]string // names by uuid
	parent map[uint64]uint64
	events []trackEvent
	stacks int // samples
}

type trackEvent struct {
	time, track, kind, callstack uint64
	name                         string
	from, to                     []uint64
}

// decode reads an export by the rules of the format that a reader relies on:
// tracks are declared before they are used, slices that end have begun, arrows
// have two ends, and what is interned is there.
func decode(t testing.TB, data []byte) *packets {
	t.Helper()
	p := &packets{tracks: map[uint64]string{}, parent: map[uint64]uint64{}}
	interned := map[[2]uint64]bool{}
	n := 0
	each(t, data, func(field protowire.Number, packet []byte, _ uint64) {
		assert.Assert(t, field == 1, "field %d of a trace", field)
		var now, sequence, flags uint64
		each(t, packet, func(f protowire.Number, _ []byte, v uint64) {
			switch f {
			case 8:
				now = v
			case 10:
				sequence = v
			case 13:
				flags = v
			}
		})
		want := map[bool]uint64{true: 3, false: 2}[n == 0]
		assert.Assert(t, sequence == 1 && flags == want, "packet %d: sequence %d, flags %d", n, sequence, flags)
		n++
		each(t, packet, func(f protowire.Number, b []byte, _ uint64) {
			if f != 12 {
				return
			}
			each(t, b, func(kind protowire.Number, b []byte, _ uint64) {
				each(t, b, func(f protowire.Number, _ []byte, v uint64) {
					if f == 1 {
						interned[[2]uint64{uint64(kind), v}] = true
					}
				})
			})
		})
		each(t, packet, func(f protowire.Number, b []byte, _ uint64) {
			switch f {
			case 1:
				each(t, b, func(f protowire.Number, _ []byte, _ uint64) {
					if f == 2 {
						p.ftrace++
					}
				})
			case 11:
				p.events = append(p.events, event(t, now, b))
				e := &p.events[len(p.events)-1]
				_, ok := p.tracks[e.track]
				assert.Check(t, ok, "%q is on track %d, which is not declared", e.name, e.track)
				assert.Check(t, e.callstack == 0 || interned[[2]uint64{7, e.callstack}],
					"%q has call stack %d, which is not there", e.name, e.callstack)
			case 60:
				var uuid, parent uint64
				var name string
				each(t, b, func(f protowire.Number, b []byte, v uint64) {
					switch f {
					case 1:
						uuid = v
					case 2:
						name = string(b)
					case 5:
						parent = v
					}
				})
				_, ok := p.tracks[parent]
				assert.Check(t, ok || parent == 0, "track %q is below %d, which is not declared", name, parent)
				p.tracks[uuid], p.parent[uuid] = name, parent
			case 66:
				p.stacks++
			}
		})
	})
	p.check(t)
	return p
}

func event(t testing.TB, now uint64, b []byte) trackEvent {
	e := trackEvent{time: now}
	each(t, b, func(f protowire.Number, b []byte, v uint64) {
		switch f {
		case 9:
			e.kind = v
		case 11:
			e.track = v
		case 23:
			e.name = string(b)
		case 47:
			e.from = append(e.from, v)
		case 48:
			e.to = append(e.to, v)
		case 56:
			e.callstack = v
		}
	})
	return e
}

func (p *packets) check(t testing.TB) {
	open, from, to := map[uint64]int{}, map[uint64]int{}, map[uint64]int{}
	for _, e := range p.events {
		switch e.kind {
		case 1:
			open[e.track]++
		case 2:
			if open[e.track]--; open[e.track] < 0 {
				t.Errorf("a slice of %q ends at %d that has not begun", p.tracks[e.track], e.time)
			}
		}
		for _, id := range e.from {
			from[id]++
		}
		for _, id := range e.to {
			to[id]++
		}
	}
	for id := range from {
		assert.Check(t, from[id] == 1 && to[id] == 1,
			"arrow %d begins %d times and ends %d times", id, from[id], to[id])
	}
	assert.Check(t, len(from) == len(to), "%d arrows begin, %d end", len(from), len(to))
}

// each calls do for each field of a message.
func each(t testing.TB, b []byte, do func(f protowire.Number, b []byte, v uint64)) {
	t.Helper()
	for len(b) > 0 {
		f, kind, n := protowire.ConsumeTag(b)
		assert.Assert(t, n >= 0, "no protobuf")
		b = b[n:]
		var v uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(b)
		default:
			n = -1
		}
		assert.Assert(t, n >= 0, "field %d is torn", f)
		b = b[n:]
		do(f, body, v)
	}
}

// The slow task's life is drawn, with an arrow from who woke it, and the
// critical path with one from what it waited for.
func TestPerfettoStory(t *testing.T) {
	out, _ := exported(t, story(t), all(Perfetto, Stdout))
	p := decode(t, out)
	assert.Check(t, p.ftrace == 10 && p.stacks == 1,
		"%d ftrace events, %d stacks; want 10 and 1", p.ftrace, p.stacks)
	var got []string
	for _, e := range p.events {
		if e.kind != 2 {
			got = append(got, fmt.Sprintf("%d %s | %s | %d>%d", e.time-bootNS, p.tracks[e.track], e.name, len(e.from), len(e.to)))
		}
	}
	want := []string{
		"100 #0 slow-read | victim[10] running | 0>0",
		"1000 #0 slow-read | victim[10] network | 0>0",
		"5000 #0 slow-read, waited for, 1 | other[11] softirq | 1>0",
		"6000 #0 slow-read | victim[10] preempted: hog 13 | 0>1",
		"16000 #0 slow-read | victim[10] running | 0>0",
		"100 outliers | slow-read victim[10] 16.9µs | 1>0",
		"100 outlier slow-read | slow-read victim[10] 16.9µs | 0>1",
		"1000 outlier slow-read | blocked S in system call 0 | 0>0",
		"6000 CPU 0: wakes | softirq NET_RX wakes victim[10] | 1>0",
		"6000 outlier slow-read | runnable on CPU 0 | 0>1",
		"16000 outlier slow-read | running on CPU 0 | 0>0",
	}
	assert.Check(t, strings.Join(got, "\n") == strings.Join(want, "\n"),
		"drawn:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// unknownField is how protoc prints what its schema does not have.
var unknownField = regexp.MustCompile(`(?m)^ *\d+(:| \{)`)

// protoc is an independent reader: it finds nothing that the schema does not
// have, and each event once.
func TestPerfettoByProtoc(t *testing.T) {
	path, err := exec.LookPath("protoc")
	if err != nil {
		t.Skip("needs protoc (apt install protobuf-compiler)")
	}
	r := newRecords(1, bootNS)
	r.everyType()
	r.busy(400)
	for _, dir := range []string{story(t), writeSnapshot(t, traceOf(r), nil, nil)} {
		out, res := exported(t, dir, all(Perfetto, Stdout))
		cmd := exec.CommandContext(t.Context(), path, "--proto_path=perfetto", "--decode=perfetto.protos.Trace", "perfetto/trace.proto")
		cmd.Stdin = bytes.NewReader(out)
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		text, err := cmd.Output()
		assert.NilError(t, err, "protoc: %v\n%s", err, complaints.String())
		m := unknownField.Find(text)
		assert.Check(t, m == nil, "trace.proto does not have %q", m)
		markers := bytes.Count(text, []byte(`name: "outliers"`)) * 2
		n := bytes.Count(text, []byte("\n    event {\n"))
		want := int(res.Events+res.Inserted) - markers
		assert.Check(t, n == want, "protoc finds %d ftrace events, the trace has %d", n, want)
	}
}

// TestPerfettoUnseen: where the kernel left out a switch, the slice of the task that had the
// CPU ends with its last event.
func TestPerfettoUnseen(t *testing.T) {
	r := newRecords(1, bootNS)
	r.swtch(0, "swapper", 0, 7, "seven")
	r.now += 1000
	r.wake(7, 30, "thirty")
	r.now += 1_000_000_000 // seven left meanwhile
	r.swtch(9, "nine", 1, 0, "swapper")
	out, res := exported(t, writeSnapshot(t, traceOf(r), nil, nil), all(Perfetto, Stdout))
	p := decode(t, out)
	assert.Check(t, is.Equal(p.ftrace, int(res.Events)+2))
	assert.Check(t, is.Equal(res.Inserted, uint64(2)))
	var notes []string
	for _, e := range p.events {
		notes = append(notes, fmt.Sprintf("%d %s: %s", e.time-bootNS, p.tracks[e.track], e.name))
	}
	assert.Check(t, is.DeepEqual(notes, []string{"1000 CPU 1: switches not seen: seven[7] left this CPU, unseen"}))
	var switches []string
	each(t, out, func(_ protowire.Number, packet []byte, _ uint64) {
		each(t, packet, func(f protowire.Number, bundle []byte, _ uint64) {
			if f != 1 {
				return
			}
			each(t, bundle, func(f protowire.Number, b []byte, _ uint64) {
				if f == 2 {
					switches = append(switches, switchOf(t, b))
				}
			})
		})
	})
	assert.Check(t, is.DeepEqual(switches, []string{"0: 0 > 7", "1000: wakes", "1000: 7 > 0", "1000001000: 0 > 9", "1000001000: 9 > 0"}))
}

// switchOf describes a switch of Perfetto's ftrace events, or anything else as a wake-up.
func switchOf(t *testing.T, event []byte) string {
	var at, prev, next uint64
	text := "wakes"
	each(t, event, func(f protowire.Number, b []byte, v uint64) {
		switch f {
		case 1:
			at = v - bootNS
		case 4:
			each(t, b, func(f protowire.Number, _ []byte, v uint64) {
				switch f {
				case 2:
					prev = v
				case 6:
					next = v
				}
			})
			text = fmt.Sprintf("%d > %d", prev, next)
		}
	})
	return fmt.Sprintf("%d: %s", at, text)
}

// TestPerfettoRenamed: a task that changes its name says so where it does.
func TestPerfettoRenamed(t *testing.T) {
	r := newRecords(1, bootNS)
	r.swtch(0, "swapper", 0, 7, "before")
	r.now += 1000
	r.swtch(7, "after", 1, 0, "swapper")
	r.now += 1000
	r.swtch(0, "swapper", 0, 7, "after")
	out, _ := exported(t, writeSnapshot(t, traceOf(r), nil, nil), all(Perfetto, Stdout))
	p := decode(t, out)
	assert.Assert(t, is.Len(p.events, 1))
	assert.Check(t, is.Equal(p.events[0].name, "before is called after"))
}
