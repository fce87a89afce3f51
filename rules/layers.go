package rules

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// source is the text of a rule file.
type source struct {
	file    string
	data    []byte
	machine Machine
	changed bool // gives way where files contradict each other
}

// layer is a rule file whose rules have not been read yet.
type layer struct {
	*source
	rules   []*definition
	disable []*yaml.Node
	actions *yaml.Node // nil: none
}

// definition is a rule of a file, with what other files have changed of it.
type definition struct {
	node  *yaml.Node
	blame string // the file that changed it last
}

// content is what rule files hold together, in the order of the files.
type content struct {
	rules   []Rule
	actions []SharedAction
}

// readSources reads rule files together: extensions change rules of any file, and
// disabled rules are left out. The errors are by the file that must change; their
// positions may be in another.
func readSources(list []source) (content, map[string]Errors) {
	r := newReader(nil)
	errs := make(map[string]Errors)
	layers := make([]*layer, len(list))
	order := make([]*layer, 0, len(list))
	for i := range list {
		layers[i] = &layer{source: &list[i]}
		order = append(order, layers[i])
	}
	slices.SortStableFunc(order, func(a, b *layer) int { return rank(a.changed) - rank(b.changed) })
	for _, l := range order {
		root, wrong := ParseDocument(l.file, l.data)
		errs[l.file] = append(errs[l.file], wrong...)
		if len(wrong) == 0 {
			r.errs, r.file = nil, l.file
			r.outline(root, l)
			errs[l.file] = append(errs[l.file], r.errs...)
		}
	}
	byName := definitions(order)
	for _, l := range layers { // later ones have the last word
		r.errs, r.file = nil, l.file
		r.extend(l, byName)
		errs[l.file] = append(errs[l.file], r.errs...)
	}
	disabled := make(map[string]bool)
	for _, l := range layers {
		r.errs, r.file = nil, l.file
		for _, n := range l.disable {
			if name, ok := r.known(n, "disable", byName); ok {
				disabled[name] = true
			}
		}
		errs[l.file] = append(errs[l.file], r.errs...)
	}
	got := make(map[*layer][]Rule)
	for _, l := range order {
		r.file, r.machine = l.file, l.machine
		for _, d := range l.rules {
			if disabled[ruleName(d.node)] {
				continue
			}
			r.errs = nil
			got[l] = append(got[l], r.numbered(d.node))
			errs[d.blame] = append(errs[d.blame], r.errs...)
		}
	}
	var all content
	for _, l := range layers {
		all.rules = append(all.rules, got[l]...)
		if l.actions != nil {
			r.errs, r.file, r.machine = nil, l.file, l.machine
			all.actions = append(all.actions, r.sharedActions(l.actions)...)
			errs[l.file] = append(errs[l.file], r.errs...)
		}
	}
	for _, e := range checkSLOs(all.rules) {
		errs[e.Pos.File] = append(errs[e.Pos.File], e)
	}
	for file := range errs {
		errs[file] = errs[file].tidy()
	}
	return all, errs
}

func rank(changed bool) int {
	if changed {
		return 1
	}
	return 0
}

// numbered reads a rule, if there are not too many.
func (r *reader) numbered(n *yaml.Node) Rule {
	r.rules++
	if r.rules == MaxRules+1 {
		r.fail(n, fmt.Sprintf("at most %d in all files", MaxRules), "too many rules")
	}
	if r.rules > MaxRules {
		return Rule{}
	}
	return r.rule(n)
}

// outline finds the parts of a file.
func (r *reader) outline(root *yaml.Node, l *layer) {
	keys := r.mapping(root, "file", fileKeys)
	if e, ok := keys["disable"]; ok {
		l.disable = r.list(e.value, "disable")
	}
	if e, ok := keys["actions"]; ok {
		l.actions = e.value
	}
	if len(keys) == 0 && len(r.errs) == 0 {
		r.fail(root, "a mapping with rules", "missing key rules")
	}
	e, ok := keys["rules"]
	if !ok {
		return
	}
	if e.value.Kind != yaml.SequenceNode {
		r.fail(e.value, "a list of rules", "rules is %s", kindOf(e.value))
		return
	}
	if len(e.value.Content) == 0 {
		r.fail(e.value, "at least one rule", "rules is an empty list")
	}
	for _, n := range e.value.Content {
		l.rules = append(l.rules, &definition{node: n, blame: l.file})
	}
}

// definitions finds rules by their names; of several, the first.
func definitions(layers []*layer) map[string]*definition {
	byName := make(map[string]*definition)
	for _, l := range layers {
		for _, d := range l.rules {
			if name := ruleName(d.node); name != "" && byName[name] == nil {
				byName[name] = d
			}
		}
	}
	return byName
}

// ruleName is the name in a rule that may be wrong; empty: none.
func ruleName(n *yaml.Node) string {
	if v := valueOf(n, "name"); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// valueOf is the value of a key of a mapping that may be wrong; nil: none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// known reads the name of a rule that a file has.
func (r *reader) known(n *yaml.Node, what string, byName map[string]*definition) (string, bool) {
	name, ok := r.text(n, what)
	if !ok {
		return "", false
	}
	if byName[name] == nil {
		var names []string
		for name := range byName {
			names = append(names, name)
		}
		slices.Sort(names)
		r.fail(n, "the name of a rule in any file", "%s", r.unknown("rule", name, names))
		return "", false
	}
	return name, true
}

// extend applies the extensions of a file, and removes them from its rules.
func (r *reader) extend(l *layer, byName map[string]*definition) {
	l.rules = slices.DeleteFunc(l.rules, func(d *definition) bool {
		if valueOf(d.node, "extend") == nil {
			return false
		}
		wrong := len(r.errs)
		keys := r.mapping(d.node, "rule", ruleKeys)
		for _, key := range []string{"name", "track"} {
			if e, ok := keys[key]; ok {
				r.fail(e.key, "the keys to change; or a rule of its own, without extend", "extend cannot change %s", key)
			}
		}
		name, ok := r.known(keys["extend"].value, "extend", byName)
		if ok && len(r.errs) == wrong {
			byName[name].change(keys, r, l.file)
		}
		return true
	})
}

// change replaces keys of a rule. An empty value removes the key.
func (d *definition) change(keys map[string]entry, r *reader, file string) {
	if d.node.Kind != yaml.MappingNode {
		return // an error of its own file
	}
	n := *d.node
	n.Content = nil
	for i := 0; i+1 < len(d.node.Content); i += 2 {
		if _, changed := keys[d.node.Content[i].Value]; !changed {
			n.Content = append(n.Content, d.node.Content[i], d.node.Content[i+1])
		}
	}
	for _, key := range ruleKeys {
		e, ok := keys[key]
		if !ok || key == "extend" || isNull(e.value) {
			continue
		}
		r.bring(e.key, file)
		r.bring(e.value, file)
		n.Content = append(n.Content, e.key, e.value)
	}
	d.node, d.blame = &n, file
}

// bring notes from which file a node is.
func (r *reader) bring(n *yaml.Node, file string) {
	r.from[n] = file
	for _, c := range n.Content {
		r.bring(c, file)
	}
}
