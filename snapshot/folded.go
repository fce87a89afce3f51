package snapshot

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/events"
)

// writeFolded writes one line per outlier for flame graphs: the task's name, its frames
// from the outermost to the innermost (inlined ones marked _[i]), and the delay in
// nanoseconds. The waker's stack is left out, as the delay would count twice.
func writeFolded(w io.Writer, outliers []events.Outlier) error {
	for i := range outliers {
		o := &outliers[i]
		line := []string{foldedFrame(o.Task.Comm)}
		for _, frame := range slices.Backward(events.StackNames(o.Stacks.User, o.Stacks.UserSources())) {
			line = append(line, foldedFrame(frame))
		}
		for _, frame := range slices.Backward(events.StackNames(o.Stacks.Kernel, o.Stacks.KernelSources())) {
			line = append(line, foldedFrame(frame))
		}
		if _, err := fmt.Fprintf(w, "%s %d\n", strings.Join(line, ";"), o.DelayNS); err != nil {
			return err
		}
	}
	return nil
}

// foldedFrame makes a name safe to print and removes separators from it.
func foldedFrame(s string) string {
	if s == "" {
		return "[unknown]"
	}
	return text.Clean(strings.ReplaceAll(s, ";", ":"))
}
