package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one error in a file: its position, what is wrong, what is allowed.
type Error struct {
	Pos     Position
	Msg     string
	Allowed string // may be empty
}

// Error returns "file:line:column: what is wrong; allowed: what is allowed".
func (e Error) Error() string { return e.Pos.String() + ": " + e.text() }

// text is Error without the position.
func (e Error) text() string {
	if e.Allowed == "" {
		return e.Msg
	}
	return e.Msg + "; allowed: " + e.Allowed
}

// String returns file:line:column, or the file alone if there is no line.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Errors are all errors found, ordered by file and line. An empty list is never
// returned as an error.
type Errors []Error

// Error returns one line per error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single Error.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// maxErrors bounds the errors reported for one file.
const maxErrors = 100

// tidy sorts the errors of one file by position and keeps maxErrors of them.
func (e Errors) tidy() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		if a.Pos.Line != b.Pos.Line {
			return a.Pos.Line - b.Pos.Line
		}
		return a.Pos.Column - b.Pos.Column
	})
	if len(e) > maxErrors {
		rest := len(e) - maxErrors
		e = append(e[:maxErrors:maxErrors], Error{
			Pos: e[maxErrors].Pos,
			Msg: fmt.Sprintf("%d more errors not shown", rest),
		})
	}
	return e
}
