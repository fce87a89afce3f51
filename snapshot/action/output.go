package action

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// keepOutput is how much of an action's output goes into the daemon's log when
// there is no snapshot to keep it in.
const keepOutput = 4096

// output takes what an action prints, up to a limit.
type output struct {
	to      io.Writer
	close   func() error
	left    int64
	dropped int64
	err     error // the first one of writing
	newline bool  // what was written last
}

// openOutput makes action-N.log in the snapshot's directory. Another user may
// have put files there: it never follows or reuses one.
func openOutput(dir string, index int, limit int64) (*output, error) {
	path := filepath.Join(dir, fmt.Sprintf("action-%d.log", index))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	return &output{to: f, close: f.Close, left: limit, newline: true}, nil
}

// memoryOutput keeps the beginning for the daemon's log.
func memoryOutput(b *strings.Builder) *output {
	return &output{to: b, close: func() error { return nil }, left: keepOutput, newline: true}
}

// Write never fails: an action must not end because its output is too long or
// the disk is full.
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
