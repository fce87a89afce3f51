package demo

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

// Frames of a stack that are printed; the rest is in the snapshot.
const (
	kernelFrames = 6
	userFrames   = 3
)

// printResult shows one latency to a person.
func printResult(c *term.Console, r *Result) {
	c.Printf("%s  %s\n", c.Paint(term.Bold, r.Track), r.Title)
	p := lines{c}
	if r.InjectedNS > 0 {
		p.line("injected", fmt.Sprintf("%s  %s", c.Paint(term.Bold, term.Duration(r.InjectedNS)),
			c.Paint(term.Dim, term.Clean(r.Injected.Detail))))
	}
	if o := r.Outlier; o != nil {
		style := term.Green
		if r.Error != "" {
			style = term.BoldRed
		}
		p.line("reported", fmt.Sprintf("%s  %s", c.Paint(style, term.Duration(o.DelayNS)),
			c.Paint(term.Dim, fmt.Sprintf("threshold %s", term.Setting(o.ThresholdNS)))))
		if r.Verdict != "" {
			p.paragraph("verdict", term.Clean(r.Verdict))
		}
		p.who(o)
		p.stack("kernel", events.StackLines(o.Stacks.Kernel, o.Stacks.KernelSources()), kernelFrames)
		p.stack("user", events.StackLines(o.Stacks.User, o.Stacks.UserSources()), userFrames)
	}
	if r.Snapshot != nil {
		p.line("snapshot", term.Clean(*r.Snapshot))
		p.line("", c.Paint(term.Dim, fmt.Sprintf("%s events on %d CPUs, %s of history before it began",
			term.Count(r.Events), r.CPUs, term.Duration(r.HistoryNS))))
		for _, note := range r.Notes {
			p.line("note", c.Paint(term.Yellow, term.Clean(note)))
		}
	}
	if r.Error != "" {
		p.line("failed", c.Paint(term.BoldRed, term.Clean(r.Error)))
	}
}

// printNextSteps suggests what to do with the snapshots.
func printNextSteps(c *term.Console, dir, last string) {
	c.Printf("\n%s  Snapshots are in %s; everything else was removed.\n", c.Paint(term.Green, "All four were caught."), term.Clean(dir))
	p := lines{c}
	p.line("explain one", "tailcam explain "+term.Clean(last))
	p.line("its trace", "tailcam export "+term.Clean(last)+" --format ctf -O trace && babeltrace2 trace")
	p.line("real rules", "sudo tailcam run --rules configs/rules.d --log-format console")
}

// lines prints labelled, indented lines.
type lines struct{ c *term.Console }

func (p lines) line(label, text string) {
	pad := strings.Repeat(" ", max(0, 11-utf8.RuneCountInString(label)))
	p.c.Printf("  %s%s  %s\n", p.c.Paint(term.Dim, label), pad, text)
}

// paragraph prints a text in lines that can be read at a glance.
func (p lines) paragraph(label, text string) {
	for _, line := range term.Wrap(text, 100) {
		p.line(label, p.c.Paint(term.Bold, line))
		label = ""
	}
}

// who says which task was slow, and what the others did.
func (p lines) who(o *events.Outlier) {
	task := events.Peer{PID: o.Task.PID, TID: o.Task.TID, Comm: o.Task.Comm}
	p.line("task", fmt.Sprintf("%s on CPU %d", term.Peer(task), o.CPU))
	// Who ran for a tenth of the time has not kept anyone from running.
	if o.OnCPU != nil && o.OnCPU.RanNS > o.DelayNS/10 {
		p.line("ran instead", fmt.Sprintf("%s for %s on CPU %d", term.Peer(o.OnCPU.Peer), term.Duration(o.OnCPU.RanNS), o.OnCPU.CPU))
	}
	if o.Syscall != nil {
		call := term.Clean(o.Syscall.Name)
		if o.Syscall.Ret != nil {
			call += fmt.Sprintf(" = %d", *o.Syscall.Ret)
		}
		p.line("system call", call)
	}
	if b := o.Block; b != nil {
		p.line("request", fmt.Sprintf("%s of %s at sector %d of %s",
			term.Clean(b.Op), term.Bytes(uint64(b.Bytes)), b.Sector, term.Clean(b.Device)))
	}
	if o.Waker != nil {
		p.line("woken by", term.Waker(o.Waker))
	}
}

func (p lines) stack(label string, frames []string, most int) {
	shown := frames[:min(len(frames), most)]
	for i, f := range shown {
		more := ""
		if rest := len(frames) - len(shown); i == len(shown)-1 && rest > 0 {
			more = p.c.Paint(term.Dim, fmt.Sprintf("  and %d more", rest))
		}
		p.line(label, term.Clean(f)+more)
		label = ""
	}
}
