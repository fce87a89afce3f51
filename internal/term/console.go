// Package term writes for people: colours where they help, columns that line
// up, durations that read at a glance, and nothing that a hostile task name
// could do to a terminal.
package term

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"

	xterm "golang.org/x/term"
)

// Style is how a piece of text stands out.
type Style string

// Styles. Each is the parameter of one SGR escape sequence.
const (
	Plain   Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Cyan    Style = "36"
	BoldRed Style = "1;31"
	Blue    Style = "34"
	Magenta Style = "35"
)

// Options override what New finds out about the stream. For tests.
type Options struct {
	Terminal bool // progress lines redraw themselves
	Color    bool
	Columns  int // 0: as where the stream is no terminal
}

// Console is one stream that a person may be reading. Its methods may not be
// called concurrently, but for those of Progress.
type Console struct {
	w        io.Writer
	terminal bool
	color    bool
	columns  int   // 0: ask the terminal
	err      error // of the first write that failed
}

// New returns a console on w. With nil options it colours only if w is a
// terminal that can, and the environment does not forbid it (NO_COLOR).
func New(w io.Writer, opts *Options) *Console {
	if opts != nil {
		return &Console{w: w, terminal: opts.Terminal, color: opts.Color, columns: cmp.Or(opts.Columns, defaultColumns)}
	}
	terminal := isTerminal(w)
	return &Console{w: w, terminal: terminal, color: terminal && wantsColor(os.Getenv)}
}

// Terminal reports whether the stream is a terminal.
func (c *Console) Terminal() bool { return c.terminal }

// Columns is how wide the terminal is now, within MinColumns and MaxColumns.
// What is no terminal is as wide as COLUMNS says, or as a page.
func (c *Console) Columns() int {
	n := c.columns
	if f, ok := c.w.(*os.File); ok && n == 0 && c.terminal {
		n, _, _ = xterm.GetSize(int(f.Fd())) // 0: it does not say
	}
	if n == 0 {
		n, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	}
	if n <= 0 {
		n = defaultColumns
	}
	return min(max(n, MinColumns), MaxColumns)
}

// Write implements io.Writer; it changes nothing.
func (c *Console) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// Err returns the error of the first write that failed.
func (c *Console) Err() error { return c.err }

// Unwrap returns what the console writes to.
func (c *Console) Unwrap() io.Writer { return c.w }

// Redirect makes the console write to w, which shows it on the same terminal.
func (c *Console) Redirect(w io.Writer) { c.columns, c.w = c.Columns(), w }

// Printf prints; arguments that come from outside must have been through Clean.
func (c *Console) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c, format, args...) // Err has the error
}

// Paint returns text in a style, or as it is where the console has no colours.
func (c *Console) Paint(s Style, text string) string {
	if !c.color || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd()))
}

// wantsColor follows no-color.org: any value but the empty one means no.
func wantsColor(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// SetColor says whether Paint paints, whatever New found out.
func (c *Console) SetColor(on bool) { c.color = on }

// Color reports whether Paint paints.
func (c *Console) Color() bool { return c.color }
