package record

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// element is any XML element.
type element struct {
	name     string
	attrs    map[string]string
	children []*element
	text     string
}

func parseXML(t *testing.T, data []byte) *element {
	t.Helper()
	root := &element{}
	open := []*element{root}
	for dec := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		assert.NilError(t, err, "%s", data)
		top := open[len(open)-1]
		switch x := token.(type) {
		case xml.StartElement:
			e := &element{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			top.children = append(top.children, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			top.text += string(x)
		}
	}
	assert.Assert(t, len(root.children) == 1)
	return root.children[0]
}

// grammar is what readers of JUnit's XML agree on: which attributes an element must have,
// which it may have, and its children in their order.
var grammar = map[string]struct{ must, may, children []string }{
	"testsuites": {nil, []string{"name", "time", "tests", "failures", "errors", "disabled"}, []string{"testsuite"}},
	"testsuite": {
		[]string{"name", "tests", "failures", "errors", "time", "timestamp", "hostname"}, []string{"skipped", "id", "package"},
		[]string{"properties", "testcase", "system-out", "system-err"},
	},
	"properties": {nil, nil, []string{"property"}},
	"property":   {[]string{"name", "value"}, nil, nil},
	"testcase":   {[]string{"name", "classname", "time"}, nil, []string{"skipped", "error", "failure", "system-out", "system-err"}},
	"skipped":    {nil, []string{"message"}, nil},
	"error":      {[]string{"type"}, []string{"message"}, nil},
	"failure":    {[]string{"type"}, []string{"message"}, nil},
	"system-out": {}, "system-err": {},
}

func checkJUnit(t *testing.T, e *element) {
	t.Helper()
	g, ok := grammar[e.name]
	assert.Assert(t, ok, "unknown element %s", e.name)
	for _, a := range g.must {
		_, ok := e.attrs[a]
		assert.Check(t, ok, "%s lacks %s", e.name, a)
	}
	for a := range e.attrs {
		assert.Check(t, slices.Contains(slices.Concat(g.must, g.may), a), "%s has %s", e.name, a)
	}
	last := 0
	for _, c := range e.children {
		at := slices.Index(g.children, c.name)
		assert.Check(t, at >= last, "%s out of place in %s", c.name, e.name)
		last = max(at, last)
		checkJUnit(t, c)
	}
}

func count(e *element, names ...string) (n int) {
	if slices.Contains(names, e.name) {
		n++
	}
	for _, c := range e.children {
		n += count(c, names...)
	}
	return n
}

func TestJUnit(t *testing.T) {
	r := withDelays(0, 1, 2, 30)
	r.Time, r.Host, r.DurationNS, r.Ended = time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC), "host<>&\"\x00", 61e9, EndedCommand
	r.Command = &Command{Args: []string{"sh", "-c", "echo ]]> <a> \x1b[2J \xff\ufffe"}, Status: 4, TookNS: 60e9}
	r.Notes = []string{"a note\x01 <b>"}
	r.Rules[0].Outliers, r.Rules[0].Explained = 2, 1
	r.Rules[0].Culprits = []Culprit{{"evil ]]> \x1b", "task", "preempted", 1, 5e6}}
	r.Rules[0].Verdicts = []Verdict{{Text: "<script>\x07", DelayNS: 5}}
	r.Rules[1].Inactive = "no hook"
	checks, err := ParseChecks(nil, twoRules, false)
	assert.NilError(t, err)
	for name, c := range map[string]struct {
		checks                           []Check
		tests, failures, errors, skipped int
	}{
		"any outlier": {checks, 4, 2, 0, 1},
		"asked":       {[]Check{{Expression: "p99(wakeup) > 5ms", Rule: "wakeup", function: "p99", operator: ">", Limit: 5e6}, {Expression: "count(disk-slow) > 5", Rule: "disk-slow", function: "count", operator: ">", Limit: 5}}, 6, 2, 1, 1},
		"never":       {nil, 4, 1, 0, 1},
	} {
		r.Judge(c.checks)
		var out bytes.Buffer
		assert.NilError(t, r.JUnit(&out))
		assert.Check(t, strings.HasPrefix(out.String(), "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "))
		assert.Check(t, !strings.ContainsAny(out.String(), "\x00\x01\x07\x1b") && !bytes.Contains(out.Bytes(), []byte{0xff}))
		root := parseXML(t, out.Bytes())
		checkJUnit(t, root)
		suite := root.children[0]
		for what, want := range map[string]int{"tests": c.tests, "failures": c.failures, "errors": c.errors, "skipped": c.skipped} {
			assert.Check(t, is.Equal(suite.attrs[what], strconv.Itoa(want)), "%s: %s", name, what)
		}
		assert.Check(t, is.Equal(count(suite, "testcase"), c.tests), name)
		assert.Check(t, is.Equal(count(suite, "failure"), c.failures), name)
		assert.Check(t, is.Equal(count(suite, "error"), c.errors), name)
		assert.Check(t, suite.attrs["timestamp"] == "2026-11-23T01:02:03" && suite.attrs["time"] == "61.000")
	}
}
