package timeline

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

const ms = 1_000_000

func task(comm string, tid int) explain.Who {
	return explain.Who{Kind: explain.KindTask, Name: fmt.Sprintf("%s %d", comm, tid), Comm: comm, TID: tid, PID: tid, Prio: 120}
}

// commit is an fsync that waits for the journal, which waits for a disk behind
// somebody else's writes.
func commit() *explain.Result {
	me, jbd := task("postgres", 1234), task("jbd2/sda-8", 321)
	bulk, sda := task("backup", 77), explain.Who{Kind: explain.KindDevice, Name: "sda", Device: "sda"}
	hog := task("rt-hog", 99)
	hog.Prio, hog.Policy = 49, "SCHED_FIFO"
	step := func(from, to uint64, t explain.Who, depth int, state string, cause explain.Cause, by *explain.Who, waker *explain.Who) explain.Step {
		return explain.Step{FromMonoNS: 1000*ms + from, ToMonoNS: 1000*ms + to, Task: t, CPU: -1, Depth: depth, State: state, Cause: cause, By: by, Waker: waker}
	}
	return &explain.Result{
		Rule: "fsync", Track: "syscall", DelayNS: 50 * ms, StartMonoNS: 1000 * ms, EndMonoNS: 1050 * ms, Task: me,
		Verdict: "postgres 1234 spent 50.0 ms in fdatasync: 38.0 ms waiting for the journal commit of jbd2/sda-8 321, 10.0 ms behind rt-hog 99.",
		Advice:  "Limit the I/O of backup 77.",
		Blame:   explain.Part{Cause: explain.Journal, By: &jbd, NS: 38 * ms, Count: 1},
		Parts: []explain.Part{{Cause: explain.Journal, By: &jbd, NS: 38 * ms, Count: 1}, {Cause: explain.Preempted, By: &hog, NS: 10 * ms, Count: 3},
			{Cause: explain.RunningKernel, By: &me, NS: 2 * ms, Count: 1}},
		Roots: []explain.Part{{Cause: explain.BlockQueue, By: &bulk, NS: 30 * ms, Count: 1}, {Cause: explain.Preempted, By: &hog, NS: 10 * ms, Count: 3},
			{Cause: explain.BlockDevice, By: &sda, NS: 8 * ms, Count: 1}, {Cause: explain.RunningKernel, By: &me, NS: 2 * ms, Count: 1}},
		Path: []explain.Step{
			step(0, 2*ms, me, 0, "running", explain.RunningKernel, &me, nil),
			step(2*ms, 40*ms, me, 0, "blocked", explain.Journal, &jbd, &jbd),
			step(2*ms, 32*ms, jbd, 1, "blocked", explain.BlockQueue, &bulk, nil),
			step(32*ms, 40*ms, jbd, 1, "blocked", explain.BlockDevice, &sda, nil),
			step(40*ms, 50*ms, me, 0, "runnable", explain.Preempted, &hog, nil),
		},
	}
}

func draw(r *explain.Result, columns int, color bool) string {
	var b bytes.Buffer
	Print(term.New(&b, &term.Options{Terminal: true, Color: color, Columns: columns}), r)
	return b.String()
}

func TestPrint(t *testing.T) {
	want := `postgres 1234 spent 50.0 ms in fdatasync: 38.0 ms waiting for the journal commit of jbd2/sda-8 321,
10.0 ms behind rt-hog 99.
Limit the I/O of backup 77.

                            0             10ms          20ms           30ms          40ms       50ms
                            ┌─────────────┬─────────────┬──────────────┬─────────────┬─────────────┐
postgres[1234]              ███░░░░░░░░░░░ journal commit: jbd2/sda-8[321] ░░░░░░░░░░░▒ preempted ▒▒
└ jbd2/sda-8[321]             ░░░░░░░ disk queue behind backup[77] ░░░░░░░░░░ disk ░░░
 └ backup[77]                 ▁███████████████████████████████████████████▁
 └ sda                                                                    ███████████▅
└ rt-hog[99] SCHED_FIFO 50                                                           ▄██████████████

where the time went
  38.0ms  76.0%  ████████████▏     journal commit: jbd2/sda-8[321]
  10.0ms  20.0%  ███▏              preempted by rt-hog[99] (SCHED_FIFO 50), 3 times
  2.00ms   4.0%  ▋                 running in the kernel: postgres[1234]

root causes
  30.0ms  60.0%  █████████▌        disk queue behind backup[77]
  10.0ms  20.0%  ███▏              preempted by rt-hog[99] (SCHED_FIFO 50), 3 times
  8.00ms  16.0%  ██▌               disk: sda
  2.00ms   4.0%  ▋                 running in the kernel: postgres[1234]
`
	assert.Check(t, is.DeepEqual(want, draw(commit(), 100, false)))
}

// No line is wider than the terminal, at any width, in colours or not, whatever
// the names; and rows stand below each other.
func TestWidths(t *testing.T) {
	wide, hostile := commit(), commit()
	wide.Path[1].By.Comm, wide.Path[2].Task.Comm, wide.Task.Comm = "日本語の名前", "日本語の名前", "漢字漢字漢字漢"
	wide.Verdict = strings.Repeat("漢字", 70) + " e\u0301e\u0301 " + strings.Repeat("x", 300)
	hostile.Task.Comm, hostile.Path[2].By.Comm = "\x1b[2J\x1b]0;x\a", "a\nb\u202e\r\xff"
	hostile.Verdict, hostile.Advice = "\x1b[31mred\n\rline", "\u202eadvice\x00"
	hostile.Path[0].Why = "\x1b[5mwhy\n"
	step := 1
	if testing.Short() {
		step = 23
	}
	for name, r := range map[string]*explain.Result{"plain": commit(), "wide": wide, "hostile": hostile} {
		for columns := 1; columns <= 260; columns += step {
			plain := draw(r, columns, false)
			limit := min(max(columns, term.MinColumns), term.MaxColumns)
			for line := range strings.Lines(plain) {
				line = strings.TrimSuffix(line, "\n")
				n := term.Width(line)
				assert.Assert(t, n <= limit, "%s at %d columns: %d columns: %q", name, columns, n, line)
				assert.Assert(t, term.Clean(line) == line, "%s at %d columns: %q", name, columns, line)
			}
			assert.Assert(t, uncolored(draw(r, columns, true)) == plain,
				"%s at %d columns: the colours change the text", name, columns)
		}
	}
}

// uncolored takes the colours out again.
func uncolored(s string) string {
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			return s
		}
		end := strings.IndexByte(s[i:], 'm')
		s = s[:i] + s[i+end+1:]
	}
}

func TestPicture(t *testing.T) {
	p := New(commit(), 20)
	var rows []string
	for _, r := range p.Rows {
		rows = append(rows, fmt.Sprintf("%s %d %v %d", r.Name, r.Depth, r.Path, len(r.Bars)))
	}
	want := []string{"postgres[1234] 0 true 3", "jbd2/sda-8[321] 1 true 2", "backup[77] 2 false 1", "sda 2 false 1", "rt-hog[99] 1 false 1"}
	assert.Check(t, is.DeepEqual(want, rows))
	assert.Check(t, is.DeepEqual([]Arrow{{At: 1040 * ms, From: 1, To: 0}}, p.Arrows))
	// A disk in a page fault of the same task.
	fault := commit()
	fault.Path = fault.Path[:2]
	fault.Path[1].Cause, fault.Path[1].By = explain.PageFault, &explain.Who{Kind: explain.KindDevice, Name: "sda"}
	below := fault.Path[1]
	below.Depth, below.Cause = 1, explain.BlockDevice
	fault.Path = append(fault.Path, below)
	p = New(fault, 20)
	rows = nil
	for _, r := range p.Rows {
		rows = append(rows, fmt.Sprintf("%s %d %s", r.Name, r.Depth, r.Bars[len(r.Bars)-1].Cause))
	}
	if diff := cmp.Diff([]string{"postgres[1234] 0 page_fault", "postgres[1234] 1 block_device", "sda 2 block_device"}, rows); diff != "" {
		t.Error(diff)
	}
	// Many culprits: the largest have rows, the rest one.
	crowd := commit()
	crowd.Path = nil
	for i := range uint64(50) {
		by := task(fmt.Sprintf("busy-%d", i), 500+int(i))
		crowd.Path = append(crowd.Path, explain.Step{FromMonoNS: 1000*ms + i*ms, ToMonoNS: 1000*ms + (i+1)*ms, Task: crowd.Task, State: "runnable", Cause: explain.Runnable, By: &by})
	}
	p = New(crowd, 10)
	if n := len(p.Rows); n != 10 || p.Rows[9].Name != "42 more" || p.Left != 42 || len(p.Rows[9].Bars) != 42 {
		t.Errorf("%d rows, %d left out: %+v", n, p.Left, p.Rows[n-1])
	}
	for _, c := range []struct {
		whole uint64
		want  string
	}{{20 * ms, "0ns 5ms 10ms 15ms 20ms"}, {3, "0ns 1ns 2ns 3ns"}, {64_123_456, "0ns 20ms 40ms 60ms"}, {3600e9, "0ns 1000s 2000s 3000s"}, {1, "0ns 1ns"}} {
		var got []string
		for _, at := range ticks(c.whole, 5) {
			got = append(got, axisTime(at))
		}
		assert.Check(t, is.Equal(strings.Join(got, " "), c.want), "ticks of %d", c.whole)
	}
	n := len(ticks(1<<64-1, 5))
	assert.Check(t, n <= 6, "%d ticks of the longest time", n)
}

// wellFormed checks that a picture is XML that runs and loads nothing.
func wellFormed(t *testing.T, data []byte) (texts []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		assert.NilError(t, err, "in\n%s", data)
		switch x := token.(type) {
		case xml.StartElement:
			switch x.Name.Local {
			case "svg", "title", "style", "rect", "g", "text", "tspan", "line", "path":
			default:
				t.Errorf("element %s", x.Name.Local)
			}
			for _, a := range x.Attr {
				assert.Check(t, !strings.HasPrefix(a.Name.Local, "on") && a.Name.Local != "href",
					"attribute %s of %s", a.Name.Local, x.Name.Local)
			}
		case xml.CharData:
			texts = append(texts, string(x))
		}
	}
}

func TestSVG(t *testing.T) {
	hostile := commit()
	hostile.Task.Comm, hostile.Verdict = `<script>alert(1)</script>`, "\x1b[31m]]> <b>&amp; \x00\xff"
	hostile.Path[1].Cause, hostile.Parts[0].Cause = `x" onload="y`, `}*{display:none}`
	var b bytes.Buffer
	assert.NilError(t, SVG(&b, []explain.Result{*commit(), *hostile}))
	texts := strings.Join(wellFormed(t, b.Bytes()), "\n")
	for _, want := range []string{"postgres[1234]", "jbd2/sda-8[321]", "rt-hog[99]", "SCHED_FIFO 50", "20ms", "disk queue behind backup[77]", "38.0ms", "Where the time went",
		"Root causes", "prefers-color-scheme:dark", "<script>alert(1)</script>[1234]", `\x1b[31m]]>`, "for 30.0ms, from 2.00ms on"} {
		assert.Check(t, strings.Contains(texts, want), "no %q", want)
	}
	b.Reset()
	err := SVG(&b, nil)
	assert.Check(t, err == nil && strings.Contains(strings.Join(wellFormed(t, b.Bytes()), ""), "taken by hand"),
		"none: %v, %s", err, b.String())
	// A picture of the longest path stays small.
	long := commit()
	long.Path = nil
	for i := range uint64(20_000) {
		long.Path = append(long.Path, explain.Step{FromMonoNS: 1000*ms + i*2500, ToMonoNS: 1000*ms + (i+1)*2500, Task: long.Task, State: "running",
			Cause: []explain.Cause{explain.RunningUser, explain.RunningKernel}[i%2]})
	}
	b.Reset()
	err = SVG(&b, []explain.Result{*long})
	assert.Check(t, err == nil && b.Len() <= 1<<20, "%d bytes, %v", b.Len(), err)
	b.Reset()
	err = SVG(&b, make([]explain.Result, 1000))
	assert.Check(t, err == nil && strings.Contains(strings.Join(wellFormed(t, b.Bytes()), ""), "and 950 more"),
		"many: %v", err)
	assert.Check(t, SVG(full{}, []explain.Result{*commit()}) != nil, "a full disk is not told")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

// An explanation may come from anywhere: whatever it says, it is drawn, within
// the terminal, and as XML.
func FuzzDraw(f *testing.F) {
	data, err := json.Marshal(commit())
	assert.NilError(f, err)
	f.Add(data, uint8(100))
	f.Add(data, uint8(0))
	f.Add([]byte(`{"start_mono_ns":5,"end_mono_ns":1,"path":[{"from_mono_ns":9,"to_mono_ns":2,"depth":-1}],"parts":[{"ns":-5}]}`), uint8(40))
	f.Add([]byte(`{"end_mono_ns":18446744073709551615,"delay_ns":-1,"path":[{"to_mono_ns":18446744073709551615,"depth":99,"cpu":-7,"by":{"kind":"x"}}],"parts":[{"ns":9223372036854775807,"by":{}}]}`), uint8(200))
	f.Fuzz(func(t *testing.T, data []byte, columns uint8) {
		var r explain.Result
		if json.Unmarshal(data, &r) != nil {
			return
		}
		limit := term.New(io.Discard, &term.Options{Terminal: true, Columns: int(columns)}).Columns() // 0: as wide as a page
		for line := range strings.Lines(draw(&r, int(columns), false)) {
			line = strings.TrimSuffix(line, "\n")
			assert.Check(t, term.Width(line) <= limit && term.Clean(line) == line,
				"at %d columns: %q", columns, line)
		}
		var b bytes.Buffer
		assert.Check(t, SVG(&b, []explain.Result{r}))
		wellFormed(t, b.Bytes())
	})
}
