package main

import (
	"fmt"
	"strings"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

// leastShown is the share of a part that is listed although it is not shed.
const leastShown = 0.00005

func (c *cli) printCost(s *api.CostStatus) {
	if s == nil {
		return
	}
	limit, memory, prices := "no budget", "no budget", "prices assumed"
	if s.BudgetCPU > 0 {
		limit = "budget " + cpuShare(s.BudgetCPU)
	}
	if s.BudgetMemory > 0 {
		memory = "budget " + term.Bytes(s.BudgetMemory)
	}
	switch {
	case s.PriceScale > 0:
		prices = fmt.Sprintf("prices assumed, times %.2f for this machine", s.PriceScale)
	case s.Measured:
		prices = "prices measured " + term.Duration(s.PriceNS) + " ago"
	}
	total := cpuShare(s.CPU)
	if s.Exceeded {
		total = c.out.Paint(term.Red, total)
	}
	c.out.Printf("\n%s %s of %s (%s), memory %s (%s), %s\n", c.out.Paint(term.Bold, "cost"), total,
		plural(s.CPUs, "CPU"), limit, term.Bytes(s.MemoryBytes), memory, prices)
	t := term.NewTable(term.Column{Title: "PART"}, right("CPU"), term.Column{})
	t.Cells(plain("daemon"), plain(cpuShare(s.Daemon)), plain(""))
	t.Cells(plain("helpers"), plain(cpuShare(s.Helpers)), plain(""))
	for _, p := range s.Parts {
		switch {
		case p.Shed:
			t.Cells(plain(term.Clean(p.Part)), term.Cell{Text: cpuShare(p.CPU), Style: term.Dim},
				term.Cell{Text: "shed", Style: term.Yellow})
		case p.CPU >= leastShown:
			t.Cells(plain(term.Clean(p.Part)), plain(cpuShare(p.CPU)), plain(""))
		}
	}
	t.Print(c.out, "")
	for i := 0; i < len(s.Shed); {
		first, parts := &s.Shed[i], []string{}
		for ; i < len(s.Shed) && s.Shed[i].Since.Equal(first.Since) && s.Shed[i].Why == first.Why; i++ {
			parts = append(parts, term.Clean(s.Shed[i].Part))
		}
		c.out.Printf("%s since %s: %s; %s\n", c.out.Paint(term.Yellow, "shed"), first.Since.Local().Format("15:04:05"),
			strings.Join(parts, ", "), term.Clean(first.Why))
	}
	if s.Exceeded {
		c.out.Printf("%s\n", c.out.Paint(term.Red, "over budget, and nothing is left to shed"))
	}
}

func cpuShare(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }
