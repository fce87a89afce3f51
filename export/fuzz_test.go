package export

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/export/perfetto"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// A trace may come from anywhere. Whatever its events say, each becomes one
// line of JSON and of text and one event for Perfetto, by that format's rules.
func FuzzExport(f *testing.F) {
	r := newRecords(0, bootNS)
	r.everyType()
	var seed []byte
	for i := range r.out {
		seed = append(seed, r.out[i][:]...)
	}
	f.Add(seed, uint64(bootNS), uint64(2000), uint16(1001), "rule", "wakeup", "sym+0x1 (mod)")
	f.Add(seed, uint64(bootNS), uint64(0), uint16(0), "", "irq", "")
	f.Fuzz(func(t *testing.T, data []byte, start, length uint64, tid uint16, rule, track, frame string) {
		decoded := decodeAll(data)
		m := trace.Marker{Rule: rule, Track: track, PID: int(tid), Comm: trace.MakeComm(frame)}
		mark := func(typ trace.Type, at uint64) trace.Event {
			return trace.Event{Time: at, Type: typ, TID: int(tid), Body: m}
		}
		list := append([]trace.Event{mark(trace.OutlierEntry, start)}, decoded...)
		list = append(list, mark(trace.OutlierExit, start+length))

		names := &names{}
		var asJSON, asText, asPerfetto, folded bytes.Buffer
		j := &jsonSink{out: bufio.NewWriter(&asJSON), names: &names.fields, offset: time.Hour}
		x := &textSink{out: bufio.NewWriter(&asText), names: names, cpus: map[int]current{}}
		p := perfetto.NewWriter(&asPerfetto, &perfetto.Options{
			Explained: &explain.Report{Outliers: []explain.Result{{Rule: rule, Path: []explain.Step{
				{FromMonoNS: start, ToMonoNS: start + length, Depth: int(tid) % 3},
				{FromMonoNS: start + length, ToMonoNS: start, Depth: int(tid) - 1, By: &explain.Who{Name: frame}},
				{FromMonoNS: start, ToMonoNS: start + length/2, Depth: 1 + int(tid)%3, Task: explain.Who{TID: int(tid), Comm: frame}},
				{FromMonoNS: start + length/2, ToMonoNS: start + length, Depth: int(tid) % 3, Waker: &explain.Who{Name: rule}},
			}}}},
			Outliers: []events.Outlier{{Rule: rule, Stacks: events.Stacks{Kernel: []string{frame}, User: []string{frame, rule}}}},
		})
		on, off := flame.NewTimes(flame.OnCPU, &names.fields, nil), flame.NewTimes(flame.OffCPU, &names.fields, nil)
		for i := range list {
			for _, s := range []sink{j, x, p} {
				assert.NilError(t, s.Event(&list[i]))
			}
			on.Event(&list[i])
			off.Event(&list[i])
		}
		for _, s := range []sink{j, x, p} {
			assert.NilError(t, s.Close(func(int) uint64 { return 1 }))
		}
		for line := range bytes.Lines(asJSON.Bytes()) {
			assert.Assert(t, json.Valid(line), "no JSON: %s", line)
		}
		if a, b := bytes.Count(asJSON.Bytes(), []byte("\n")), bytes.Count(asText.Bytes(), []byte("\n")); a != len(list) || b != len(list) {
			t.Fatalf("%d lines of JSON, %d of text, %d events", a, b, len(list))
		}
		d := decode(t, asPerfetto.Bytes())
		assert.Assert(t, d.ftrace == len(decoded)+int(p.Inserted()), "%d ftrace events of %d, and %d inserted", d.ftrace, len(decoded), p.Inserted())
		for _, s := range []*flame.Times{on, off} {
			assert.NilError(t, s.Close().WriteFolded(&folded))
		}
	})
}

// decodeAll takes bytes for records, and makes their times and CPUs possible.
func decodeAll(data []byte) []trace.Event {
	var out []trace.Event
	for now := uint64(bootNS); len(data) >= trace.RecordSize; data = data[trace.RecordSize:] {
		r := trace.Record(data[:trace.RecordSize])
		le := binary.LittleEndian
		now += r.Time() % (1 << 20)
		le.PutUint64(r[abi.OffTimeNs:], now)
		le.PutUint16(r[abi.OffCpu:], uint16(r.CPU()%1024))
		if ev, err := r.Decode(); err == nil {
			out = append(out, ev)
		}
	}
	return out
}
