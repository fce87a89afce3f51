package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
)

// Values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// colorFlag is the value of --color. It takes effect when it is set, so that it holds for
// errors in the rest of the command line, too.
type colorFlag struct{ c *cli }

// String implements pflag.Value.
func (f colorFlag) String() string {
	if f.c == nil {
		return ""
	}
	return f.c.color
}

// Set implements pflag.Value.
func (f colorFlag) Set(s string) error {
	switch s {
	case colorAuto, colorAlways, colorNever:
		f.c.color = s
		f.c.applyColor(f.c.out)
		f.c.applyColor(f.c.err)
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", colorAuto, colorAlways, colorNever)
}

// Type implements pflag.Value.
func (colorFlag) Type() string { return "auto|always|never" }

// applyColor makes a console follow --color.
func (c *cli) applyColor(console *term.Console) {
	if c.color != colorAuto {
		console.SetColor(c.color == colorAlways)
	}
}

// addColor adds --color to all commands.
func (c *cli) addColor(root *cobra.Command) {
	c.color = colorAuto
	root.PersistentFlags().Var(colorFlag{c}, "color",
		"color the output; auto: on a terminal, unless NO_COLOR is set")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(
		[]string{colorAuto, colorAlways, colorNever}, cobra.ShellCompDirectiveNoFileComp))
}
