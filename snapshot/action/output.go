package action

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// keepOutput is how many bytes of an action's output are logged if there is no snapshot
// to store them in.
const keepOutput = 4096

// output stores an action's output, up to a limit.
type output struct {
	to      io.Writer
	close   func() error
	left    int64
	dropped int64
	err     error // first write error
	newline bool  // the last byte was a newline
}

// opened is an output file, or the error.
type opened struct {
	out *output
	err error
}

// openOutputs creates action-0.log to action-N.log before any action of the job could.
func (r *Runner) openOutputs(j *Job) []opened {
	all := make([]opened, len(j.Items))
	for i := range all {
		if j.Dir != "" {
			all[i].out, all[i].err = openOutput(j.Dir, i, r.boundsOf(&j.Items[i].Action).output)
		}
	}
	return all
}

// openOutput creates action-N.log in the snapshot's directory, replacing whatever is
// there. It never writes to a file that another user created.
func openOutput(dir string, index int, limit int64) (*output, error) {
	name := fmt.Sprintf("action-%d.log", index)
	f, err := os.CreateTemp(dir, fmt.Sprintf("action-%d.*.log", index)) // O_EXCL, mode 0600
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	if err := f.Chmod(0o640); err != nil {
		return nil, errors.Join(fmt.Errorf("keep output: %w", err), f.Close())
	}
	// A directory of that name stays; the output keeps its temporary name.
	_ = os.Rename(f.Name(), filepath.Join(dir, name))
	return &output{to: f, close: f.Close, left: limit, newline: true}, nil
}

// memoryOutput keeps the beginning of the output for the log.
func memoryOutput(b *strings.Builder) *output {
	return &output{to: b, close: func() error { return nil }, left: keepOutput, newline: true}
}

// Write never fails: long output or a full disk must not end an action.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	keep := p[:min(int64(n), o.left)]
	o.left -= int64(len(keep))
	o.dropped += int64(n - len(keep))
	o.put(keep)
	return n, nil
}

func (o *output) put(p []byte) {
	if len(p) == 0 || o.err != nil {
		return
	}
	o.newline = p[len(p)-1] == '\n'
	if _, err := o.to.Write(p); err != nil {
		o.err = fmt.Errorf("keep output: %w", err)
	}
}

func (o *output) header(item *Item, index int, who string, start time.Time) {
	o.put(fmt.Appendf(nil, "# tailcam: action %d of rule %s, as user %s\n# run: %q\n# started: %s\n",
		index, item.Outlier.Rule, who, item.Action.Run, start.UTC().Format(time.RFC3339Nano)))
}

func (o *output) trailer(r *Result) {
	if !o.newline {
		o.put([]byte("\n"))
	}
	if o.dropped > 0 {
		o.put(fmt.Appendf(nil, "# output truncated: %d bytes more were dropped\n", o.dropped))
	}
	o.put(fmt.Appendf(nil, "# %s after %s\n", r.String(), r.Took.Round(time.Millisecond)))
}
