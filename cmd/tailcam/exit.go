package main

import (
	"errors"
	"fmt"
)

// Exit statuses. docs/cli.md and each manual page list them.
const (
	exitOK      = 0 // done; a list may be empty
	exitError   = 1 // failed
	exitUsage   = 2 // the command line is wrong; nothing was done
	exitNothing = 3 // what was asked for did not come, or is not there yet
)

// statusError is an error with an exit status of its own.
type statusError struct {
	error
	status int
}

// Unwrap returns the error without its status.
func (e *statusError) Unwrap() error { return e.error }

// usagef returns an error of whoever wrote the command line: what it alone shows to be
// wrong. What the daemon, the kernel or a file refuses is no such error.
func usagef(format string, args ...any) error {
	return &statusError{fmt.Errorf(format, args...), exitUsage}
}

// nothingf returns the error of a command that did not get what it waits or looks for.
func nothingf(format string, args ...any) error {
	return &statusError{fmt.Errorf(format, args...), exitNothing}
}

// errReported makes a command exit with exitError; the reason has been printed.
var errReported = errors.New("already reported")

// exitStatus returns the status that an error ends tailcam with.
func exitStatus(err error) int {
	var own *statusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.status
	}
	return exitError
}
