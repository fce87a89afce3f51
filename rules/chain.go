package rules

import "slices"

// Origin is where a chain may begin.
type Origin string

// Origins of chains.
const (
	FromIRQ     Origin = "irq"     // entry of an interrupt's handler
	FromHRTimer Origin = "hrtimer" // expiry of a timer
	FromSoftirq Origin = "softirq" // raise of a softirq that no interrupt and no timer raised
)

// Origins lists them in the order of the kernel side's bits.
var Origins = []Origin{FromIRQ, FromHRTimer, FromSoftirq}

// End is where a chain ends for a rule.
type End string

// Ends of chains.
const (
	ToRun   End = "run"   // the woken task runs
	ToUser  End = "user"  // its first return to user space from a system call
	ToBlock End = "block" // it sleeps again
)

// Ends lists them in the order of the kernel side's numbers.
var Ends = []End{ToRun, ToUser, ToBlock}

// chain reads the keys of track chain. Without from and to, a rule follows every
// chain until the woken task runs.
func (r *reader) chain(keys map[string]entry, rule *Rule) {
	for _, key := range []string{"from", "to"} {
		e, ok := keys[key]
		if ok && rule.Track != "" && rule.Track != Chain {
			r.fail(e.key, "track chain", "%s does not apply to track %s", key, rule.Track)
		}
	}
	if rule.Track != Chain {
		return
	}
	rule.When.From, rule.When.Ends = Origins, []End{ToRun}
	if e, ok := keys["from"]; ok {
		rule.When.From = words(r, e.value, "from", Origins)
	}
	if e, ok := keys["to"]; ok {
		rule.When.Ends = words(r, e.value, "to", Ends)
	}
	kernel := len(rule.When.Thread) == 1 && rule.When.Thread[0] == KernelThread
	if e, ok := keys["to"]; ok && kernel && slices.Equal(rule.When.Ends, []End{ToUser}) {
		r.fail(e.value, "run, block", "kernel threads never return to user space")
	}
	r.noTimeout(keys)
}

// noTimeout rejects timeouts, as chains are not scanned while pending.
func (r *reader) noTimeout(keys map[string]entry) {
	for _, key := range []string{"timeout", "repeat"} {
		if e, ok := keys[key]; ok {
			r.fail(e.key, "threshold; timeouts with track wakeup, offcpu", "%s does not apply to track chain", key)
		}
	}
}
