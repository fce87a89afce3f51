package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Keys of track pair, and of the mappings in them.
var (
	pairKeys = []string{"entry", "exit", "cancel", "key", "on_duplicate", "entry_when", "exit_when", "labels",
		"forget_after", "activity"}
	hookKeys  = []string{"hook", "key", "when"}
	partKeys  = []string{"name", "entry", "exit", "cancel"}
	labelKeys = []string{"field", "as", "user"}
)

// pair reads the keys of track pair.
func (r *reader) pair(n *yaml.Node, keys map[string]entry, rule *Rule) {
	if rule.Track != Pair {
		for _, key := range pairKeys {
			if e, ok := keys[key]; ok && rule.Track != "" {
				r.fail(e.key, "track pair", "%s does not apply to track %s", key, rule.Track)
			}
		}
		return
	}
	p := &PairSpec{OnDuplicate: Restart}
	rule.Pair = p
	for _, key := range []string{"entry", "exit", "key"} {
		if _, ok := keys[key]; !ok {
			r.fail(n, "rules of track pair with entry, exit and key", "rule has no %s", key)
		}
	}
	if e, ok := keys["key"]; ok {
		p.Key = r.keyParts(e.value)
	}
	for _, l := range []struct {
		key string
		to  *[]Hook
	}{{"entry", &p.Entry}, {"exit", &p.Exit}, {"cancel", &p.Cancel}} {
		if e, ok := keys[l.key]; ok {
			*l.to = r.hooks(e.value, l.key, len(p.Key))
		}
	}
	if e, ok := keys["on_duplicate"]; ok {
		if got := words(r, e.value, "on_duplicate", Duplicates); len(got) > 0 {
			p.OnDuplicate = got[0]
		}
	}
	if e, ok := keys["entry_when"]; ok {
		p.EntryWhen = r.compares(e.value, "entry_when")
	}
	if e, ok := keys["exit_when"]; ok {
		p.ExitWhen = r.compares(e.value, "exit_when")
	}
	if e, ok := keys["labels"]; ok {
		p.Labels = r.labels(e.value)
	}
	if e, ok := keys["forget_after"]; ok {
		p.ForgetAfter = r.duration(e.value, "forget_after", time.Second, maxTimeout)
	}
	if e, ok := keys["activity"]; ok {
		p.Activity = r.declared(e.value, p)
	}
}

// hooks reads a list of hooks, or one.
func (r *reader) hooks(n *yaml.Node, what string, parts int) []Hook {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	if len(nodes) == 0 || len(nodes) > maxHooks {
		r.fail(n, fmt.Sprintf("1 to %d hooks", maxHooks), "%s has %d hooks", what, len(nodes))
		return nil
	}
	var list []Hook
	for _, v := range nodes {
		h, ok := r.hook(v, what, parts)
		if !ok {
			continue
		}
		if slices.ContainsFunc(list, func(o Hook) bool { return o.Text == h.Text && len(o.When)+len(h.When) == 0 }) {
			r.fail(v, "each hook once", "duplicate hook %s", cut(h.Text))
			continue
		}
		list = append(list, h)
	}
	return list
}

func (r *reader) hook(n *yaml.Node, what string, parts int) (Hook, bool) {
	if n.Kind != yaml.MappingNode {
		return r.hookText(n, what)
	}
	keys := r.mapping(n, "hook", hookKeys)
	e, ok := keys["hook"]
	if !ok {
		r.fail(n, hookAllowed, "%s has a mapping without hook", what)
		return Hook{}, false
	}
	h, ok := r.hookText(e.value, "hook")
	if e, has := keys["key"]; has && ok {
		for _, v := range r.list(e.value, "key") {
			if f, good := r.field(v, "key"); good {
				h.Key = append(h.Key, f)
			}
		}
		if parts > 0 && len(h.Key) > 0 && len(h.Key) != parts {
			r.fail(e.value, fmt.Sprintf("%d, like the rule's key", parts), "key has %d parts", len(h.Key))
		}
	}
	if e, has := keys["when"]; has && ok {
		h.When = r.compares(e.value, "when")
	}
	return h, ok
}

func (r *reader) hookText(n *yaml.Node, what string) (Hook, bool) {
	s, ok := r.text(n, what)
	if !ok {
		return Hook{}, false
	}
	h, err := ParseHook(s)
	if err != nil {
		r.fail(n, hookAllowed, "%s: %v", what, err)
		return h, false
	}
	h.Pos = r.position(n)
	return h, true
}

func (r *reader) field(n *yaml.Node, what string) (Field, bool) {
	s, ok := r.text(n, what)
	if !ok {
		return Field{}, false
	}
	f, err := ParseField(s)
	if err != nil {
		r.fail(n, fieldAllowed, "%s: invalid field %q: %v", what, cut(s), err)
		return f, false
	}
	f.Pos = r.position(n)
	return f, true
}

func (r *reader) keyParts(n *yaml.Node) []KeyPart {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	if len(nodes) == 0 || len(nodes) > maxKeyParts {
		r.fail(n, fmt.Sprintf("1 to %d parts", maxKeyParts), "key has %d parts", len(nodes))
		return nil
	}
	var parts []KeyPart
	for _, v := range nodes {
		p, ok := r.keyPart(v)
		if !ok {
			continue
		}
		if slices.ContainsFunc(parts, func(o KeyPart) bool { return o.Name == p.Name }) {
			r.fail(v, "a unique name for each part: {name: N, entry: FIELD, exit: FIELD}", "duplicate key part %s", p.Name)
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

func (r *reader) keyPart(n *yaml.Node) (KeyPart, bool) {
	var p KeyPart
	if n.Kind != yaml.MappingNode {
		f, ok := r.field(n, "key")
		p.Entry, p.Exit, p.Cancel, p.Name = f, f, f, nameOf(f)
		return p, ok
	}
	keys := r.mapping(n, "key", partKeys)
	before := len(r.errs)
	for _, key := range []string{"entry", "exit"} {
		if _, ok := keys[key]; !ok {
			r.fail(n, "entry, exit and optionally cancel, each with a field", "key part has no %s", key)
		}
	}
	if len(r.errs) > before {
		return p, false
	}
	p.Entry, _ = r.field(keys["entry"].value, "entry")
	p.Exit, _ = r.field(keys["exit"].value, "exit")
	p.Cancel = p.Exit
	if e, ok := keys["cancel"]; ok {
		p.Cancel, _ = r.field(e.value, "cancel")
	}
	p.Name = nameOf(p.Entry)
	if e, ok := keys["name"]; ok {
		p.Name = r.labelName(e.value, e.value)
	}
	return p, len(r.errs) == before
}

// nameOf is the name of a field in JSON: its last member.
func nameOf(f Field) string {
	for i := len(f.Steps) - 1; i >= 0; i-- {
		if f.Steps[i].Member != "" {
			return f.Steps[i].Member
		}
	}
	switch f.Base {
	case BaseArgument:
		return f.Name
	case BaseNumber:
		return fmt.Sprintf("arg%d", f.Number)
	default:
		return string(f.Base)
	}
}

func (r *reader) compares(n *yaml.Node, what string) []Compare {
	nodes := r.list(n, what)
	if len(nodes) > maxConditions {
		r.fail(n, fmt.Sprintf("at most %d", maxConditions), "%s has %d conditions", what, len(nodes))
		return nil
	}
	var list []Compare
	for _, v := range nodes {
		s, ok := r.text(v, what)
		if !ok {
			continue
		}
		c, err := ParseCompare(s)
		if err != nil {
			r.fail(v, "FIELD OPERATOR NUMBER, operators ==, !=, <, <=, >, >=, &", "%s: invalid condition %q: %v", what, cut(s),
				err)
			continue
		}
		c.Pos = r.position(v)
		c.Field.Pos = c.Pos
		list = append(list, c)
	}
	return list
}

// labels reads the mapping of names to fields.
func (r *reader) labels(n *yaml.Node) []Label {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.fail(n, "a mapping of names to fields, such as bytes: args.len", "labels is %s", emptyOr(n))
		return nil
	}
	if len(n.Content)/2 > maxLabels {
		r.fail(n, fmt.Sprintf("at most %d", maxLabels), "labels has %d names", len(n.Content)/2)
		return nil
	}
	var list []Label
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := r.labelName(n.Content[i], n.Content[i])
		if name == "" {
			continue
		}
		if slices.ContainsFunc(list, func(l Label) bool { return l.Name == name }) {
			r.fail(n.Content[i], "each name once", "duplicate label %s", name)
			continue
		}
		if l, ok := r.label(n.Content[i+1], name); ok {
			list = append(list, l)
		}
	}
	return list
}

func (r *reader) labelName(n, where *yaml.Node) string {
	bad := func(c rune) bool { return c > 127 || !isNameByte(byte(c)) }
	if n.Kind != yaml.ScalarNode || n.Value == "" || len(n.Value) > maxLabelName || strings.IndexFunc(n.Value, bad) >= 0 {
		r.fail(where, fmt.Sprintf("a-z, A-Z, 0-9 and _, at most %d characters", maxLabelName), "invalid name %q",
			cut(n.Value))
		return ""
	}
	return n.Value
}

func (r *reader) label(n *yaml.Node, name string) (Label, bool) {
	l := Label{Name: name}
	node := n
	if n.Kind == yaml.MappingNode {
		keys := r.mapping(n, "label", labelKeys)
		e, ok := keys["field"]
		if !ok {
			r.fail(n, "field, and as with one of "+join(Shapes), "label %s has no field", name)
			return l, false
		}
		node = e.value
		if e, ok := keys["as"]; ok {
			if got := words(r, e.value, "as", Shapes); len(got) > 0 {
				l.As = got[0]
			}
		}
		if e, ok := keys["user"]; ok {
			l.User, _ = r.boolean(e.value, "user")
		}
	}
	text := *node
	if rest, exit := strings.CutPrefix(node.Value, "exit."); exit && node.Kind == yaml.ScalarNode {
		l.AtExit, text.Value = true, rest
	}
	var ok bool
	l.Field, ok = r.field(&text, "labels")
	return l, ok
}
