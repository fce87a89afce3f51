// Command report runs go test and prints a line per package, the whole output
// of what failed, and which tests were skipped, and why.
//
//	go run ./test/support/report -p 1 ./test/...
//
// Its arguments are those of go test, and so is its exit status. It also fails
// when a test was skipped that test/skips.yaml does not allow to be skipped
// here, and when that list names a test that does not exist.
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
	"slices"
	"strings"
	"syscall"

	"github.com/tailcam/tailcam/test/support/skips"
)

// allowed is the list of tests that may be skipped, seen from the root of the repository.
const allowed = "test/skips.yaml"

func main() {
	list, err := skips.Load(allowed)
	status := 1
	if err == nil {
		status, err = run(os.Args[1:], list, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	os.Exit(status)
}

// run returns the exit status of go test, 1 where there is none.
func run(args []string, list skips.List, w io.Writer) (status int, err error) {
	// A terminal sends an interrupt to go test as well, which then ends; what
	// has been run until then is still reported.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)

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
	s := newSummary(w)
	s.list, s.machine, s.all = list, skips.Here(args), !slices.ContainsFunc(args, selects)
	readErr := read(out, s)
	err = cmd.Wait()
	honest := s.finish()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), nil // -1: a signal
	case err != nil:
		return 1, fmt.Errorf("run go test: %w", err)
	case readErr != nil:
		return 1, readErr
	case s.failed:
		return 1, errors.New("a test failed, though go test says that all is well")
	case !honest:
		return 1, nil
	}
	return 0, nil
}

// selects reports whether an argument of go test leaves some tests of a package out.
func selects(arg string) bool {
	flag := strings.TrimLeft(arg, "-")
	return flag != arg && (strings.HasPrefix(flag, "run") || strings.HasPrefix(flag, "skip"))
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
