package timeline

import (
	"fmt"
	"strings"

	"github.com/tailcam/tailcam/explain"
)

// theme is the light and the dark value of a colour.
type theme struct{ light, dark string }

// causes are the colours of bars, in the order of the legend.
var causes = []struct {
	cause explain.Cause
	theme
}{
	{explain.Running, theme{"#2da44e", "#238636"}},
	{explain.RunningUser, theme{"#2da44e", "#238636"}},
	{explain.RunningKernel, theme{"#2da44e", "#238636"}},
	{explain.Preempted, theme{"#cf222e", "#da3633"}},
	{explain.Runnable, theme{"#bf8700", "#9e6a03"}},
	{explain.Misplaced, theme{"#bc4c00", "#bd561d"}},
	{explain.Throttled, theme{"#9a6700", "#9a6700"}},
	{explain.IRQ, theme{"#8250df", "#8250df"}},
	{explain.Softirq, theme{"#a45bd6", "#a45bd6"}},
	{explain.StolenTime, theme{"#82071e", "#b62324"}},
	{explain.BlockQueue, theme{"#4184e4", "#316dca"}},
	{explain.BlockDevice, theme{"#0969da", "#1f6feb"}},
	{explain.Locked, theme{"#1b7c83", "#1b7c83"}},
	{explain.Task, theme{"#2a8f97", "#2a8f97"}},
	{explain.Timer, theme{"#7d8590", "#656c76"}},
	{explain.ProtocolTimer, theme{"#54aeff", "#388bfd"}},
	{explain.Limited, theme{"#b08800", "#845306"}},
	{explain.Network, theme{"#218bff", "#218bff"}},
	{explain.Reclaim, theme{"#bf3989", "#bf3989"}},
	{explain.Compaction, theme{"#d04a9a", "#d04a9a"}},
	{explain.PageFault, theme{"#a0407f", "#a0407f"}},
	{explain.WorkQueue, theme{"#0e7490", "#0e7490"}},
	{explain.Journal, theme{"#0550ae", "#1158c7"}},
	{explain.Stopped, theme{"#6e7781", "#6e7781"}},
	{explain.Unexplained, theme{"#afb8c1", "#484f58"}},
}

// The other colours.
var (
	background = theme{"#ffffff", "#0d1117"}
	foreground = theme{"#1f2328", "#e6edf3"}
	dim        = theme{"#636c76", "#9198a1"}
	grid       = theme{"#d1d9e0", "#30363d"}
	soft       = theme{"#f6f8fa", "#151b23"}
	onBar      = theme{"#ffffff", "#ffffff"}
)

// variables declares the colours of both themes for what a selector selects; the viewer
// chooses.
func variables(selector string) string {
	declare := func(pick func(theme) string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s{--bg:%s;--fg:%s;--dim:%s;--grid:%s;--soft:%s;--on:%s}\n", selector,
			pick(background), pick(foreground), pick(dim), pick(grid), pick(soft), pick(onBar))
		for i := range causes {
			fmt.Fprintf(&b, ".%s{--c:%s}", causes[i].cause, pick(causes[i].theme))
		}
		fmt.Fprintf(&b, ".%s{--c:%s}", more, pick(dim))
		return b.String()
	}
	return declare(func(t theme) string { return t.light }) + "\n@media (prefers-color-scheme:dark){\n" +
		declare(func(t theme) string { return t.dark }) + "}\n"
}

// classOf returns the class of a cause, that of unexplained time for one that is not known.
func classOf(c explain.Cause) string {
	for i := range causes {
		if causes[i].cause == c {
			return string(c)
		}
	}
	return string(explain.Unexplained)
}

// causeColor is the light colour of a class.
func causeColor(class string) string {
	for i := range causes {
		if string(causes[i].cause) == class {
			return causes[i].light
		}
	}
	return dim.light
}

// fillOf is the colour of a class as an attribute. Programs that do not know the variables
// of CSS, as most do that are no browsers, draw this.
func fillOf(class string) string { return fillWith(causeColor(class)) }

// more is the class of several parts in one bar.
const more = "more"

func fillWith(color string) string { return ` fill="` + color + `"` }

// attributes are what the classes of texts mean, for the same programs.
func attributes(class string) string {
	var b strings.Builder
	for name := range strings.FieldsSeq(class) {
		switch name {
		case "h":
			b.WriteString(` font-size="16" font-weight="600"`)
		case "b":
			b.WriteString(` font-weight="600"`)
		case "s":
			b.WriteString(fillWith(dim.light) + ` font-size="12"`)
		case "n":
			b.WriteString(` text-anchor="end"`)
		case "in":
			b.WriteString(fillWith(onBar.light) + ` font-size="12" text-anchor="middle"`)
		}
	}
	return b.String()
}
