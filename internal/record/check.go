package record

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

// Check is a condition on a rule under which a run fails.
type Check struct {
	Expression string `json:"expression"` // such as p99(wakeup) > 5ms
	Rule       string `json:"rule"`
	Value      int64  `json:"value"` // what it was: nanoseconds, or a number of outliers; of slower 0 or 1
	Limit      int64  `json:"limit"`
	Failed     bool   `json:"failed"` // the condition holds
	// Unjudged is why nobody can say, such as a rule that cannot work on this kernel. That
	// fails the run, too, if the check was asked for.
	Unjudged string `json:"unjudged,omitempty"`
	Implied  bool   `json:"implied,omitempty"` // nothing was asked for: any outlier fails

	function, operator string
}

// Never is the expression of a run that does not fail.
const Never = "never"

// functions are what an expression may ask about a rule: all but count and slower are delays.
var functions = []string{"count", "max", "p50", "p90", "p99", "p99.9", slower}

const slower = "slower"

// Accepted says what an expression may be.
const Accepted = "FUNCTION(RULE) OPERATOR LIMIT, where FUNCTION is count, max, p50, p90, p99 or p99.9, OPERATOR is " +
	">, >=, < or <=, and LIMIT is a number for count and else a duration, such as 'p99(wakeup) > 5ms'; " +
	"'slower(RULE)' with --compare; or 'never'"

var (
	call       = regexp.MustCompile(`^\s*([^\s()]+)\s*\(\s*([^()]*?)\s*\)\s*(.*?)\s*$`)
	comparison = regexp.MustCompile(`^(>=|<=|>|<)\s*(.+)$`)
)

// maxExpression bounds the length of an expression.
const maxExpression = 1000

// ParseChecks reads expressions about rules. Without any, a run fails for each rule with
// an outlier. compare: runs are compared, so that slower can be asked for.
func ParseChecks(expressions []string, list []rules.Rule, compare bool) ([]Check, error) {
	checks := []Check{}
	if len(expressions) == 0 {
		for i := range list {
			checks = append(checks, Check{
				Expression: fmt.Sprintf("count(%s) > 0", list[i].Name), Rule: list[i].Name, function: "count", operator: ">",
				Implied: true,
			})
		}
		return checks, nil
	}
	for _, e := range expressions {
		if strings.TrimSpace(e) == Never {
			if len(expressions) > 1 {
				return nil, fmt.Errorf("%q cannot stand beside other expressions", Never)
			}
			return checks, nil
		}
		c, err := parseCheck(e, list, compare)
		if err != nil {
			return nil, fmt.Errorf("invalid expression %q: %w", term.Shorten(e, 200), err)
		}
		checks = append(checks, *c)
	}
	return checks, nil
}

func parseCheck(expression string, list []rules.Rule, compare bool) (*Check, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("longer than %d bytes", maxExpression)
	}
	m := call.FindStringSubmatch(expression)
	if m == nil {
		return nil, errors.New("must be " + Accepted)
	}
	c := &Check{Expression: strings.TrimSpace(expression), function: m[1], Rule: m[2]}
	if !known(c.function) {
		return nil, fmt.Errorf("unknown function %q: must be one of %s", c.function, strings.Join(functions, ", "))
	}
	if err := c.checkRule(list); err != nil {
		return nil, err
	}
	if c.function == slower {
		return c, c.checkSlower(m[3], compare)
	}
	return c, c.parseLimit(m[3])
}

func known(function string) bool {
	for _, f := range functions {
		if f == function {
			return true
		}
	}
	return false
}

// checkRule makes sure that there is the rule, with what is asked of it.
func (c *Check) checkRule(list []rules.Rule) error {
	var names []string
	for i := range list {
		r := &list[i]
		if r.Name != c.Rule {
			names = append(names, r.Name)
			continue
		}
		if !rules.HasHistogram(r.Track) && c.function != "count" && c.function != "max" {
			return fmt.Errorf("rule %s of track %s has no histogram: ask for count or max", r.Name, r.Track)
		}
		return nil
	}
	if c.Rule == "" {
		return errors.New("no rule is named: the rules are " + strings.Join(names, ", "))
	}
	return fmt.Errorf("unknown rule %q: the rules are %s", c.Rule, strings.Join(names, ", "))
}

func (c *Check) checkSlower(rest string, compare bool) error {
	switch {
	case rest != "":
		return fmt.Errorf("%q after slower(%s): slower takes no operator", rest, c.Rule)
	case !compare:
		return errors.New("slower needs --compare")
	}
	return nil
}

func (c *Check) parseLimit(rest string) error {
	m := comparison.FindStringSubmatch(rest)
	if m == nil {
		return fmt.Errorf("%q after %s(%s): must be an operator (>, >=, <, <=) and a limit", rest, c.function, c.Rule)
	}
	c.operator = m[1]
	if c.function == "count" {
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("invalid limit %q of count: must be a whole number of outliers", m[2])
		}
		c.Limit = n
		return nil
	}
	d, err := time.ParseDuration(m[2])
	if err != nil || d < 0 {
		return fmt.Errorf("invalid limit %q of %s: must be a duration, such as 5ms or 1.5s", m[2], c.function)
	}
	c.Limit = d.Nanoseconds()
	return nil
}

// Judge decides the checks on a run, and whether it passed.
func (r *Report) Judge(checks []Check) {
	r.Checks, r.Passed = checks, true
	for i := range checks {
		c := &checks[i]
		c.judge(r)
		if c.Failed || c.Unjudged != "" && !c.Implied {
			r.Passed = false
		}
	}
}

func (c *Check) judge(r *Report) {
	rule := r.rule(c.Rule)
	switch {
	case rule == nil:
		c.Unjudged = "the rule is gone"
		return
	case rule.Inactive != "":
		c.Unjudged = "the rule is inactive on this kernel: " + rule.Inactive
		return
	case rule.Histogram == nil && c.function != "count" && c.function != "max":
		c.Unjudged = "the rule has no histogram"
		return
	case c.function == slower:
		c.Failed = r.slower(c.Rule)
		if c.Failed {
			c.Value = 1
		}
		return
	}
	c.Value = rule.value(c.function)
	c.Failed = compare(c.Value, c.operator, c.Limit)
	if !c.Failed && rule.Paused && c.function == "count" && strings.HasPrefix(c.operator, ">") {
		c.Unjudged = "the rule was paused because it fired far too often: there may be more"
	}
}

// value is what an expression compares.
func (r *Rule) value(function string) int64 {
	switch function {
	case "count":
		return int64(r.Outliers)
	case "max":
		return r.MaxNS
	case "p50":
		return int64(r.Histogram.P50NS)
	case "p90":
		return int64(r.Histogram.P90NS)
	case "p99":
		return int64(r.Histogram.P99NS)
	}
	return int64(r.Histogram.P999NS)
}

func compare(value int64, operator string, limit int64) bool {
	switch operator {
	case ">":
		return value > limit
	case ">=":
		return value >= limit
	case "<":
		return value < limit
	}
	return value <= limit
}

// Exit statuses of a run besides the command's.
const (
	statusUnjudged = 1
	statusFailed   = 3
)

// Status is the exit status of the run, which has been judged.
func (r *Report) Status() int {
	r.ExitStatus = 0
	for i := range r.Checks {
		if r.Checks[i].Failed {
			r.ExitStatus = statusFailed
			return r.ExitStatus
		}
	}
	switch {
	case !r.Passed:
		r.ExitStatus = statusUnjudged
	case r.Command != nil && r.Ended == EndedCommand:
		r.ExitStatus = r.Command.Status
	}
	return r.ExitStatus
}

// Text says what a check found, as a sentence.
func (c *Check) Text() string {
	amount := func(n int64) string {
		if c.function == "count" || c.function == slower {
			return strconv.FormatInt(n, 10)
		}
		return term.Duration(n)
	}
	switch {
	case c.Unjudged != "":
		return fmt.Sprintf("%s: cannot be judged: %s", c.Expression, c.Unjudged)
	case c.function == slower && c.Failed:
		return c.Expression + ": slower than the baseline"
	case c.function == slower:
		return c.Expression + ": not decidedly slower than the baseline"
	}
	return fmt.Sprintf("%s: it was %s", c.Expression, amount(c.Value))
}
