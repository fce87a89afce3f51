package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of one file: far above real files, and far below what could delay the
// daemon.
const (
	MaxFileBytes = 1 << 20 // of one file, in bytes
	maxFiles     = 1000    // in total
	maxEntries   = 20000
	maxNodes     = 20000
	maxDepth     = 16
)

// ReadDocument reads the YAML document of a file of at most 1 MiB and returns its
// root node, or errors. It rejects what neither rules nor the daemon's
// configuration need: anchors and aliases, tags, tabs as indentation, several
// documents, deep nesting, and text that is not UTF-8. Errors quote the file: do
// not read a file on behalf of a user who may not read it.
func ReadDocument(path string) (*yaml.Node, Errors) {
	data, errs := readFile(path)
	if len(errs) > 0 {
		return nil, errs
	}
	return ParseDocument(path, data)
}

// readFile reads at most the limit of a file.
func readFile(path string) ([]byte, Errors) {
	fail := func(msg, allowed string) ([]byte, Errors) {
		return nil, Errors{{Pos: Position{File: path}, Msg: msg, Allowed: allowed}}
	}
	// Opening a FIFO would block, and opening a device may have side effects.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fail("is "+kind(info.Mode()), "a regular file, or a link to one")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return fail("cannot open: "+reason(err), "")
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return fail("cannot open: "+reason(err), "")
	case !info.Mode().IsRegular():
		return fail("is "+kind(info.Mode()), "a regular file, or a link to one")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return fail("cannot read: "+reason(err), "")
	}
	if len(data) > MaxFileBytes {
		return fail("file is too large", "at most 1 MiB")
	}
	return data, nil
}

// kind names the type of a file that is not regular.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

// reason is an error of the file system without its path.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// ParseDocument is ReadDocument for the contents of a file; file names it in errors.
func ParseDocument(file string, data []byte) (*yaml.Node, Errors) {
	if len(data) > MaxFileBytes {
		return nil, Errors{{Pos: Position{File: file}, Msg: "file is too large", Allowed: "at most 1 MiB"}}
	}
	if errs := checkText(file, data); len(errs) > 0 {
		return nil, errs.tidy()
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, Errors{{Pos: Position{file, 1, 1}, Msg: "file is empty"}}
	}
	if err == nil {
		err = dec.Decode(&next)
		if err == nil {
			return nil, Errors{{Pos: position(file, &next), Msg: "second document", Allowed: "one document per file"}}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, Errors{syntaxError(file, data, err)}
	}
	c := shape{file: file}
	c.check(&doc, 0)
	if len(c.errs) > 0 {
		return nil, c.errs.tidy()
	}
	if len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return nil, Errors{{Pos: Position{file, 1, 1}, Msg: "file is empty"}}
	}
	return doc.Content[0], nil
}

// checkText rejects text that cannot be YAML.
func checkText(file string, data []byte) Errors {
	var errs Errors
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if i := invalidUTF8(text); i >= 0 {
			// Probably not a text file: one error is enough.
			return Errors{{Pos: Position{file, line, utf8.RuneCount(text[:i]) + 1}, Msg: "invalid UTF-8"}}
		}
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		rest := bytes.TrimSpace(text)
		if i := bytes.IndexByte(indent, '\t'); i >= 0 && len(rest) > 0 && rest[0] != '#' {
			errs = append(errs, Error{Pos: Position{file, line, i + 1}, Msg: "indented with a tab", Allowed: "spaces"})
		}
	}
	return errs
}

// invalidUTF8 is the index of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// syntaxError finds the line of a syntax error. The YAML parser often reports the
// start of the enclosing collection, or no line at all; the last line of the
// shortest prefix of the file that fails in the same way is better.
func syntaxError(file string, data []byte, err error) Error {
	want, said := syntaxMessage(err)
	var ends []int
	for i, b := range data {
		if b == '\n' {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 || ends[len(ends)-1] != len(data) {
		ends = append(ends, len(data))
	}
	line := 1 + sort.Search(len(ends)-1, func(i int) bool {
		got, _ := syntaxMessage(parseError(data[:ends[i]]))
		return got == want
	})
	line = max(line, min(said, len(ends)))
	begin := 0
	if line > 1 {
		begin = ends[line-2]
	}
	text := data[begin:ends[line-1]]
	column := 1 + len(text) - len(bytes.TrimLeft(text, " "))
	if strings.HasPrefix(want, "unknown anchor") {
		return aliasError(Position{file, line, column})
	}
	return Error{Pos: Position{file, line, column}, Msg: "invalid YAML: " + want}
}

// parseError parses every document of data and returns the first error.
func parseError(data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for range 2 {
		var n yaml.Node
		if err := dec.Decode(&n); err != nil {
			return err
		}
	}
	return nil
}

// syntaxMessage splits an error of the YAML parser into its message and line.
func syntaxMessage(err error) (msg string, line int) {
	if err == nil || errors.Is(err, io.EOF) {
		return "", 0
	}
	msg = strings.TrimPrefix(err.Error(), "yaml: ")
	if n, _ := fmt.Sscanf(msg, "line %d: ", &line); n == 1 {
		_, msg, _ = strings.Cut(msg, ": ")
	}
	if strings.HasSuffix(msg, "node content") {
		line++ // the parser counts from zero here
	}
	return msg, line
}

// shape walks a parsed document and rejects excessive size and nesting.
type shape struct {
	file  string
	nodes int
	errs  Errors
}

// check returns false if the walk must stop.
func (c *shape) check(n *yaml.Node, depth int) bool {
	c.nodes++
	if c.nodes > maxNodes {
		c.errs = append(c.errs, Error{position(c.file, n), "too many values in file", fmt.Sprintf("at most %d", maxNodes)})
		return false
	}
	if depth > maxDepth {
		c.errs = append(c.errs, Error{position(c.file, n), "nested too deeply", fmt.Sprintf("at most %d levels", maxDepth)})
		return false
	}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.errs = append(c.errs, aliasError(position(c.file, n)))
	case n.Style&yaml.TaggedStyle != 0:
		c.errs = append(c.errs, Error{position(c.file, n), fmt.Sprintf("tag %q is not supported", cut(n.Tag)),
			"values without a tag"})
	}
	for _, child := range n.Content {
		if !c.check(child, depth+1) {
			return false
		}
	}
	return true
}

func aliasError(pos Position) Error {
	return Error{pos, "anchors and aliases are not supported", "plain values"}
}

// position is a node's position. Columns count characters, from one.
func position(file string, n *yaml.Node) Position {
	return Position{File: file, Line: max(n.Line, 1), Column: max(n.Column, 1)}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// cut truncates a quoted value.
func cut(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}
