package main

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/text"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	textOutput outputFormat = "text"
	jsonOutput outputFormat = "json"
	yamlOutput outputFormat = "yaml"
)

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *outputFormat) Set(s string) error {
	switch v := outputFormat(s); v {
	case textOutput, jsonOutput, yamlOutput:
		*f = v
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", textOutput, jsonOutput, yamlOutput)
}

// Type implements pflag.Value.
func (f *outputFormat) Type() string { return "text|json|yaml" }

// addOutput adds the flag of every command that prints data.
func (c *cli) addOutput(cmd *cobra.Command) {
	c.output = textOutput
	cmd.Flags().VarP(&c.output, "output", "o",
		"output format; json prints one object per line, yaml one document per object")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{string(textOutput), string(jsonOutput), string(yamlOutput)}, cobra.ShellCompDirectiveNoFileComp))
}

// wantsData reports whether -o asks for data, which printData prints.
func (c *cli) wantsData() bool { return c.output != textOutput }

// printData prints an object as -o asks for.
func (c *cli) printData(value any) error { return c.printAs(c.output, value) }

// printAs prints an object of a type that schemaNames has, as one line of JSON or one
// document of YAML, safe on a terminal. Symbols such as vector<int> stay readable.
func (c *cli) printAs(format outputFormat, value any) error {
	data, err := encode(format, value)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	if _, err := c.out.Write(data); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// encode is the only place that encodes what -o prints. Both formats have the same
// fields in the same order, the name of their schema first.
func encode(format outputFormat, value any) ([]byte, error) {
	t := reflect.TypeOf(value)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, ok := schemaNames[t]
	if !ok {
		return nil, fmt.Errorf("no schema for %T", value)
	}
	data, err := text.Marshal(value)
	if err != nil {
		return nil, err
	}
	fields, ok := bytes.CutPrefix(data, []byte{'{'})
	if !ok {
		return nil, fmt.Errorf("%T is not an object", value)
	}
	out := fmt.Appendf(nil, `{"schema":%q`, schemaID(name))
	if len(fields) > 1 {
		out = append(out, ',')
	}
	out = append(out, fields...)
	if format == yamlOutput {
		return text.YAML(out)
	}
	return append(out, '\n'), nil
}

// printList prints a list, one object after the other.
func printList[T any](c *cli, list []T) error {
	for i := range list {
		if err := c.printData(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
