package snapshot

import (
	"fmt"
	"io"
	"strings"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/text"
)

// maxDetailed is how many outliers explain.txt explains at length; of more it has the verdicts.
const maxDetailed = 16

// writeText writes explain.txt: the verdicts, the explanations, and the outliers' own
// data.
func writeText(w io.Writer, m *Meta, e *Explanation) error {
	var b strings.Builder
	notes := m.Notes
	if m.ShortHistory && len(notes) > 0 { // whatever follows may be wrong
		fmt.Fprintf(&b, "note: %s\n\n", text.Clean(notes[0]))
		notes = notes[1:]
	}
	fmt.Fprintf(&b, "%s on %s (%s, %s), %s\n", m.ID, text.Clean(m.Host.Name), text.Clean(m.Host.Kernel), m.Host.Arch, text.Clean(m.Reason))
	for i := range e.Outliers {
		said := e.Outliers[i].Text
		if verdict, _, _ := strings.Cut(said, "\n"); i >= maxDetailed {
			said = verdict + "\n"
		}
		fmt.Fprintf(&b, "\n%s", said)
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "\nnote: %s\n", text.Clean(n))
	}
	for i := range m.Outliers {
		o := m.Outliers[i]
		o.Explained = nil // it stands above
		b.WriteByte('\n')
		if err := term.WriteOutlier(&b, &o); err != nil {
			return err
		}
	}
	if len(m.Outliers) == 0 {
		b.WriteString("\nno outlier: taken by hand\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
