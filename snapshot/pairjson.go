package snapshot

import (
	"strings"

	"github.com/tailcam/tailcam/rules"
)

// PairJSON is rules.PairSpec in the syntax of rule files.
type PairJSON struct {
	Entry         []string          `json:"entry"`
	Exit          []string          `json:"exit"`
	Cancel        []string          `json:"cancel,omitempty"`
	Key           []string          `json:"key"` // name, fields at entry, exit and cancel
	OnDuplicate   rules.OnDuplicate `json:"on_duplicate"`
	EntryWhen     []string          `json:"entry_when,omitempty"`
	ExitWhen      []string          `json:"exit_when,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	ForgetAfterNS int64             `json:"forget_after_ns"`
}

func pairJSON(r *rules.Rule) *PairJSON {
	p := r.Pair
	if p == nil {
		return nil
	}
	hooks := func(list []rules.Hook) []string {
		var out []string
		for _, h := range list {
			text := h.Text
			for i, k := range h.Key {
				text += []string{" key ", ", "}[min(i, 1)] + k.Text
			}
			for i, w := range h.When {
				text += []string{" when ", ", "}[min(i, 1)] + w.Text
			}
			out = append(out, text)
		}
		return out
	}
	compares := func(list []rules.Compare) []string {
		var out []string
		for _, c := range list {
			out = append(out, c.Text)
		}
		return out
	}
	out := &PairJSON{
		Entry: hooks(p.Entry), Exit: hooks(p.Exit), Cancel: hooks(p.Cancel), OnDuplicate: p.OnDuplicate,
		EntryWhen: compares(p.EntryWhen), ExitWhen: compares(p.ExitWhen), ForgetAfterNS: int64(r.Forget()),
	}
	for _, k := range p.Key {
		out.Key = append(out.Key, strings.Join([]string{k.Name, k.Entry.Text, k.Exit.Text, k.Cancel.Text}, " "))
	}
	for _, l := range p.Labels {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		at := ""
		if l.AtExit {
			at = "exit."
		}
		out.Labels[l.Name] = at + l.Field.Text
	}
	return out
}
