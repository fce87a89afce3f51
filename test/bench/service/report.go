package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// report is the JSON.
type report struct {
	Machine machine  `json:"machine"`
	Seconds int      `json:"seconds"`           // that it took
	Pinned  bool     `json:"pinned,omitempty"`  // servers to one CPU, clients to another
	Missing []string `json:"missing,omitempty"` // tools that are not installed
	Rounds  []round  `json:"rounds"`
	Results []result `json:"results"`

	loads    []load
	variants []variant
}

// result is one load under one variant.
type result struct {
	Load    string    `json:"load"`
	Variant string    `json:"variant"`
	NS      stat.Span `json:"ns"`    // of a request
	Ratio   stat.Span `json:"ratio"` // to nothing in the same round
	P50     stat.Span `json:"p50_ns,omitzero"`
	P50To   stat.Span `json:"p50_ratio,omitzero"`
	P99     stat.Span `json:"p99_ns"`
	P99To   stat.Span `json:"p99_ratio"`
	CPU     stat.Span `json:"cpu_ns"` // of a request
	CPUTo   stat.Span `json:"cpu_ratio"`
	// Of a tailcam: seconds that ringSize of a CPU holds, and bytes of an event.
	Coverage stat.Span `json:"coverage_s,omitzero"`
	Bytes    stat.Span `json:"bytes_per_event,omitzero"`
	// Of one with a budget: what it takes of the machine by its own account, and what it shed, in any round.
	Cost    stat.Span `json:"cost,omitzero"`
	Shed    []string  `json:"shed,omitempty"`
	Verdict string    `json:"verdict,omitempty"` // of a tailcam's ratio
	Target  float64   `json:"target,omitempty"`
	// Of a tailcam, by the name of a peer: its time to the peer's of the same round.
	Against map[string]stat.Span `json:"against,omitempty"`
}

func (r *report) fill(b *bench) {
	r.Rounds, r.loads, r.variants = b.rounds, b.loads, b.variants
	for i := range r.loads {
		l := &r.loads[i]
		for k := range r.variants {
			v := &r.variants[k]
			res := result{
				Load: l.name, Variant: v.name, NS: r.span(l.name, v.name, "", ns), Ratio: r.span(l.name, v.name, vNothing, ns),
				P50: r.span(l.name, v.name, "", p50), P50To: r.span(l.name, v.name, vNothing, p50),
				P99: r.span(l.name, v.name, "", p99), P99To: r.span(l.name, v.name, vNothing, p99),
				CPU: r.span(l.name, v.name, "", cpuTime), CPUTo: r.span(l.name, v.name, vNothing, cpuTime),
			}
			if v.ours {
				res.Coverage, res.Bytes = r.span(l.name, v.name, "", coverage), r.span(l.name, v.name, "", eventBytes)
				res.Cost, res.Shed = r.span(l.name, v.name, "", cost), r.shed(l.name, v.name)
				res.Target = l.target
				if v.host != "" {
					res.Target = 1 / leastThroughput
				}
				res.Verdict, res.Against = res.Ratio.Verdict(res.Target), map[string]stat.Span{}
				for _, p := range peers {
					if s := r.span(l.name, v.name, p.name, ns); s.N > 0 {
						res.Against[p.name] = s
					}
				}
			}
			r.Results = append(r.Results, res)
		}
	}
}

func ns(s sample) float64      { return s.NS }
func p50(s sample) float64     { return s.P50 }
func p99(s sample) float64     { return s.P99 }
func cpuTime(s sample) float64 { return s.CPU }

func coverage(s sample) float64   { return s.Coverage }
func eventBytes(s sample) float64 { return s.Bytes }
func cost(s sample) float64       { return s.Cost }

// shed lists what was shed in any round that counts, in the order of shedding.
func (r *report) shed(load, variant string) (parts []string) {
	for i := range r.Rounds {
		if r.Rounds[i].Dropped {
			continue
		}
		for _, p := range r.Rounds[i].Samples[variant][load].Shed {
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// span collects a number of each round that counts, divided by that of another
// variant in the same round, if one is named.
func (r *report) span(load, variant, over string, get func(sample) float64) stat.Span {
	var values []float64
	for i := range r.Rounds {
		if r.Rounds[i].Dropped {
			continue
		}
		x, y := get(r.Rounds[i].Samples[variant][load]), 1.0
		if over != "" {
			y = get(r.Rounds[i].Samples[over][load])
		}
		if x > 0 && y > 0 {
			values = append(values, x/y)
		}
	}
	return stat.Of(values)
}

func (r *report) result(load, variant string) *result {
	for i := range r.Results {
		if r.Results[i].Load == load && r.Results[i].Variant == variant {
			return &r.Results[i]
		}
	}
	return &result{}
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// print prints the tables as Markdown.
func (r *report) print(w io.Writer) {
	counted, worst := 0, 0.0
	for i := range r.Rounds {
		if !r.Rounds[i].Dropped {
			counted++
			worst = max(worst, r.Rounds[i].Steal)
		}
	}
	m := &r.Machine
	fmt.Fprintf(w, "%s, kernel %s, %s, %d CPUs: %d rounds", m.Time.Format("2006-01-02"), m.Kernel, m.Arch, m.CPUs, counted)
	if n := len(r.Rounds) - counted; n > 0 {
		fmt.Fprintf(w, ", %d more dropped for their steal", n)
	}
	if r.Pinned {
		fmt.Fprint(w, ", servers on one CPU, their clients on another")
	}
	fmt.Fprintf(w, "; steal at most %.1f %% of a round; the machine was %.0f %% busy before.\n", 100*worst, 100*m.Busy)
	if m.Foreign > 0 {
		fmt.Fprintf(w, "\"nothing\" is not quite: %d other BPF programs that trace were loaded.\n", m.Foreign)
	}
	for _, name := range r.Missing {
		fmt.Fprintf(w, "Not measured: %s is not installed.\n", name)
	}
	fmt.Fprintf(w, "\nTime of a request, to that with nothing in the same round: median, and where it lies at %.0f %%.\n\n", 100*stat.Confidence)
	r.table(w, func(res *result) (stat.Span, stat.Span) { return res.NS, res.Ratio })
	fmt.Fprintf(w, "\nCPU time of client and server for a request:\n\n")
	r.table(w, func(res *result) (stat.Span, stat.Span) { return res.CPU, res.CPUTo })
	fmt.Fprintf(w, "\nThe median of latencies as the client sees them, likewise:\n\n")
	r.table(w, func(res *result) (stat.Span, stat.Span) { return res.P50, res.P50To })
	fmt.Fprintf(w, "\nThe 99th percentile of latencies, likewise:\n\n")
	r.table(w, func(res *result) (stat.Span, stat.Span) { return res.P99, res.P99To })
	if slices.ContainsFunc(r.Results, func(res result) bool { return res.Coverage.N > 0 }) {
		fmt.Fprintf(w, "\nSeconds of history that %d MiB hold of the busiest CPU, and bytes of an event:\n\n", ringSize>>20)
		r.ours(w, r.history)
	}
	if slices.ContainsFunc(r.variants, func(v variant) bool { return v.ours }) {
		fmt.Fprintf(w, "\nWhat the daemon takes of the machine during a run, and snapshots that it writes, at the mean of the runs:\n\n")
		r.ours(w, r.daemon)
	}
	if slices.ContainsFunc(r.Results, func(res result) bool { return res.Cost.N > 0 }) {
		fmt.Fprintf(w, "\nWithin the budget, %d s after each load began: what tailcam takes of the machine by its own account, "+
			"and what it does without in any round:\n\n", int(settled.Seconds()))
		r.budget(w)
	}
	if slices.ContainsFunc(r.variants, func(v variant) bool { return v.host != "" }) {
		r.activities(w)
	}
	if slices.ContainsFunc(r.variants, func(v variant) bool { return v.ours && v.host == "" }) {
		fmt.Fprintf(w, "\nTargets; of the peers, the time with tailcam to the time with the peer:\n\n")
		r.targets(w)
	}
}

// table has a line for each variant and a column for each load that has the number.
func (r *report) table(w io.Writer, get func(*result) (absolute, ratio stat.Span)) {
	var columns []*load
	for i := range r.loads {
		if abs, _ := get(r.result(r.loads[i].name, vNothing)); abs.N > 0 {
			columns = append(columns, &r.loads[i])
		}
	}
	head, line := "|", "|---|"
	for _, l := range columns {
		head += " | " + l.title
		line += "---:|"
	}
	fmt.Fprintf(w, "%s |\n%s\n", head, line)
	for i := range r.variants {
		v := &r.variants[i]
		cells := "| " + v.title
		for _, l := range columns {
			absolute, ratio := get(r.result(l.name, v.name))
			if v.name == vNothing {
				cells += fmt.Sprintf(" | %s us", micro(absolute.Median))
			} else {
				cells += " | " + cell(ratio)
			}
		}
		fmt.Fprintln(w, cells+" |")
	}
}

// ours has a line for each tailcam and a column for each load.
func (r *report) ours(w io.Writer, cell func(load, variant string) string) {
	head, line := "|", "|---|"
	for i := range r.loads {
		head += " | " + r.loads[i].title
		line += "---:|"
	}
	fmt.Fprintf(w, "%s |\n%s\n", head, line)
	for k := range r.variants {
		v := &r.variants[k]
		if !v.ours {
			continue
		}
		cells := "| " + v.title
		for i := range r.loads {
			cells += " |" + cell(r.loads[i].name, v.name)
		}
		fmt.Fprintln(w, cells+" |")
	}
}

func (r *report) history(load, variant string) string {
	res := r.result(load, variant)
	if res.Coverage.N == 0 {
		return ""
	}
	return fmt.Sprintf(" %s s, %.0f B", cell(res.Coverage), res.Bytes.Median)
}

func (r *report) daemon(load, variant string) string {
	if r.result(load, variant).NS.N == 0 {
		return ""
	}
	mean := r.work(load, variant)
	return fmt.Sprintf(" %.1f %%, %.2f", 100*mean.Daemon, mean.Snapshots)
}

// work is the mean of the rounds that count: most runs have no snapshot, so that a median says little.
func (r *report) work(load, variant string) (mean daemonWork) {
	n := 0.0
	for i := range r.Rounds {
		if s, ok := r.Rounds[i].Samples[variant][load]; ok && !r.Rounds[i].Dropped {
			n++
			mean.Daemon += (s.Daemon - mean.Daemon) / n
			mean.Snapshots += (s.Snapshots - mean.Snapshots) / n
		}
	}
	return mean
}

// budget has a line for each load of a tailcam with one.
func (r *report) budget(w io.Writer) {
	fmt.Fprintln(w, "| | of the machine | shed |\n|---|---:|---|")
	for i := range r.loads {
		for k := range r.variants {
			if res := r.result(r.loads[i].name, r.variants[k].name); res.Cost.N > 0 {
				fmt.Fprintf(w, "| %s | %.2f %% (%.2f to %.2f) | %s |\n", r.loads[i].title,
					100*res.Cost.Median, 100*res.Cost.Low, 100*res.Cost.High, cmp.Or(strings.Join(res.Shed, ", "), "nothing"))
			}
		}
	}
}

// targets has a line for each load and tailcam.
func (r *report) targets(w io.Writer) {
	fmt.Fprintln(w, "| | target | | ftrace | perf | p99 | CPU time |\n|---|---:|---|---|---|---|---|")
	for i := range r.loads {
		l := &r.loads[i]
		for k := range r.variants {
			v := &r.variants[k]
			if !v.ours || v.host != "" {
				continue
			}
			res := r.result(l.name, v.name)
			name := l.title
			if v.name != vTailcam {
				name += ", " + v.name
			}
			fmt.Fprintf(w, "| %s | %.2f | %s | %s | %s | %s | %s |\n", name, l.target, judged(res.Ratio, l.target),
				judged(res.Against[vFtrace], 1), judged(res.Against[vPerf], 1), judged(res.P99To, targetP99), cell(res.CPUTo))
		}
	}
}

// Targets of activities, with a token a request, against nothing attached.
const (
	targetMedian    = 1.01
	targetTail      = 1.02
	leastThroughput = 0.98
)

// activities has a line for each load and tailcam with activities: what its targets are about, and the
// same against tailcam as shipped, and against the same daemon while nobody takes part.
func (r *report) activities(w io.Writer) {
	fmt.Fprintf(w, "\nActivities: median and 99th percentile of latencies, and throughput, to nothing attached. "+
		"Targets are %.2f, %.2f and %.2f:\n", targetMedian, targetTail, leastThroughput)
	for i := range r.variants {
		over := &r.variants[i]
		if !slices.Contains([]string{vNothing, vTailcam, vActivities, vGroups}, over.name) {
			continue
		}
		if over.name != vNothing {
			fmt.Fprintf(w, "\nThe same, to %s:\n", over.name)
		}
		fmt.Fprint(w, "\n| | median | p99 | throughput |\n|---|---|---|---|\n")
		for k := range r.loads {
			for j := range r.variants {
				if v := &r.variants[j]; v.host != "" && v.name != over.name && (over.host == "" || over.host == v.host) {
					r.activity(w, &r.loads[k], v, over.name)
				}
			}
		}
	}
}

func (r *report) activity(w io.Writer, l *load, v *variant, over string) {
	pace := r.span(l.name, v.name, over, ns)
	if pace.N == 0 {
		return
	}
	show := judged
	if over != vNothing {
		show = func(s stat.Span, _ float64) string { return cell(s) }
	}
	inverse := cell(stat.Span{N: pace.N, Median: 1 / pace.Median, Low: 1 / pace.High, High: 1 / pace.Low})
	if over == vNothing {
		inverse = fmt.Sprintf("**%s** %s", pace.Verdict(1/leastThroughput), inverse)
	}
	fmt.Fprintf(w, "| %s, %s | %s | %s | %s |\n", l.title, v.name,
		show(r.span(l.name, v.name, over, p50), targetMedian), show(r.span(l.name, v.name, over, p99), targetTail), inverse)
}

func judged(s stat.Span, target float64) string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("**%s** %s", s.Verdict(target), cell(s))
}

// cell is a median and its span.
func cell(s stat.Span) string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Low, s.High)
}

// micro writes microseconds with three digits.
func micro(ns float64) string {
	us := ns / 1000
	switch {
	case us < 1:
		return fmt.Sprintf("%.3f", us)
	case us < 100:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", us), ".0")
	default:
		return number(us)
	}
}

// say replaces the line on a terminal; nothing is printed elsewhere.
func (b *bench) say(format string, args ...any) {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format+"\r", args...)
	}
}

// number writes a whole number in groups of three digits.
func number(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
