// Command table measures tailcam's pending table against the tables that the
// kernel has, each with the same wake-up tracking, interleaved in one run:
//
//	go run ./test/bench/table [-quick] [-rounds N] [-loops N] [-o FILE]
//
// It needs root, and hackbench (apt-get install rt-tests).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// column is one situation in which every table is measured.
type column struct {
	Name string `json:"name"`
	CPUs int    `json:"cpus"`
	Keys int    `json:"keys"` // pending meanwhile
}

// columns are the CPUs from one to all with few keys, then all CPUs with many.
func columns(cpus int) []column {
	var list []column
	for n := 1; n < cpus; n *= 2 {
		list = append(list, column{fmt.Sprintf("%d of the CPUs", n), n, 100})
	}
	list = append(list, column{fmt.Sprintf("%d CPUs", cpus), cpus, 100})
	for _, keys := range []int{10_000, 100_000} {
		list = append(list, column{fmt.Sprintf("%d keys", keys), cpus, keys})
	}
	return list
}

func main() {
	quick := flag.Bool("quick", false, "a smoke run of some 20 seconds; its numbers mean little")
	rounds := flag.Int("rounds", 7, "how often each table is measured in each situation")
	loops := flag.Int("loops", 600, "messages of each hackbench sender")
	output := flag.String("o", "out/bench-table.json", "where the JSON goes")
	flag.Parse()
	if *quick {
		*rounds, *loops = 1, 60
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *loops, *output); err != nil {
		fmt.Fprintln(os.Stderr, "bench-table:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, rounds, loops int, output string) error {
	// hackbench is to die with this thread (Pdeathsig), so it must not.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() != 0 {
		return errors.New("loading BPF programs and reading their statistics needs root: run it with sudo")
	}
	if _, err := exec.LookPath("hackbench"); err != nil {
		return errors.New("hackbench is not installed (apt-get install rt-tests)")
	}
	r := results{columns: columns(runtime.NumCPU()), costs: map[string][][]cost{}}
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	terminal, begin := err == nil, time.Now()
	for round := range rounds {
		for c, col := range r.columns {
			for _, v := range variants {
				if terminal {
					fmt.Fprintf(os.Stderr, "\r\x1b[Kround %d of %d, %s: %s, %s", round+1, rounds, time.Since(begin).Round(time.Second), col.Name, v.name)
				}
				got, err := measure(ctx, v, col, loops)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", v.title, col.Name, err)
				}
				r.add(v.name, c, round, got)
			}
		}
	}
	if terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	rows := r.rows()
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(struct {
		Columns []column `json:"columns"`
		Rows    []row    `json:"rows"`
	}{r.columns, rows}, "", "  ")
	if err != nil {
		return err
	}
	printTable(os.Stdout, r.columns, rows)
	return os.WriteFile(output, append(b, '\n'), 0o644)
}
