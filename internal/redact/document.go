package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/tailcam/tailcam/internal/text"
)

// JSON encodes a value, indented, without the secrets in its strings, and without the
// values of keys that may hold some.
func (r *Redactor) JSON(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	plain, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var out bytes.Buffer
	enc := text.NewEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r.value(plain)); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out.Bytes(), nil
}

func decode(data []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err = dec.Decode(&v); err == nil && dec.More() {
		err = errors.New("more than one value")
	}
	return v, err
}

// value redacts a decoded JSON value, and JSON in its strings.
func (r *Redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[") {
			if inner, err := decode([]byte(v)); err == nil {
				if data, err := text.Marshal(r.value(inner)); err == nil {
					return r.Known(string(data))
				}
			}
		}
		return r.Text(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
		return v
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, value := range v {
			if Sensitive(key) && value != nil {
				clean[r.Plain(key)] = Marker
				r.removed++
				continue
			}
			value = r.value(value)
			if list, ok := value.([]any); ok && key == "run" {
				for i := range list[min(1, len(list)):] {
					list[i+1] = argument
				}
			}
			clean[r.Plain(key)] = value
		}
		return clean
	}
	return v
}

// argument stands for an argument of a program that a rule runs.
const argument = "<argument>"

// YAML encodes a document without its comments, without values of keys that may hold
// secrets, and without the arguments of programs that are run. It changes the document.
func (r *Redactor) YAML(n *yaml.Node) ([]byte, error) {
	r.node(n)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out.Bytes(), nil
}

func (r *Redactor) node(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch n.Kind {
	case yaml.ScalarNode:
		r.scalar(n, r.Text(n.Value))
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			sensitive := Sensitive(key.Value)
			r.node(key)
			switch {
			case sensitive:
				r.removed++
				*value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: Marker}
			case key.Value == "run":
				r.command(value)
			default:
				r.node(value)
			}
		}
	default:
		for _, c := range n.Content {
			r.node(c)
		}
	}
}

func (r *Redactor) scalar(n *yaml.Node, value string) {
	if value != n.Value {
		*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: yaml.DoubleQuotedStyle}
	}
}

// command keeps the path of a program, not its arguments.
func (r *Redactor) command(n *yaml.Node) {
	r.node(n)
	switch n.Kind {
	case yaml.ScalarNode:
		path, _, more := strings.Cut(n.Value, " ")
		if more {
			r.scalar(n, path+" "+argument)
		}
	case yaml.SequenceNode:
		for _, c := range n.Content[min(1, len(n.Content)):] {
			*c = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: argument}
		}
	}
}

// LearnText makes secrets of the longer words of lines that name a secret. It is for
// files that are no documents.
func (r *Redactor) LearnText(s string) {
	for line := range strings.Lines(s) {
		if !Sensitive(line) {
			continue
		}
		for word := range strings.FieldsFuncSeq(line, func(c rune) bool { return strings.ContainsRune(" \t\r\n\"'[]{},=:", c) }) {
			if len(word) >= leastWord && !Sensitive(word) {
				r.Add(word)
			}
		}
	}
}

// leastWord is the length of words that LearnText takes for secrets.
const leastWord = 6

// Learn makes secrets of all values below keys that may hold some.
func (r *Redactor) Learn(n *yaml.Node) { r.learn(n, false) }

func (r *Redactor) learn(n *yaml.Node, secret bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if secret {
				r.learn(n.Content[i], secret)
			}
			if n.Content[i].Value == "run" {
				r.learnArguments(n.Content[i+1])
			}
			r.learn(n.Content[i+1], secret || Sensitive(n.Content[i].Value))
		}
	case n.Kind == yaml.ScalarNode && secret:
		r.AddSetting(n.Value)
	default:
		for _, c := range n.Content {
			r.learn(c, secret)
		}
	}
}

// learnArguments makes secrets of arguments that are no words: logs and errors repeat them.
func (r *Redactor) learnArguments(n *yaml.Node) {
	for _, c := range n.Content[min(1, len(n.Content)):] {
		value := c.Value
		if name, after, ok := strings.Cut(value, "="); ok && strings.HasPrefix(name, "-") {
			value = after
		}
		letters := strings.ContainsFunc(value, unicode.IsLetter)
		if len(value) >= leastArgument && letters && strings.ContainsFunc(value, unicode.IsDigit) {
			r.Add(value)
		}
	}
}

// leastArgument is the length of arguments that are taken for secrets.
const leastArgument = 8
