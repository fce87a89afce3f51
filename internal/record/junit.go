package record

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/internal/term"
)

// Elements of JUnit's XML as CI systems read it, in the order that its schema asks for.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Hostname   string          `xml:"hostname,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
		Out        string          `xml:"system-out,omitempty"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Time    string       `xml:"time,attr"`
		Skipped *junitReason `xml:"skipped"`
		Error   *junitReason `xml:"error"`
		Failure *junitReason `xml:"failure"`
		Out     string       `xml:"system-out,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes the run as one test suite: a case for the command, one for each rule, and one
// for each expression that was asked for.
func (r *Report) JUnit(w io.Writer) error {
	suite := junitSuite{
		Name: "tailcam record", Hostname: term.Clean(r.Host), Timestamp: r.Time.Format("2006-01-02T15:04:05"),
		Time: seconds(r.DurationNS),
		Properties: []junitProperty{
			{"tailcam", term.Clean(r.Version)}, {"kernel", term.Clean(r.Kernel)}, {"cpus", strconv.Itoa(r.CPUs)}, {"ended", r.Ended},
		},
		Out: strings.Join(cleaned(r.Notes), "\n"),
	}
	if r.Command != nil {
		suite.add(r.Command.junit(r.Ended))
	}
	for i := range r.Rules {
		suite.add(r.Rules[i].junit(r.implied(r.Rules[i].Name)))
	}
	for i := range r.Checks {
		if c := &r.Checks[i]; !c.Implied {
			suite.add(c.junit(r.rule(c.Rule)))
		}
	}
	all := junitSuites{
		Tests: suite.Tests, Failures: suite.Failures, Errors: suite.Errors, Time: suite.Time, Suites: []junitSuite{suite},
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *junitSuite) add(c *junitCase) {
	s.Cases = append(s.Cases, *c)
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

// implied is the check that nobody asked for on a rule; nil: there is none.
func (r *Report) implied(rule string) *Check {
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Implied && c.Rule == rule {
			return c
		}
	}
	return nil
}

func (c *Command) junit(ended string) *junitCase {
	one := &junitCase{Name: term.Clean(term.Shorten(strings.Join(c.Args, " "), 200)), Class: "tailcam.command", Time: seconds(c.TookNS)}
	if c.Status != 0 && ended == EndedCommand {
		one.Failure = &junitReason{Message: c.Text(), Type: "exit status"}
	}
	return one
}

func (r *Rule) junit(implied *Check) *junitCase {
	c := &junitCase{Name: term.Clean(r.Name), Class: "tailcam.rules", Time: seconds(0), Out: r.text()}
	switch {
	case r.Inactive != "":
		c.Skipped = &junitReason{Message: term.Clean("inactive on this kernel: " + r.Inactive)}
	case implied == nil:
	case implied.Failed:
		c.Failure = &junitReason{Message: r.count(), Type: "outliers", Text: r.text()}
	case implied.Unjudged != "":
		c.Error = &junitReason{Message: term.Clean(implied.Unjudged), Type: "unjudged"}
	}
	return c
}

func (c *Check) junit(rule *Rule) *junitCase {
	one := &junitCase{Name: term.Clean(c.Expression), Class: "tailcam.checks", Time: seconds(0)}
	text := ""
	if rule != nil {
		text = rule.text()
	}
	switch {
	case c.Failed:
		one.Failure = &junitReason{Message: term.Clean(c.Text()), Type: "check", Text: text}
	case c.Unjudged != "":
		one.Error = &junitReason{Message: term.Clean(c.Unjudged), Type: "unjudged"}
	}
	return one
}

func seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'f', 3, 64) }

func cleaned(list []string) (clean []string) {
	for _, s := range list {
		clean = append(clean, term.Clean(s))
	}
	return clean
}

// count says how many outliers there were, and how bad.
func (r *Rule) count() string {
	if r.Outliers == 0 {
		return "no outliers"
	}
	noun := "outliers"
	if r.Outliers == 1 {
		noun = "outlier"
	}
	return fmt.Sprintf("%s %s, the longest delay %s", term.Count(r.Outliers), noun, term.Duration(r.MaxNS))
}
