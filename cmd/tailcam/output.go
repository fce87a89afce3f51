package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/text"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	textOutput outputFormat = "text"
	jsonOutput outputFormat = "json"
)

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *outputFormat) Set(s string) error {
	switch v := outputFormat(s); v {
	case textOutput, jsonOutput:
		*f = v
		return nil
	}
	return fmt.Errorf("must be %s or %s", textOutput, jsonOutput)
}

// Type implements pflag.Value.
func (f *outputFormat) Type() string { return "text|json" }

func (c *cli) addOutput(cmd *cobra.Command) {
	c.output = textOutput
	cmd.Flags().VarP(&c.output, "output", "o", "output format; json prints one object per line")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{string(textOutput), string(jsonOutput)}, cobra.ShellCompDirectiveNoFileComp))
}

// printJSON prints one object on one line, safe on a terminal. Symbols such as
// vector<int> stay readable.
func (c *cli) printJSON(value any) error {
	err := text.NewEncoder(c.out).Encode(value)
	if c.out.Err() != nil {
		return fmt.Errorf("write output: %w", c.out.Err())
	}
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return nil
}

// printLines prints a list as one object a line.
func printLines[T any](c *cli, list []T) error {
	for i := range list {
		if err := c.printJSON(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
