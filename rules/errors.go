package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a file: where it is, what is wrong, what is allowed.
type Error struct {
	Pos     Position
	Msg     string
	Allowed string // empty: Msg says it all
}

// Error returns "file:line:column: what is wrong; allowed: what is allowed".
func (e Error) Error() string {
	s := e.Pos.String() + ": " + e.Msg
	if e.Allowed != "" {
		s += "; allowed: " + e.Allowed
	}
	return s
}

// String returns file:line:column. A place without a line is the file itself.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Errors are all mistakes that were found, in the order of files and lines. It
// is never returned empty as an error.
type Errors []Error

// Error returns one line each mistake.
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

// maxErrors is how many mistakes of one file are told: who has more has
// something else than a rule file.
const maxErrors = 100

// tidy sorts the mistakes of one file by place and cuts them at maxErrors.
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
			Msg: fmt.Sprintf("%d more mistakes from here on are not shown", rest),
		})
	}
	return e
}
