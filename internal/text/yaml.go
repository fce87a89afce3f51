package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML converts one JSON value to a YAML document that begins with "---": the same names and
// values in the same order. It is printable, as EscapeJSON is, and a reader of YAML 1.1 takes
// no string for something else, either (yes, 12:30).
func YAML(data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	root, err := yamlNode(dec)
	if err != nil {
		return nil, fmt.Errorf("convert to YAML: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("convert to YAML: data after the JSON value")
	}
	out := bytes.NewBufferString("---\n")
	enc := yaml.NewEncoder(out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return nil, fmt.Errorf("convert to YAML: %w", err)
	}
	return escape(out.Bytes(), appendYAMLEscape), nil
}

// yamlNode converts the next value.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode}
		if v == '[' {
			n.Kind = yaml.SequenceNode
		}
		for dec.More() { // keys are strings, too
			child, err := yamlNode(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := dec.Token()
		return n, err
	case string:
		return yamlString(v), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: yamlNumber(v.String())}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil // true, false
}

// yamlString quotes what is not printable, and what YAML 1.1 takes for something else; the
// encoder quotes what 1.2 does.
func yamlString(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		n.Style = yaml.DoubleQuotedStyle
	}
	if s == "" || strings.ContainsRune("0123456789+-.", rune(s[0])) || strings.ContainsFunc(s, unsafeRune) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// yamlNumber gives 1e-07 the fraction without which it is a string in YAML 1.1.
func yamlNumber(s string) string {
	if i := strings.IndexByte(s, 'e'); i > 0 && !strings.Contains(s, ".") {
		return s[:i] + ".0" + s[i:]
	}
	return s
}

// appendYAMLEscape escapes a rune in a string in double quotes.
func appendYAMLEscape(out []byte, r rune) []byte {
	if r <= 0xffff {
		return fmt.Appendf(out, `\u%04x`, r)
	}
	return fmt.Appendf(out, `\U%08x`, r)
}
