package pair

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// Place is one place in a program that a hook of a rule names, for a program of kind kprobe
// that is not ours.
type Place struct {
	Rule   string
	Hook   string       // as written
	At     abi.PairHook // role, conditions and labels: not which pair it is
	Attach func(*ebpf.Program) (link.Link, error)
}

// Places returns the places of the hooks of rules in programs and libraries. Errors are of
// rules: those whose hooks are not here, or cannot be.
func Places(list []rules.Rule, programs Programs) ([]Place, map[string]error) {
	var all []Place
	failed := map[string]error{}
	s := newSites(nil, programs)
	defer s.close()
	for i := range list {
		r := &list[i]
		hooks, _, err := resolvePair(r, 0, s)
		if err != nil {
			failed[r.Name] = err
			continue
		}
		for _, h := range hooks {
			if h.site.template != templateRegs || h.site.attach == nil {
				failed[r.Name] = errors.Join(failed[r.Name], fmt.Errorf("%s is not in a program", h.hook.Text))
				continue
			}
			all = append(all, Place{Rule: r.Name, Hook: h.hook.Text, At: h.wire, Attach: h.site.attach})
		}
	}
	return all, failed
}

// TextOf is all of a pair but where it stands in files.
func TextOf(spec *rules.PairSpec) string { return textOf(spec) }
