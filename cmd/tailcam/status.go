package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

func newStatus(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the daemon has seen, caught and lost",
		Long: `Show what the daemon has done since it started: each rule with its threshold, outliers and
losses; what tailcam costs against its budget; how many seconds of history each CPU's recorder
holds; the tables of pending work; every loss with advice; the snapshots on disk; what became of
actions, with the latest that failed; how the last reload ended. docs/losses.md explains the losses.`,
		Example: "  tailcam status\n" +
			"  tailcam status -o json | jq '.losses[]'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := c.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if c.wantsData() {
				return c.printData(status)
			}
			c.printStatus(status)
			return nil
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) printStatus(s *api.Status) {
	c.out.Printf("%s %s, pid %d, up %s, kernel %s\n\n", c.out.Paint(term.Bold, "tailcam"),
		term.Clean(s.Version), s.PID, term.Duration(s.UptimeNS), term.Clean(s.Kernel))
	c.printRules(s.Rules)
	if s.Calls32 != "" {
		c.out.Printf("32-bit calls: %s\n", term.Clean(s.Calls32))
	}
	c.printPins(s.Pins)
	c.printCost(s.Cost)
	c.printRecorder(s.Recorder)
	c.printTables(s.Tables)
	c.printLosses(s.Losses)
	c.printPanics(s.Panics)
	c.printSnapshotsStatus(s.Snapshots)
	c.printReloadStatus(s.Reload)
	c.printActions(s.Actions)
	c.printOTLP(s.OTLP)
	c.printUpload(s.Upload)
	c.printPeers(s.Peers)
	c.printActivitiesStatus(s.Activities)
}

func (c *cli) printActivitiesStatus(a *api.ActivitiesStatus) {
	if a == nil {
		return
	}
	count := func(n int) string { return term.Count(uint64(max(n, 0))) }
	c.out.Printf("\n%s ", c.out.Paint(term.Bold, "activities"))
	if a.Error != "" {
		c.out.Printf("%s\n", c.out.Paint(term.Red, term.Clean(a.Error)))
	} else {
		c.out.Printf("processes %s, threads %s, live tokens %s, %s\n", count(a.Processes), count(a.Threads),
			count(a.LiveTokens), term.Bytes(uint64(max(a.Bytes, 0))))
	}
	if a.Refused+a.TokensRefused+a.ThreadsRefused > 0 {
		c.out.Printf("refused: processes %s, threads %s, tokens %s; see losses\n", term.Count(a.Refused),
			term.Count(a.ThreadsRefused), term.Count(a.TokensRefused))
	}
	c.out.Printf("processes whose threads' contexts can be read: %s\n", count(a.Publishers))
}

func (c *cli) printPins(p *api.PinStatus) {
	switch {
	case p == nil:
		return
	case p.Error != "":
		c.out.Printf("nothing is pinned: %s\n", term.Clean(p.Error))
		return
	}
	c.out.Printf("pinned: %s", term.Clean(p.Where))
	switch {
	case p.TakenOver:
		c.out.Printf("; taken over from %s, after %s in which %s outliers came and %s were lost", term.Clean(p.From),
			term.Duration(p.GapNS), term.Count(p.Unread), term.Count(p.Lost))
		if p.Programs != "" {
			c.out.Printf("; its programs were replaced: %s", term.Clean(p.Programs))
		}
		if len(p.Begun) > 0 {
			c.out.Printf("; begun anew: %s", term.Clean(strings.Join(p.Begun, ", ")))
		}
	case p.Reason != "":
		c.out.Printf("; loaded anew: %s", term.Clean(p.Reason))
	}
	c.out.Printf("\n")
}

func (c *cli) printOTLP(o *api.OTLPStatus) {
	if o == nil {
		return
	}
	c.out.Printf("\n%s %s (%s), %s waiting, %s on disk\n", c.out.Paint(term.Bold, "OTLP"), term.Clean(o.Endpoint), term.Clean(o.Protocol),
		term.Count(uint64(max(o.Waiting, 0))), term.Bytes(uint64(max(o.SpoolBytes, 0))))
	if o.SpoolError != "" {
		c.out.Printf("%s\n", c.out.Paint(term.Red, "outliers wait in memory alone: "+term.Clean(o.SpoolError)))
	}
	for _, r := range o.Requests {
		if r.Count > 0 {
			c.out.Printf("requests with %s %s: %s\n", term.Clean(r.Signal), term.Clean(r.Result), term.Count(r.Count))
		}
	}
}

func (c *cli) printPeers(p *api.PeersStatus) {
	if p == nil {
		return
	}
	c.out.Printf("\n%s %s told of %s in traces, %s took part; they told of %s, this one took part in %s\n", c.out.Paint(term.Bold, "peers"),
		plural(p.Peers, "machine"), plural(int(p.Told), "outlier"), term.Count(p.Answered), plural(int(p.Reported), "outlier"), term.Count(p.TookPart))
}

func (c *cli) printUpload(u *api.UploadStatus) {
	if u == nil {
		return
	}
	c.out.Printf("\n%s %s: %s, %s sent, %s waiting (%s)\n", c.out.Paint(term.Bold, "UPLOAD"), term.Clean(u.Target), term.Clean(u.State),
		term.Count(u.Sent), term.Count(uint64(max(u.Waiting, 0))), term.Bytes(uint64(max(u.WaitingBytes, 0))))
	if u.Error != "" {
		c.out.Printf("last attempt: %s\n", term.Clean(u.Error))
	}
	if u.Next != nil {
		c.out.Printf("next attempt: %s\n", u.Next.Local().Format(time.DateTime))
	}
}

func (c *cli) printRules(rules []api.RuleInfo) {
	if len(rules) == 0 {
		c.out.Printf("no rules: set --rules, or rules: in the configuration file\n")
		return
	}
	columns := []term.Column{{Title: "RULE"}, {Title: "TRACK"}, right("THRESHOLD"), right("SEEN"),
		right("OUTLIERS"), right("WORST"), right("SUPPRESSED"), right("LOST"), right("SKIPPED")}
	distributions := slices.ContainsFunc(rules, func(r api.RuleInfo) bool { return r.Samples > 0 })
	if distributions {
		columns = append(columns, right("P99.9"))
	}
	timeouts := slices.ContainsFunc(rules, func(r api.RuleInfo) bool { return r.TimeoutNS > 0 })
	if timeouts {
		columns = slices.Insert(columns, 3, right("TIMEOUT"))
	}
	t := term.NewTable(append(columns, term.Column{})...)
	for i := range rules {
		r := &rules[i]
		worst := term.Cell{Text: "-", Style: term.Dim}
		if r.WorstNS > 0 {
			worst = term.Cell{Text: term.Duration(r.WorstNS), Style: term.DelayStyle(r.WorstNS, r.ThresholdNS)}
		}
		cells := []term.Cell{{Text: term.Clean(r.Name), Style: term.Cyan}, plain(term.Clean(r.Track)),
			thresholdCell(r), plain(term.Count(r.Seen)), plain(term.Count(r.Outliers)), worst,
			plain(term.Count(r.Suppressed)), lossCell(r.Lost), lossCell(r.ActionsSkipped)}
		if timeouts {
			cell := term.Cell{Text: "-", Style: term.Dim}
			if r.TimeoutNS > 0 {
				cell = plain(term.Setting(r.TimeoutNS))
			}
			cells = slices.Insert(cells, 3, cell)
		}
		if distributions {
			p999 := term.Cell{Text: "-", Style: term.Dim}
			if r.Samples > 0 {
				p999 = plain(term.Duration(r.P999NS))
			}
			cells = append(cells, p999)
		}
		t.Cells(append(cells, ruleNote(r))...)
	}
	t.Print(c.out, "")
}

func (c *cli) printRecorder(r api.RecorderStatus) {
	if !r.Enabled {
		c.out.Printf("\n%s off\n", c.out.Paint(term.Bold, "recorder"))
		return
	}
	c.out.Printf("\n%s %s, %s total\n", c.out.Paint(term.Bold, "recorder"), term.Clean(r.Backend),
		term.Bytes(r.SizeBytes))
	c.out.Printf("recording %s\n", term.Clean(strings.Join(r.Groups, ", ")))
	for _, hook := range slices.Sorted(maps.Keys(r.Missing)) {
		c.out.Printf("not recording %s: %s\n", term.Clean(hook), term.Clean(r.Missing[hook]))
	}
	if r.CoverNS > 0 {
		c.out.Printf("target coverage %s (recorder.cover)\n", term.Duration(r.CoverNS))
	}
	t := term.NewTable(right("CPU"), right("COVERAGE"), right("EVENTS/S"), right("BYTES/EVENT"),
		right("MAX COVERAGE"), right("RECORDS"), right("LOST"))
	for _, cpu := range r.CPUs {
		lasts := plain("")
		if cpu.CoversAtRateNS > 0 {
			lasts.Text = term.Duration(cpu.CoversAtRateNS)
			if cpu.CoversAtRateNS < r.CoverNS {
				lasts.Style = term.Yellow
			}
		}
		t.Cells(plain(fmt.Sprint(cpu.CPU)), plain(term.Duration(cpu.CoveredNS)),
			plain(term.Count(uint64(max(cpu.EventsPerSecond, 0)))), plain(fmt.Sprint(cpu.BytesPerEvent)), lasts,
			plain(term.Count(cpu.Records)), lossCell(cpu.Lost))
	}
	t.Print(c.out, "")
}

func (c *cli) printTables(tables []api.TableStatus) {
	if len(tables) == 0 {
		return
	}
	t := term.NewTable(term.Column{Title: "PENDING"}, right("USED"), right("SLOTS"), right("MAX"), right("GROWN"),
		term.Column{})
	for _, p := range tables {
		t.Cells(plain(term.Clean(p.Name)), plain(term.Count(uint64(p.Used))), plain(term.Count(uint64(p.Slots))),
			plain(term.Count(uint64(p.Max))), plain(term.Count(uint64(p.Grown))),
			term.Cell{Text: term.Clean(p.Error), Style: term.Red})
	}
	c.out.Printf("\n")
	t.Print(c.out, "")
}

// printLosses prints a row for each loss, and the causes without loss on one line.
func (c *cli) printLosses(losses []api.Loss) {
	if len(losses) == 0 {
		return
	}
	t := term.NewTable(term.Column{Title: "LOSS"}, term.Column{Title: "SOURCE"}, right("COUNT"),
		term.Column{Title: "ADVICE"})
	lossy := map[string]bool{}
	for _, l := range losses {
		lossy[l.Cause] = lossy[l.Cause] || l.Count > 0
	}
	var none []string
	for _, l := range losses {
		if !lossy[l.Cause] && !slices.Contains(none, l.Cause) {
			none = append(none, l.Cause)
		}
		if l.Count == 0 {
			continue
		}
		of := l.Rule
		if of == "" {
			of = l.Tracker
		}
		t.Cells(plain(term.Clean(l.Cause)), plain(term.Clean(of)), lossCell(l.Count), plain(term.Clean(l.Advice)))
	}
	c.out.Printf("\n%s", c.out.Paint(term.Bold, "losses"))
	if len(none) > 0 {
		c.out.Printf(" %s", c.out.Paint(term.Dim, "(zero: "+term.Clean(strings.Join(none, ", "))+")"))
	}
	c.out.Printf("\n")
	if len(none) < len(lossy) {
		t.Print(c.out, "")
	}
}

// printPanics prints nothing if there were none.
func (c *cli) printPanics(panics []api.PanicInfo) {
	var places []string
	for _, p := range panics {
		if p.Count > 0 {
			places = append(places, fmt.Sprintf("%s %s", term.Clean(p.Place), term.Count(p.Count)))
		}
	}
	if len(places) > 0 {
		c.out.Printf("\n%s %s: the data being processed was dropped; see the daemon's log, and please report this\n",
			c.out.Paint(term.Red, "panics"), strings.Join(places, ", "))
	}
}

func (c *cli) printSnapshotsStatus(s api.SnapshotsStatus) {
	failed := ""
	if s.Failed > 0 {
		failed = ", " + c.out.Paint(term.Red, term.Count(s.Failed)+" failed: see the daemon's log")
	}
	pinned := ""
	if s.Pinned > 0 {
		pinned = fmt.Sprintf(", %d pinned", s.Pinned)
	}
	c.out.Printf("\n%s %d, %s in %s%s%s\n", c.out.Paint(term.Bold, "snapshots"),
		s.Count, term.Bytes(s.Bytes), term.Clean(s.Dir), pinned, failed)
	var removed []string
	for _, limit := range slices.Sorted(maps.Keys(s.Removed)) {
		if n := s.Removed[limit]; n > 0 {
			removed = append(removed, fmt.Sprintf("%s over snapshots.keep.%s", term.Count(n), term.Clean(limit)))
		}
	}
	if len(removed) > 0 {
		c.out.Printf("removed %s\n", strings.Join(removed, ", "))
	}
	if s.Last != nil {
		c.out.Printf("last %s\n", term.Clean(*s.Last))
	}
	c.printBoost(s.Boost)
}

// printBoost tells of raised priorities once there is something to tell.
func (c *cli) printBoost(b *api.BoostStatus) {
	switch {
	case b == nil:
		return
	case b.Error != "":
		c.out.Printf("written at ordinary priority: %s\n", term.Clean(b.Error))
		return
	case b.Completed+b.Expired+b.Refused == 0 && !b.Raised:
		return
	}
	now := ""
	if b.Raised {
		now = "is now, "
	}
	c.out.Printf("priority raised (%s): %s%s times for %s of CPU time", term.Clean(b.Priority), now,
		term.Count(b.Completed+b.Expired), term.Duration(b.CPUNS))
	if b.Expired > 0 {
		c.out.Printf(", of these %s to the limit of snapshots.boost", term.Count(b.Expired))
	}
	if b.Refused > 0 {
		c.out.Printf("; %s not raised, as a quarter of a CPU was used up", term.Count(b.Refused))
	}
	c.out.Printf("\n")
}

func right(title string) term.Column { return term.Column{Title: title, Right: true} }

func plain(text string) term.Cell { return term.Cell{Text: text} }

// lossCell dims zero.
func lossCell(n uint64) term.Cell {
	if n == 0 {
		return term.Cell{Text: "0", Style: term.Dim}
	}
	return term.Cell{Text: term.Count(n), Style: term.Yellow}
}
