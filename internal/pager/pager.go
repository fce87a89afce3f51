// Package pager shows the text of a command in the operator's pager where it is longer than the
// terminal.
package pager

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	xterm "golang.org/x/term"
)

// shell runs PAGER, which may have arguments. A container may have none.
const shell = "/bin/sh"

// Writer holds back what is written to it until that has more lines than the terminal. Then it
// starts the pager, once, and passes everything on. Its methods may not be called concurrently.
type Writer struct {
	out     *os.File
	command string
	rows    int

	held   bytes.Buffer
	direct bool           // no pager could be started
	pager  *exec.Cmd      // nil: not started
	input  io.WriteCloser // of the pager
}

// New returns a writer for a terminal, and nil if out is none or there is no pager: PAGER is empty
// or cat, or it is not set and there is no less.
func New(out io.Writer) *Writer {
	f, ok := out.(*os.File)
	if !ok || !xterm.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	command, set := os.LookupEnv("PAGER")
	if !set {
		command = "less"
	}
	words := strings.Fields(command)
	if len(words) == 0 || words[0] == "cat" {
		return nil
	}
	if _, err := exec.LookPath(words[0]); err != nil && !strings.Contains(words[0], "=") {
		return nil
	}
	if _, err := os.Stat(shell); err != nil {
		return nil
	}
	_, rows, err := xterm.GetSize(int(f.Fd()))
	if err != nil || rows <= 0 {
		return nil
	}
	return &Writer{out: f, command: command, rows: rows}
}

// Write implements io.Writer. If the pager was left before the end, the rest is dropped.
func (w *Writer) Write(p []byte) (int, error) {
	switch {
	case w.direct:
		return w.out.Write(p)
	case w.pager != nil:
		return w.pass(p)
	}
	w.held.Write(p)
	if bytes.Count(w.held.Bytes(), []byte("\n")) < w.rows { // the last row has the prompt of the shell
		return len(p), nil
	}
	if err := w.start(); err != nil {
		w.direct = true
		_, err := w.held.WriteTo(w.out)
		return len(p), err
	}
	_, err := w.pass(w.held.Bytes())
	w.held.Reset()
	return len(p), err
}

func (w *Writer) pass(p []byte) (int, error) {
	if n, err := w.input.Write(p); err != nil && !errors.Is(err, syscall.EPIPE) {
		return n, err
	}
	return len(p), nil
}

func (w *Writer) start() error {
	cmd := exec.Command(shell, "-c", w.command) //nolint:gosec // the operator's own PAGER
	cmd.Stdout, cmd.Stderr = w.out, os.Stderr
	cmd.Env = environment(os.LookupEnv)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.pager, w.input = cmd, input
	return nil
}

// environment is that of the pager. Unless LESS says otherwise, less keeps colors, leaves the text
// on the terminal, and ends where one screen has all. Under sudo, it starts no other program.
func environment(lookup func(string) (string, bool)) []string {
	env := os.Environ()
	for _, v := range []struct{ name, value string }{{"LESS", "FRX"}, {"LV", "-c"}} {
		if _, set := lookup(v.name); !set {
			env = append(env, v.name+"="+v.value)
		}
	}
	if _, sudo := lookup("SUDO_UID"); sudo {
		env = append(env, "LESSSECURE=1")
	}
	return env
}

// Close writes what was held back, and waits until the pager was left. The status of the pager is
// not an error: to leave it early is usual.
func (w *Writer) Close() error {
	if w.pager == nil {
		_, err := w.held.WriteTo(w.out)
		return err
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT) // keys of the pager
	defer signal.Reset(syscall.SIGINT, syscall.SIGQUIT)
	err := w.input.Close()
	var left *exec.ExitError
	if ended := w.pager.Wait(); !errors.As(ended, &left) {
		err = cmp.Or(err, ended)
	}
	return err
}
