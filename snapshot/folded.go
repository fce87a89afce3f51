package snapshot

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/events"
)

// writeFolded writes one line per outlier for flame graphs: the task's name,
// then its frames from the outermost to the innermost, those of inlined
// functions with _[i], then the delay in
// nanoseconds as the weight. The waker's stack is not in it: adding it would
// count the same delay twice.
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

// foldedFrame keeps a name from being read as two frames or two lines, and
// makes it safe to print.
func foldedFrame(s string) string {
	if s == "" {
		return "[unknown]"
	}
	return text.Clean(strings.ReplaceAll(s, ";", ":"))
}
