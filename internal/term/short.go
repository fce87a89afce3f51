package term

import (
	"fmt"

	"github.com/tailcam/tailcam/tracker/events"
)

// PrintShort writes an outlier on one line: what happened, and the verdict if there is
// one.
func PrintShort(c *Console, o *events.Outlier) {
	said := what(o) + ending(o)
	if o.Explained != nil {
		said += c.Paint(Dim, ": "+Clean(o.Explained.Verdict))
	}
	c.Printf("%s  %s  %s  %s  %s\n",
		c.Paint(Dim, Time(o.Time)),
		padded(c, Cyan, Clean(o.Rule), 12),
		c.Paint(DelayStyle(o.DelayNS, o.ThresholdNS), fmt.Sprintf("%7s", Duration(o.DelayNS))),
		padded(c, Bold, subject(o), 22), said)
}

// Sentence says in words what happened, and why if that is known. It is safe on a
// terminal and has no line break.
func Sentence(o *events.Outlier) string {
	s := fmt.Sprintf("%s: %s: %s %s%s", Clean(o.Rule), Duration(o.DelayNS), subject(o), what(o), ending(o))
	if o.Explained != nil && o.Explained.Verdict != "" {
		s += ": " + Clean(o.Explained.Verdict)
	}
	return s
}
