package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// program is a load without a server.
type program struct {
	measure func(ctx context.Context) (sample, error)
}

func (p program) run(ctx context.Context) (sample, error) { return p.measure(ctx) }
func (program) stop() error                               { return nil }

// messages is a program whose tasks exchange messages.
type messages struct {
	measure func(ctx context.Context, environ []string) (sample, error)
	environ []string
}

func (m *messages) run(ctx context.Context) (sample, error) { return m.measure(ctx, m.environ) }
func (*messages) stop() error                               { return nil }

// restart has the environment of further runs.
func (m *messages) restart(_ context.Context, environ []string) error {
	m.environ = environ
	return nil
}

// startHackbench lets 160 tasks exchange messages over sockets.
func startHackbench(ctx context.Context, e *env) (client, error) {
	run := func(ctx context.Context, environ []string, loops int) (sample, error) {
		out, err := outputIn(ctx, environ, "hackbench", "-g", "4", "-P", "-l", strconv.Itoa(loops))
		if err != nil {
			return sample{}, err
		}
		return parseHackbench(out)
	}
	loops, err := count(e.seconds, 100, func(n int) (float64, error) {
		s, err := run(ctx, nil, n)
		return s.NS / 1e9, err
	})
	return &crowd{messages{measure: func(ctx context.Context, environ []string) (sample, error) { return run(ctx, environ, loops) }}, e.client}, err
}

var hackbenchTime = regexp.MustCompile(`(?m)^Time: ([0-9.]+)$`)

func parseHackbench(out []byte) (s sample, err error) {
	m := hackbenchTime.FindSubmatch(out)
	if m == nil {
		return s, fmt.Errorf("hackbench printed %q", out)
	}
	seconds, err := strconv.ParseFloat(string(m[1]), 64)
	return sample{NS: seconds * 1e9, requests: 1}, err
}

// startPipe lets two tasks wake each other over pipes.
func startPipe(ctx context.Context, e *env) (client, error) {
	run := func(ctx context.Context, environ []string, loops int) (sample, error) {
		out, err := outputIn(ctx, environ, "perf", "bench", "-f", "simple", "sched", "pipe", "-l", strconv.Itoa(loops))
		if err != nil {
			return sample{}, err
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil || seconds <= 0 {
			return sample{}, fmt.Errorf("perf bench printed %q", out)
		}
		return sample{NS: seconds * 1e9 / float64(loops), requests: float64(loops)}, nil
	}
	loops, err := count(e.seconds, 10_000, func(n int) (float64, error) {
		s, err := run(ctx, nil, n)
		return s.NS * float64(n) / 1e9, err
	})
	return &turns{messages{measure: func(ctx context.Context, environ []string) (sample, error) { return run(ctx, environ, loops) }}, e.client}, err
}

// compileDir has the C files that are compiled, over and over.
const compileDir = "test/support/inject/src"

// startCompile compiles C files with as many compilers as there are CPUs.
func startCompile(ctx context.Context, e *env) (client, error) {
	dir := filepath.Join(e.dir, "compile")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	sources, err := filepath.Glob(filepath.Join(compileDir, "*.c"))
	if err != nil || len(sources) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no C files in %s: run it from the repository's root", compileDir))
	}
	run := func(ctx context.Context, files int) (sample, error) {
		makefile := filepath.Join(dir, "Makefile")
		if err := writeMakefile(makefile, sources, files); err != nil {
			return sample{}, err
		}
		start := time.Now()
		_, err := output(ctx, "make", "-s", "-B", "-C", dir, "-j", strconv.Itoa(runtime.NumCPU()))
		return sample{NS: float64(time.Since(start).Nanoseconds()) / float64(files), requests: float64(files)}, err
	}
	files, err := count(e.seconds, len(sources), func(n int) (float64, error) {
		s, err := run(ctx, n)
		return s.NS * float64(n) / 1e9, err
	})
	source, absErr := filepath.Abs(sources[0])
	return &compile{program{func(ctx context.Context) (sample, error) { return run(ctx, files) }}, source}, errors.Join(err, absErr)
}

// compile is a compiler at work.
type compile struct {
	program
	source string // one of the files
}

// writeMakefile makes so many objects of the sources, in turn.
func writeMakefile(path string, sources []string, files int) error {
	var rules, all bytes.Buffer
	for i := range files {
		source, err := filepath.Abs(sources[i%len(sources)])
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, " %d.o", i)
		fmt.Fprintf(&rules, "%d.o: %s\n\tgcc -O1 -c -o $@ $<\n", i, source)
	}
	return os.WriteFile(path, []byte("all:"+all.String()+"\n"+rules.String()), 0o644)
}

// startFio reads a file of its own past the page cache, one request after the other.
func startFio(ctx context.Context, e *env) (client, error) {
	disk, err := filepath.Abs(e.disk)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(disk, "bench-service-fio-")
	if err != nil {
		return nil, err
	}
	p := &fio{path: f.Name(), seconds: whole(e.seconds)}
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	if _, err := output(ctx, "fio", "--name=fill", "--filename="+p.path, "--size=64m", "--rw=write", "--bs=1m", "--end_fsync=1"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// fio is a file on a disk.
type fio struct {
	path    string
	seconds int
}

func (f *fio) stop() error { return os.Remove(f.path) }

func (f *fio) run(ctx context.Context) (sample, error) {
	out, err := output(ctx, "fio", f.args(f.seconds)...)
	if err != nil {
		return sample{}, err
	}
	return parseFio(out)
}

func (f *fio) args(seconds int) []string {
	return []string{
		"--name=read", "--filename=" + f.path, "--size=64m", "--rw=randread", "--bs=4k", "--direct=1",
		"--ioengine=psync", "--time_based", "--runtime=" + strconv.Itoa(seconds), "--output-format=json",
	}
}

// parseFio reads fio's JSON of one job that reads.
func parseFio(out []byte) (s sample, err error) {
	var r struct {
		Jobs []struct {
			Error int `json:"error"`
			Read  struct {
				Total float64 `json:"total_ios"`
				IOPS  float64 `json:"iops"`
				Clat  struct {
					Percentile map[string]float64 `json:"percentile"`
				} `json:"clat_ns"`
			} `json:"read"`
		} `json:"jobs"`
	}
	// It may say something before.
	if err := json.Unmarshal(out[max(0, strings.IndexByte(string(out), '{')):], &r); err != nil {
		return s, fmt.Errorf("fio's output: %w", err)
	}
	if len(r.Jobs) != 1 || r.Jobs[0].Error != 0 || r.Jobs[0].Read.IOPS <= 0 {
		return s, fmt.Errorf("fio has read nothing: %s", lastLine(string(out)))
	}
	return sample{NS: 1e9 / r.Jobs[0].Read.IOPS, P99: r.Jobs[0].Read.Clat.Percentile["99.000000"], requests: r.Jobs[0].Read.Total}, nil
}

// startGetppid makes one of the cheapest system calls.
func startGetppid(_ context.Context, e *env) (client, error) {
	return &getppids{program{func(context.Context) (sample, error) { return medianGetppid(min(e.seconds, 1)), nil }}}, nil
}

type getppids struct{ program }

// someCalls are those of one loop.
const someCalls = 2000

func getppid() {
	for range someCalls {
		_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
}

// medianGetppid is that of many short loops: what interrupts some does not show.
func medianGetppid(seconds float64) sample {
	var loops []float64
	for begin := time.Now(); len(loops) == 0 || time.Since(begin).Seconds() < seconds; {
		start := time.Now()
		getppid()
		loops = append(loops, float64(time.Since(start).Nanoseconds())/someCalls)
	}
	slices.Sort(loops)
	return sample{NS: stat.Quantile(loops, 0.5)}
}
