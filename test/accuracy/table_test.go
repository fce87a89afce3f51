package accuracy

import (
	"fmt"
	"io"
	"slices"
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
	partly                   []string // what else it should have said; under load
	verdict, advice          string
	first                    *row   // which was wrong, but not when it was run again
	unseen                   string // why there was nothing to judge
}

func printTable(w io.Writer, rows []row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tcause\tculprit\ttook\tsaid\toff by\truns\t")
	passed, partly, once, judged := 0, 0, 0, len(rows)
	for i := range rows {
		r := &rows[i]
		score := "ok"
		switch {
		case len(r.wrong) > 0:
			score = "WRONG"
		case r.unseen != "":
			score = "not seen here"
			judged--
		case len(r.partly) > 0:
			score = "partly"
			partly++
		case r.first != nil:
			score = fmt.Sprintf("ok in %d of %d", confirmed, confirmed+1)
			once++
		default:
			passed++
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.3f ms\t%.3f ms\t%.3f ms\t%d\t%s\n", r.scenario, r.cause, r.culprit,
			ms(r.is), ms(r.said), ms(r.said-r.is), len(r.runs)+1, score)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d are explained as they were", passed, judged)
	if partly > 0 {
		fmt.Fprintf(w, ", %d partly", partly)
	}
	if once > 0 {
		fmt.Fprintf(w, ", %d but for the first time", once)
	}
	fmt.Fprintln(w, ".")
	for i := range rows {
		r := &rows[i]
		if r.unseen != "" {
			fmt.Fprintf(w, "%s could not be made to happen: %s\n", r.scenario, r.unseen)
		} else if len(r.runs) > 0 {
			fmt.Fprintf(w, "%s was run again: %s\n", r.scenario, strings.Join(r.runs, "; "))
		}
		if said := slices.Concat(r.wrong, r.partly); len(said) > 0 {
			fmt.Fprintf(w, "%s: %s\n  verdict: %s\n", r.scenario, strings.Join(said, "; "), r.verdict)
		}
		if r.first != nil {
			fmt.Fprintf(w, "%s, the first time: %s\n  verdict: %s\n", r.scenario, strings.Join(r.first.wrong, "; "), r.first.verdict)
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
