package bugtool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/logs"
	"github.com/tailcam/tailcam/internal/redact"
	clean "github.com/tailcam/tailcam/internal/text"
)

// journalLines is how many of the unit's last lines are asked for.
const journalLines = "2000"

// journalctls is where it may be: PATH may be anybody's.
var journalctls = []string{"/usr/bin/journalctl", "/bin/journalctl"}

// collectJournal asks journalctl for the unit's lines.
func collectJournal(ctx context.Context, _ *source) ([]file, error) {
	path := ""
	for _, p := range journalctls {
		if _, err := os.Stat(p); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, errNothing{"there is no journalctl"}
	}
	var out, problems limited
	cmd := exec.CommandContext(ctx, path, "--unit", "tailcam.service", // one of two fixed paths
		"--lines", journalLines, "--output", "json", "--output-fields", "MESSAGE,MESSAGE_ID,PRIORITY", "--no-pager", "--quiet")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &problems, time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("journalctl: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	if len(bytes.TrimSpace(out.Bytes())) == 0 {
		return nil, errNothing{"the journal has no lines of tailcam.service, or this user may not read them"}
	}
	return []file{{name: "journal.txt", data: func(r *redact.Redactor) ([]byte, error) {
		return journalText(out.Bytes(), r), nil
	}}}, nil
}

// maxJournal is how many bytes of journalctl's output are taken.
const maxJournal = 8 << 20

// limited takes the first bytes of what is written, and drops the rest.
type limited struct{ bytes.Buffer }

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if room := maxJournal - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// journalText is a line for each entry but those about outliers, which name processes.
func journalText(entries []byte, r *redact.Redactor) []byte {
	var out bytes.Buffer
	left := 0
	for line := range bytes.Lines(entries) {
		var e struct {
			Time     string          `json:"__REALTIME_TIMESTAMP"` // microseconds
			Message  json.RawMessage `json:"MESSAGE"`
			ID       any             `json:"MESSAGE_ID"`
			Priority any             `json:"PRIORITY"`
		}
		var message string
		if json.Unmarshal(line, &e) != nil || json.Unmarshal(e.Message, &message) != nil || e.ID == logs.OutlierMessageID {
			left++ // a message that is no text is no string
			continue
		}
		us, _ := strconv.ParseInt(e.Time, 10, 64) // 0: no time
		fmt.Fprintf(&out, "%s <%v> %s\n", time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000Z"), e.Priority,
			clean.Clean(r.Text(message)))
	}
	fmt.Fprintf(&out, "(%d entries about outliers, or of unknown form, left out)\n", left)
	return out.Bytes()[max(0, out.Len()-maxFile):]
}
