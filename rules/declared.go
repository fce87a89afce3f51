package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of activities that rules declare; see KernelLimits.
const (
	MaxDeclared     = 16 // rules
	maxActivityName = 31 // bytes
)

// Declared returns the rules that begin and end activities, at most MaxDeclared.
func Declared(list []Rule) []Rule {
	some := slices.DeleteFunc(slices.Clone(list), func(r Rule) bool { return r.Pair == nil || r.Pair.Activity == "" })
	return some[:min(len(some), MaxDeclared)]
}

// Text is the label of an activity's entry that is its text; -1: it has none.
func (p *PairSpec) Text() int {
	return slices.IndexFunc(p.Labels, func(l Label) bool { return l.As == AsString && !l.AtExit })
}

// declared reads the name of the activity of a pair, and rejects what cannot begin or end one:
// that is done by the thread itself, as it runs in user space.
func (r *reader) declared(n *yaml.Node, p *PairSpec) string {
	name, ok := r.text(n, "activity")
	if !ok {
		return ""
	}
	graphic := func(c rune) bool { return c <= ' ' || c > '~' }
	if name == "" || len(name) > maxActivityName || strings.IndexFunc(name, graphic) >= 0 {
		r.fail(n, fmt.Sprintf("1 to %d ASCII characters without blanks", maxActivityName), "invalid activity %q", cut(name))
		return ""
	}
	if len(p.Key) > 0 && (len(p.Key) != 1 || !p.Key[0].Entry.IsTask() || !p.Key[0].Exit.IsTask() || !p.Key[0].Cancel.IsTask()) {
		r.fail(n, "key: [tid]", "the thread that begins an activity ends it, which the key of the rule does not say")
	}
	for _, h := range slices.Concat(p.Entry, p.Exit, p.Cancel) {
		if h.Kind != UProbe && h.Kind != URetProbe && h.Kind != USDT {
			r.fail(n, "uprobe, uretprobe, usdt", "an activity does not begin or end at %s", cut(h.Text))
		}
		if h.Key != nil {
			r.fail(n, "hooks without key", "the thread that begins an activity ends it, which the key of %s does not say", cut(h.Text))
		}
	}
	if r.activities++; r.activities == MaxDeclared+1 {
		r.fail(n, fmt.Sprintf("at most %d in all rules", MaxDeclared), "too many rules with activity")
	}
	return name
}
