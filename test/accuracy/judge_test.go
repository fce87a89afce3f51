package accuracy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/explain"
)

// truth is what a scenario's program says, by CLOCK_MONOTONIC.
type truth struct {
	Victim  int    `json:"victim"`  // 0: a worker of the kernel
	Culprit int    `json:"culprit"` // 0: no task of the program
	Root    int    `json:"root"`    // who kept the culprit; 0: nobody
	Start   uint64 `json:"start_ns"`
	End     uint64 `json:"end_ns"`
	Part    uint64 `json:"part_ns"` // of it, what the culprit took
	Request string `json:"request"` // INDEX.GENERATION of the token that the culprit carried; 0.0: none
	Trace   string `json:"trace"`   // that the culprit had published; "": none
	Behind  string `json:"behind"`  // that the root had, likewise
	Crowded bool   `json:"crowded"` // no other CPU was idle all the time
	Spoilt  string `json:"spoilt"`  // why this run says nothing
}

// want is what tailcam has to say.
type want struct {
	causes []explain.Cause // one of them is the blame's; where all is crowded, of parts
	parts  []explain.Cause // their parts together are truth.Part; nil: causes
	by     string          // the culprit: its comm, or a part of its name
	many   bool            // any of many tasks with this comm
	root   explain.Cause   // what kept the culprit; "": nothing has to be said
	rootBy string
	says   string // the verdict, among other things
	does   bool   // and in which function samples have found what ran
	omits  string // the verdict must not say it
	// pattern, if not "", must be named; others may come from what else the machine does.
	pattern explain.Pattern
	not     explain.Pattern // must not be named; "": any may
	// request is the name of the one to blame, by its token; "": any, or none. own: it is the
	// victim's.
	request string
	own     bool
	evicted bool          // it had evicted what is read
	advice  string        // among other things; "": none may be given; anyAdvice: whatever, or none
	within  time.Duration // or by so much, where it is sampled
}

// anyAdvice is where what else the machine does decides what there is to advise.
const anyAdvice = "*"

// Parts may be off by the larger one of these.
const (
	tolerance = 200 * time.Microsecond
	percent   = 5
)

func near(said, is int64) bool {
	return max(said-is, is-said) <= max(tolerance.Nanoseconds(), is*percent/100)
}

func (w *want) is(by *explain.Who, comm string, tid int) bool {
	if by == nil || !strings.Contains(by.Name, comm) && !strings.Contains(by.Comm, comm) {
		return false
	}
	return tid == 0 || by.TID == tid
}

// blamesOthers reports whether a verdict names who took no part.
func (w *want) blamesOthers(verdict string) bool {
	return w.omits != "" && strings.Contains(verdict, w.omits)
}

// inFunction is what a verdict says of samples.
var inFunction = regexp.MustCompile(`\((.*, )?in [^ )]+: \d+ of \d+ samples\)`)

// judge holds a result against the truth. It returns how long tailcam says that
// the culprit took, and what is wrong.
func (w *want) judge(tr *truth, r *explain.Result) (said int64, wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	culprit := tr.Culprit
	if w.many {
		culprit = 0
	}
	parts := w.parts
	if parts == nil {
		parts = w.causes
	}
	if !slices.Contains(w.causes, r.Blame.Cause) && !(tr.Crowded && slices.Contains(parts, r.Blame.Cause)) {
		complain("blames %s, not %s", r.Blame.Cause, w.causes[0])
	}
	if !w.is(r.Blame.By, w.by, culprit) {
		complain("blames %s, not %s %d", name(r.Blame.By), w.by, culprit)
	}
	if !strings.Contains(r.Verdict, w.by) || culprit != 0 && !strings.Contains(r.Verdict, strconv.Itoa(culprit)) {
		complain("the verdict does not name %s", w.by)
	}
	if w.pattern != "" && (r.Pattern != w.pattern || !strings.HasPrefix(r.Verdict, w.pattern.Words()+": ")) {
		complain("the pattern is %q, not %s", r.Pattern, w.pattern)
	}
	if w.not != "" && r.Pattern == w.not {
		complain("the pattern is %s: %s", r.Pattern, r.PatternWhy)
	}
	switch {
	case w.advice == anyAdvice:
	case w.advice == "" && r.Advice != "":
		complain("it advises %q, where there is nothing to advise", r.Advice)
	case !strings.Contains(r.Advice, w.advice):
		complain("the advice %q does not say %q", r.Advice, w.advice)
	}
	if w.does && !inFunction.MatchString(r.Verdict) {
		complain("the verdict has no function of what ran")
	}
	if !strings.Contains(r.Verdict, w.says) {
		complain("the verdict does not say %q", w.says)
	}
	if w.blamesOthers(r.Verdict) {
		complain("the verdict says %q", w.omits)
	}
	wrong = append(wrong, w.judgeRequest(tr, r)...)
	wrong = append(wrong, judgeTrace(tr, r)...)
	if w.root != "" {
		if n := len(r.Chain); n == 0 {
			complain("finds nothing behind it, not %s by %s", w.root, w.rootBy)
		} else if last := &r.Chain[n-1]; last.Cause != w.root || !w.is(last.By, w.rootBy, tr.Root) {
			complain("finds %s by %s behind it, not %s by %s", last.Cause, name(last.By), w.root, w.rootBy)
		}
		if !strings.Contains(r.Verdict, w.rootBy) {
			complain("the verdict does not name %s", w.rootBy)
		}
	}
	var sum int64
	for i := range r.Parts {
		p := &r.Parts[i]
		sum += p.NS
		if slices.Contains(parts, p.Cause) && w.is(p.By, w.by, culprit) {
			said += p.NS
		}
	}
	if sum != r.DelayNS {
		complain("the parts are %v together, the delay is %v", time.Duration(sum), time.Duration(r.DelayNS))
	}
	if off := max(said-int64(tr.Part), int64(tr.Part)-said); !near(said, int64(tr.Part)) && off > w.within.Nanoseconds() {
		complain("gives it %v, it is %v", time.Duration(said), time.Duration(tr.Part))
	}
	if whole := int64(tr.End - tr.Start); !near(r.DelayNS, whole) {
		complain("the delay is %v, it was %v", time.Duration(r.DelayNS), time.Duration(whole))
	}
	if off := int64(r.StartMonoNS - tr.Start); !near(int64(tr.End-tr.Start)+off, int64(tr.End-tr.Start)) {
		complain("it begins %v off", time.Duration(off))
	}
	return said, wrong
}

func name(w *explain.Who) string {
	if w == nil {
		return "nobody"
	}
	return w.Name
}
