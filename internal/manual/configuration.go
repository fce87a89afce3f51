package manual

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configuration is the page of the configuration file: its keys with the comments and defaults
// that they have in the annotated one.
func configuration(o *Options) (string, error) {
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return "", fmt.Errorf("read the annotated configuration: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return "", fmt.Errorf("read %s: %w", o.Config, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return "", errors.New(o.Config + " is not a mapping")
	}
	p := newPage("tailcam.yaml", "5", o)
	p.section("NAME")
	p.line(`tailcam.yaml \- configuration of the tailcam daemon`)
	p.section("SYNOPSIS")
	p.line(italic("/etc/tailcam/tailcam.yaml"))
	p.section("DESCRIPTION")
	intro, first, _ := strings.Cut(string(text), "\n\n")
	if !strings.HasPrefix(first, "#") {
		return "", fmt.Errorf("%s: the first comment does not describe the file", o.Config)
	}
	p.text(uncomment(intro))
	p.section("KEYS")
	keys(p, "", doc.Content[0])
	p.section("EXAMPLES")
	p.literal("  snapshots:\n    keep:\n      count: 500\n  recorder:\n    cover: 10s\n    max_memory: 256MiB")
	p.section("SEE ALSO")
	p.line(bold("tailcam") + "(1),\n" + bold("tailcam-run") + "(1),\n" + bold("tailcam-rules") + "(5)")
	return p.String(), nil
}

// keys lists the keys of a mapping.
func keys(p *page, prefix string, n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		comment := key.HeadComment
		head := bold(prefix + key.Value)
		if value.Kind != yaml.MappingNode {
			head += " (default " + escape(inline(value)) + ")"
		}
		p.line(".TP\n" + head)
		if comment == "" {
			p.line(`\&`)
		}
		table := false // lines that are indented stand as they are
		for line := range strings.SplitSeq(prose(uncomment(comment)), "\n") {
			if indented := strings.HasPrefix(line, "  "); indented != table {
				table = indented
				p.line(map[bool]string{true: ".nf", false: ".fi"}[table])
			}
			p.line(line)
		}
		if table {
			p.line(".fi")
		}
		if value.Kind == yaml.MappingNode {
			keys(p, prefix+key.Value+".", value)
		}
	}
}

// inline is a value as it would stand in the file.
func inline(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		if n.Value == "" {
			return `""`
		}
		return n.Value
	}
	var list []string
	for _, c := range n.Content {
		list = append(list, inline(c))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// uncomment removes the marks of comments.
func uncomment(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	return b.String()
}
