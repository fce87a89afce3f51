package bugtool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/redact"
	clean "github.com/tailcam/tailcam/internal/text"
)

// maxLog is how many bytes at the end of a log are read.
const maxLog = 512 << 10

// collectLog reads what the daemon prints, if it prints into files.
func collectLog(_ context.Context, s *source) ([]file, error) {
	if s.pid == 0 {
		return nil, errNoDaemon
	}
	text, err := logTail(fmt.Sprintf("/proc/%d/fd/2", s.pid))
	if err != nil {
		return nil, err
	}
	return []file{{name: "log.txt", data: func(r *redact.Redactor) ([]byte, error) { return logLines(text, r), nil }}}, nil
}

// logTail reads the end of a regular file.
func logTail(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errNothing{"the log is not a file"}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errNothing{"the log is not a file"})
	}
	from := max(0, info.Size()-maxLog)
	text, err := io.ReadAll(io.NewSectionReader(f, from, maxLog))
	if from > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n")) // it begins within a line
	}
	return text, err
}

// crashes begin what the Go runtime prints at the end of a process.
var crashes = []string{"panic: ", "fatal error: ", "runtime: ", "SIG", "goroutine "}

// others are fields of the log that name processes, or have what actions print.
var others = []string{"cmdline", "comm", "output"}

// logLines keeps the daemon's own lines, in JSON, and those of a crash. Lines about
// outliers, which name processes, are left out, as is what cannot be told from them.
func logLines(text []byte, r *redact.Redactor) []byte {
	var out bytes.Buffer
	left, crash := 0, false
	for line := range bytes.Lines(text) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil {
			crash = false
			if fields["delay_ns"] != nil {
				left++
				continue
			}
			for _, key := range others {
				if fields[key] != nil {
					fields[key] = "<left out>"
				}
			}
			if data, err := r.JSON(fields); err == nil {
				var compact bytes.Buffer
				if json.Compact(&compact, data) == nil {
					out.Write(append(compact.Bytes(), '\n'))
				}
			}
			continue
		}
		s := string(line)
		for _, start := range crashes {
			crash = crash || strings.HasPrefix(s, start)
		}
		if !crash {
			left++
			continue
		}
		out.WriteString(clean.Clean(strings.TrimRight(r.Plain(s), "\n")) + "\n")
	}
	fmt.Fprintf(&out, "(%d lines about outliers, or of unknown form, left out)\n", left)
	return out.Bytes()
}
