// Command report runs go test and prints a line per package, the whole output
// of what failed, and which tests were skipped, and why.
//
//	go run ./test/support/report -p 1 ./test/...
//
// Its arguments are those of go test, and so is its exit status; before them may
// stand -part=K/N, which runs every Nth test only, from the Kth on. It also fails
// when a test was skipped that test/skips.yaml does not allow to be skipped
// here, and when that list names a test that does not exist.
//
// A test that failed while the machine was disturbed, as package disturbance
// judges, runs again alone, at most three times, each after up to 10 s of
// waiting for a calm machine; so does one that failed beside others on full
// CPUs. If it passes, it has passed. What fails on a calm machine has failed,
// unless the kernel keeps switches between tasks from tracers: there it has to
// pass four times, and may fail once meanwhile. Each of that is printed, with
// the output of what failed; if the run fails, that output stands once more at
// its end. Never run again are data races, panics, crashes and hangs; packages
// that do not build, or end with more than failed tests; and any test when more
// than twelve failed.
//
// Of tests that match the regular expression of -each=REGEXP, subtests are tests of their own: only
// those that failed run again.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/tailcam/tailcam/test/support/disturbance"
	"github.com/tailcam/tailcam/test/support/skips"
)

// allowed is the list of tests that may be skipped, seen from the root of the repository.
const allowed = "test/skips.yaml"

func main() {
	status, err := start(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	os.Exit(status)
}

func start(args []string) (status int, err error) {
	if args, err = ofPart(args); err != nil {
		return 1, err
	}
	list, err := skips.Load(allowed)
	if err != nil {
		return 1, err
	}
	w, err := disturbance.Start()
	if err != nil {
		return 1, err
	}
	defer w.Stop()
	return run(args, list, w, os.Stdout)
}

// runner runs go test, and what failed again.
type runner struct {
	command     command
	newSummary  func(io.Writer) *summary
	witness     witness
	interrupted chan os.Signal
	each        *regexp.Regexp // tests whose subtests are tests of their own; nil: none
}

// run returns the exit status of go test, 1 where there is none.
func run(args []string, list skips.List, machine witness, w io.Writer) (status int, err error) {
	args, each, err := ofEach(args)
	if err != nil {
		return 1, err
	}
	c := parse(args)
	here := skips.Here(args)
	r := &runner{command: c, witness: machine, each: each, interrupted: make(chan os.Signal, 1)}
	r.newSummary = func(w io.Writer) *summary {
		s := newSummary(w)
		s.list, s.machine, s.all = list, here, !c.selects()
		return s
	}
	// A terminal sends an interrupt to go test as well, which then ends; what
	// has been run until then is still reported.
	signal.Notify(r.interrupted, os.Interrupt)
	defer signal.Stop(r.interrupted)

	s := r.newSummary(w)
	status, err = r.test(args, s)
	if err == nil && status == 1 && len(r.interrupted) == 0 && r.again(s) {
		status = 0
	}
	honest := s.finish()
	if err == nil && status == 0 && !honest {
		status = 1
	}
	if status != 0 {
		s.repeat()
	}
	s.section("Failed, and what the machine did meanwhile", s.verdicts)
	return status, err
}

// test runs go test once.
func (r *runner) test(args []string, s *summary) (status int, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, fmt.Errorf("run go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("run go test: %w", err)
	}
	readErr := read(out, s)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), readErr // -1: a signal
	case err != nil:
		return 1, fmt.Errorf("run go test: %w", err)
	case readErr != nil:
		return 1, readErr
	case len(s.failed) > 0 || len(s.failures) > 0:
		return 1, errors.New("a test failed, though go test says that all is well")
	}
	return 0, nil
}

// read feeds every line of go test -json to the summary.
func read(r io.Reader, s *summary) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(s.w, "%s", line) // not an event: a message of the go command
			} else {
				s.add(&e)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read what go test prints: %w", err)
		}
	}
}
