package accuracy

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one scenario's line of the score.
type row struct {
	scenario, cause, culprit string
	is, said                 time.Duration
	runs                     []string // why each but the last run said nothing
	wrong                    []string
	verdict                  string
	unseen                   string // why there was nothing to judge
}

func printTable(w io.Writer, rows []row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tcause\tculprit\ttook\tsaid\toff by\truns\t")
	passed, judged := 0, len(rows)
	for i := range rows {
		r := &rows[i]
		score := "ok"
		switch {
		case len(r.wrong) > 0:
			score = "WRONG"
		case r.unseen != "":
			score = "not seen here"
			judged--
		default:
			passed++
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.3f ms\t%.3f ms\t%.3f ms\t%d\t%s\n", r.scenario, r.cause, r.culprit,
			ms(r.is), ms(r.said), ms(r.said-r.is), len(r.runs)+1, score)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d are explained as they were.\n", passed, judged)
	for i := range rows {
		r := &rows[i]
		if r.unseen != "" {
			fmt.Fprintf(w, "%s cannot be made to happen, and did not: %s\n", r.scenario, r.unseen)
		} else if len(r.runs) > 0 {
			fmt.Fprintf(w, "%s was run again: %s\n", r.scenario, strings.Join(r.runs, "; "))
		}
		if len(r.wrong) > 0 {
			fmt.Fprintf(w, "%s: %s\n  verdict: %s\n", r.scenario, strings.Join(r.wrong, "; "), r.verdict)
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
