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

// Limits of one file. They are far above what people write and far below what
// could hold up the daemon.
const (
	maxFileBytes = 1 << 20
	maxFiles     = 1000 // named, and in directories, together
	maxEntries   = 20000
	maxNodes     = 20000
	maxDepth     = 16
)

// ReadDocument reads the one YAML document of a file, at most 1 MiB of it. Its
// errors quote the file: do not read, on behalf of somebody else, a file that
// they may not read themselves. It
// refuses what neither rules nor the daemon's configuration need: anchors and
// aliases, tags, tabs as indentation, several documents, deep nesting, text
// that is not UTF-8. The node returned is the document's root; it is nil if
// there are errors.
func ReadDocument(path string) (*yaml.Node, Errors) {
	data, errs := readFile(path)
	if len(errs) > 0 {
		return nil, errs
	}
	return ParseDocument(path, data)
}

// readFile reads a file without ever holding more than the limit.
func readFile(path string) ([]byte, Errors) {
	fail := func(msg, allowed string) ([]byte, Errors) {
		return nil, Errors{{Pos: Position{File: path}, Msg: msg, Allowed: allowed}}
	}
	// Opening a FIFO would wait for whoever is at its other end, and opening a device may do things.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fail("is not a file: it is "+kind(info.Mode()), "a file, or a link to one")
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
		return fail("is not a file: it is "+kind(info.Mode()), "a file, or a link to one")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return fail("cannot read: "+reason(err), "")
	}
	if len(data) > maxFileBytes {
		return fail("file is too large", "at most 1 MiB")
	}
	return data, nil
}

// kind names what is no regular file.
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
	return "something else"
}

// reason is an error of the file system without the path that it repeats.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// ParseDocument is ReadDocument for data at hand; file names it in errors.
func ParseDocument(file string, data []byte) (*yaml.Node, Errors) {
	if len(data) > maxFileBytes {
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
			return nil, Errors{{Pos: at(file, &next), Msg: "a second document begins here", Allowed: "one document a file"}}
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

// checkText finds what is no YAML text at all.
func checkText(file string, data []byte) Errors {
	var errs Errors
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if i := invalidUTF8(text); i >= 0 {
			// Likely no text file at all: the first place says enough.
			return Errors{{Pos: Position{file, line, utf8.RuneCount(text[:i]) + 1}, Msg: "text is not UTF-8"}}
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

// syntaxError finds the line of a syntax error. The YAML parser often names the
// begin of the collection around it, or nothing; better is the last line of the
// shortest beginning of the file that fails in the same way.
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
	return Error{Pos: Position{file, line, column}, Msg: "not YAML: " + want}
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

// syntaxMessage splits an error of the YAML parser into what and in which line.
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

// shape walks a parsed document and refuses what could be a bomb.
type shape struct {
	file  string
	nodes int
	errs  Errors
}

// check returns false where the walk must end.
func (c *shape) check(n *yaml.Node, depth int) bool {
	c.nodes++
	if c.nodes > maxNodes {
		c.errs = append(c.errs, Error{at(c.file, n), "file holds too many values", fmt.Sprintf("at most %d", maxNodes)})
		return false
	}
	if depth > maxDepth {
		c.errs = append(c.errs, Error{at(c.file, n), "nested too deeply", fmt.Sprintf("at most %d levels", maxDepth)})
		return false
	}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.errs = append(c.errs, aliasError(at(c.file, n)))
	case n.Style&yaml.TaggedStyle != 0:
		c.errs = append(c.errs, Error{at(c.file, n), fmt.Sprintf("tag %q is not supported", cut(n.Tag)), "plain values without a tag"})
	}
	for _, child := range n.Content {
		if !c.check(child, depth+1) {
			return false
		}
	}
	return true
}

func aliasError(pos Position) Error {
	return Error{pos, "anchors and aliases are not supported", "the value itself"}
}

// at is a node's place. Columns count characters, from one.
func at(file string, n *yaml.Node) Position {
	return Position{File: file, Line: max(n.Line, 1), Column: max(n.Column, 1)}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// cut shortens what a message quotes.
func cut(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}
