// Command part measures what programs at tracepoints cost two tasks that wake each other
// on one CPU: each program is taken out and put back several times a second, beside the
// same tasks, so that nothing else differs. Beside those of a tailcam that runs there are
// an empty program and one that reads the clock: no program that tells when costs less.
// Needs root, and tailcam run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/bench/stat"
)

// settle is how long the kernel may take to change what is attached.
const settle = 30 * time.Millisecond

func main() {
	if len(os.Args) == 3 && os.Args[1] == playerArgument {
		play(os.Args[2])
		return
	}
	rounds := flag.Int("rounds", 60, "how often each part is taken out and put back")
	window := flag.Duration("window", 60*time.Millisecond, "how long is measured with it and without")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, *rounds, *window)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "part:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, window time.Duration) (err error) {
	if rounds < 1 || window <= 0 {
		return errors.New("-rounds and -window must be more than 0")
	}
	parts, err := attached()
	if err != nil {
		return err
	}
	allowed, err := linux.AllowedCPUs()
	if err != nil {
		return err
	}
	g, err := startGame(ctx, allowed[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.end()) }()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "part\tround trip without\twith\tin each of its two runs\t")
	for _, p := range append(compared(), parts...) {
		row, err := measure(ctx, g, &p, rounds, window)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(w, "%s\t%s\n", p.name, row)
	}
	return w.Flush()
}

// measure has a row of the table: the median of a round trip's time without p, and what it
// adds to each of its two runs, with where that median lies at 90 %.
func measure(ctx context.Context, g *game, p *part, rounds int, window time.Duration) (row string, err error) {
	var without, more []float64
	for i := range rounds {
		var times [2]float64 // without it, and with it
		for j := range times {
			at := (i + j) % 2 // in turn what comes first
			if err := p.set(at == 1); err != nil {
				return "", errors.Join(err, p.rest())
			}
			if times[at], err = g.roundTrip(ctx, window); err != nil {
				return "", errors.Join(err, p.rest())
			}
		}
		without, more = append(without, times[0]), append(more, times[1]-times[0])
	}
	rest, added := stat.Of(without), stat.Of(more)
	return fmt.Sprintf("%.0f ns\t%.3f\t%.0f ns (%.0f to %.0f)\t", rest.Median, 1+added.Median/rest.Median,
		added.Median/2, added.Low/2, added.High/2), p.rest()
}
