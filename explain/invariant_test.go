package explain

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// events is a Source.
type events []trace.Event

func (e *events) Next() (trace.Event, error) {
	if len(*e) == 0 {
		return trace.Event{}, io.EOF
	}
	ev := (*e)[0]
	*e = (*e)[1:]
	return ev, nil
}

// explained explains outliers, and holds what comes out against all that is
// true of any explanation of any trace.
func explained(t testing.TB, src Source, outliers []Outlier, names Names) *Report {
	t.Helper()
	first := &readFirst{t: t, Source: src}
	r, err := Explain(first, outliers, first.watch(names))
	assert.NilError(t, err)
	assert.Assert(t, len(r.Outliers) == len(outliers),
		"%d explanations of %d outliers", len(r.Outliers), len(outliers))
	for i := range r.Outliers {
		if err := check(&outliers[i], &r.Outliers[i]); err != nil {
			text, _ := json.MarshalIndent(&r.Outliers[i], "", " ")
			t.Fatalf("outlier %+v: %v\n%.20000s", outliers[i], err, text)
		}
	}
	return r
}

// check tells what is wrong with a result whatever its trace is.
func check(o *Outlier, r *Result) error {
	if want := int64(max(o.End, o.Start) - o.Start); r.DelayNS != want {
		return fmt.Errorf("delay %d, want %d", r.DelayNS, want)
	}
	for name, parts := range map[string][]Part{"parts": r.Parts, "roots": r.Roots} {
		var sum int64
		for i := range parts {
			p := &parts[i]
			switch {
			case p.NS <= 0 || p.Count <= 0:
				return fmt.Errorf("%s: an empty part %+v", name, p)
			case i > 0 && p.NS > parts[i-1].NS:
				return fmt.Errorf("%s are not sorted", name)
			case p.Cause == Unexplained && p.Reason == "":
				return fmt.Errorf("%s: unexplained without a reason", name)
			case p.Cause != Unexplained && (p.By == nil || p.By.Kind == "" || p.By.Name == ""):
				return fmt.Errorf("%s: %+v by nobody", name, p)
			}
			sum += p.NS
		}
		if sum != r.DelayNS {
			return fmt.Errorf("%s add up to %d, the delay is %d", name, sum, r.DelayNS)
		}
	}
	sums := map[Cause]int64{}
	for i := range r.Parts {
		sums[r.Parts[i].Cause] += r.Parts[i].NS
	}
	for c, ns := range sums {
		if ns > sums[r.Blame.Cause] {
			return fmt.Errorf("%s took %d, which is more than the %d of %s", c, ns, sums[r.Blame.Cause], r.Blame.Cause)
		}
	}
	if r.DelayNS > 0 && (!slices.Contains(r.Parts, r.Blame) || len(r.Path) == 0) {
		return fmt.Errorf("blame %+v, path of %d steps", r.Blame, len(r.Path))
	}
	if err := cmp.Or(checkPath(o, r), checkBefore(r)); err != nil {
		return err
	}
	for _, s := range []string{r.Verdict, r.Advice} {
		if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) || strings.Contains(s, "  ") {
			return fmt.Errorf("not fit for a terminal: %q", s)
		}
	}
	if !strings.HasSuffix(r.Verdict, ".") || r.Advice != "" && !strings.HasSuffix(r.Advice, ".") {
		return fmt.Errorf("no sentence: %q, %q", r.Verdict, r.Advice)
	}
	var text strings.Builder
	if r.WriteText(&text); !strings.HasPrefix(text.String(), r.Verdict+"\n") {
		return fmt.Errorf("the text does not begin with the verdict: %q", text.String())
	}
	return nil
}

// checkBefore: what is compared is of the outlier, and what changed is longer than before.
func checkBefore(r *Result) error {
	b := r.Before
	if b == nil {
		return nil
	}
	if b.Count < minPast || b.Compared > min(maxCompared, b.Count) || b.NS > r.DelayNS || b.MedianNS <= 0 || b.MaxNS < b.MedianNS ||
		b.SpanNS < b.MaxNS || len(b.Changes) > maxChanges || len(b.Changes) > 0 && (b.Compared < minCompared || b.NS <= b.MedianNS) {
		return fmt.Errorf("before: %+v", b)
	}
	var sum int64
	for i := range b.Changes {
		c := &b.Changes[i]
		if sum += c.NS; c.NS <= c.BeforeNS || c.New && c.BeforeNS > 0 || c.Confidence.rank() > b.Confidence.rank() || c.Words == "" {
			return fmt.Errorf("change %+v", c)
		}
	}
	if sum > b.NS {
		return fmt.Errorf("changes add up to %d of %d", sum, b.NS)
	}
	if text := b.Text(r.Cause); strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) || !strings.HasSuffix(text, ".") {
		return fmt.Errorf("not fit for a terminal: %q", text)
	}
	return nil
}

// checkPath: no gap and no overlap at depth 0, and deeper steps within the one above.
func checkPath(o *Outlier, r *Result) error {
	var ends []uint64 // of the latest step of each depth
	for i := range r.Path {
		s := &r.Path[i]
		if s.FromMonoNS >= s.ToMonoNS || s.Depth < 0 || s.Depth > len(ends) {
			return fmt.Errorf("step %d is impossible: %+v", i, s)
		}
		at := o.Start
		if s.Depth < len(ends) {
			at = ends[s.Depth] // it follows a step of its own depth
		} else if s.Depth > 0 {
			at = r.Path[i-1].FromMonoNS
		}
		if s.FromMonoNS != at {
			return fmt.Errorf("step %d of depth %d begins at %d, not at %d", i, s.Depth, s.FromMonoNS, at)
		}
		if s.Depth > 0 && s.ToMonoNS > ends[s.Depth-1] {
			return fmt.Errorf("step %d ends after the one above it", i)
		}
		ends = append(ends[:s.Depth], s.ToMonoNS)
	}
	if len(ends) > 0 && ends[0] != o.End {
		return fmt.Errorf("the path ends at %d, the outlier at %d", ends[0], o.End)
	}
	return nil
}

// record makes an event the way the kernel side does.
type record struct{ r trace.Record }

func newRecord(kind trace.Type, at uint64, cpu, tid int) *record {
	return &record{trace.MakeRecord(kind, cpu, tid, at)}
}

func (x *record) u16(off int, v uint16) *record {
	binary.LittleEndian.PutUint16(x.r[off:], v)
	return x
}

func (x *record) u32(off int, v uint32) *record {
	binary.LittleEndian.PutUint32(x.r[off:], v)
	return x
}

func (x *record) u64(off int, v uint64) *record {
	binary.LittleEndian.PutUint64(x.r[off:], v)
	return x
}

// FuzzExplain: any records at all, in order or not, of every tracker.
func FuzzExplain(f *testing.F) {
	s := newSimulation(1, 3, 6)
	s.run(300)
	var seed []byte
	for i := range s.records {
		seed = append(seed, s.records[i][:]...)
	}
	for n := range len(tracks) {
		f.Add(seed, uint8(n), uint16(10), uint32(200_000), uint8(n), true)
	}
	for kind := trace.SchedSwitch; kind <= trace.Interrupts; kind++ {
		f.Add(append(newRecord(kind, 5, 1, 1001).r[:], seed[:640]...), uint8(kind), uint16(1), uint32(9_000), uint8(1), kind%2 == 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, track uint8, begin uint16, length uint32, task uint8, ordered bool) {
		var list events
		var last uint64
		for len(data) >= trace.RecordSize && len(list) < 20_000 {
			var r trace.Record
			copy(r[:], data)
			data = data[trace.RecordSize:]
			ev, err := r.Decode()
			if err != nil {
				continue
			}
			if ordered { // as a trace's reader has it
				ev.Time = max(ev.Time, last)
				last = ev.Time
			}
			list = append(list, ev)
		}
		asked := slices.Clone(list)
		start := uint64(begin)
		if len(list) > 0 {
			start += list[0].Time
		}
		o := Outlier{
			Rule: "r", Track: tracks[int(track)%len(tracks)], Cause: []string{"threshold", "timeout"}[track%2], Start: start, End: start + uint64(length),
			TID: 1000 + int(task)%8, CPU: int(task) % 4, Name: "NET_RX", Raised: track%3 == 0, Sector: uint64(task), Device: "vda", Syscall: "read",
		}
		switch task % 5 {
		case 1:
			o.Key = map[string]uint64{"rq": 0xffff0000 + 1000 + uint64(task)%8, "x": uint64(begin)}
		case 2:
			o.Began = "\x1b[31m 7"
		case 3:
			o.Loose, o.User = true, []string{"", "sem_wait", "\x00"}
		}
		explained(t, &list, []Outlier{o, {Track: "offcpu", TID: 1001, Start: start, End: start + 1}}, Names{})
		again := o
		again.TID, again.Key, again.Labels = 1001, nil, map[string]string{"query": "\x1b[2J  \n", "": ""}
		explained(t, &asked, []Outlier{o, again}, anybody)
	})
}

// anybody may be a server or a client, and waits for input in all system calls, in most for that
// of many.
var anybody = Names{
	Syscall: func(nr int) string { return []string{"epoll_wait", "poll", "epoll_wait", "read"}[nr&3] },
	Task: func(tid int) (TaskInfo, bool) {
		return TaskInfo{PID: tid, PPID: tid / 3, Comm: "\x1b[31m"}, tid%5 > 0
	},
	Sockets: func(pid int) (Sockets, bool) {
		return Sockets{Listens: pid%4 == 0, Accepted: pid % 3, Connections: []Connection{{"\x00a", "b  c", pid%2 == 0}}}, pid%7 > 0
	},
}

var tracks = []string{"wakeup", "offcpu", "syscall", "block", "irq", "softirq", "pair", "chain", "span", "workqueue"}
