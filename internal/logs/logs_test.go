package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const hostile = "a\nTAILCAM_RULE=x\x1b[2J\u202e\xff"

// open opens logs; done closes them and returns what was written.
func open(t *testing.T, format, level string) (l *Logs, done func() (out, err string)) {
	t.Helper()
	var out, errOut bytes.Buffer
	l, err := Open(&Options{Format: format, Level: level, Out: Stream{Writer: &out}, Err: Stream{Writer: &errOut}})
	assert.NilError(t, err)
	return l, func() (string, string) {
		l.Close()
		return out.String(), errOut.String()
	}
}

func TestJSON(t *testing.T) {
	l, done := open(t, Auto, "info")
	l.Daemon.Debug("hidden")
	l.Daemon.Info("hello", zap.Duration("took", 5*time.Millisecond))
	l.Outliers.Info("slow", zap.String("comm", hostile))
	out, errOut := done()
	var line struct {
		Time                       time.Time
		Level, Message, Took, Comm string
	}
	assert.NilError(t, json.Unmarshal([]byte(errOut), &line))
	assert.Check(t, line.Level == "info" && line.Message == "hello" && line.Took == "5ms" &&
		line.Time.Location() == time.UTC, "%s", errOut)
	assert.NilError(t, json.Unmarshal([]byte(out), &line))
	assert.Check(t, line.Comm == strings.ToValidUTF8(hostile, "\ufffd") && strings.Count(out, "\n") == 1 &&
		!strings.ContainsAny(out, "\x1b\u202e"), "%q", out)
}

func TestConsole(t *testing.T) {
	l, done := open(t, Console, "warn")
	l.Daemon.Warn("careful", zap.String("comm", "\x1b[31m"))
	l.Outliers.Warn("slow", zap.Int("pid", 7), zap.String("snapshot", "one"), zap.Int("cpu", 1))
	out, errOut := done()
	assert.Check(t, strings.HasSuffix(errOut, "WARN  careful  {\"comm\": \"\\u001b[31m\"}\n"), "%q", errOut)
	assert.Check(t, strings.HasSuffix(out, "WARN  slow  {\"snapshot\": \"one\"}\n"), "%q", out)
}

func TestOpenErrors(t *testing.T) {
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}} {
		_, err := Open(&Options{Format: bad[0], Level: bad[1]})
		assert.Check(t, is.ErrorContains(err, "must be"), "%q", bad)
	}
}

// stuck is a reader that does not read until it is let go, and then takes all.
type stuck struct {
	held chan struct{}
	bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.held
	return s.Buffer.Write(p)
}

// Whoever logs never waits; what did not fit is counted, and told when lines are read
// again.
func TestReaderIsStuck(t *testing.T) {
	s := &stuck{held: make(chan struct{})}
	l, err := Open(&Options{Format: JSON, Level: "info", Out: Stream{Writer: io.Discard}, Err: Stream{Writer: s}})
	assert.NilError(t, err)
	const lines = 3 * maxQueued
	for i := range lines {
		l.Daemon.Info("line", zap.Int("n", i))
	}
	lost := l.Lost()
	assert.Check(t, lost >= lines-maxQueued-1 && lost < lines, "%d lost of %d", lost, lines)
	l.Outliers.Info("the other stream") // is not held up
	close(s.held)
	for _, q := range l.queues {
		q.close(time.Minute)
	}
	text := s.String()
	assert.Check(t, is.Equal(strings.Count(text, `"message":"line"`), lines-int(lost)))
	assert.Check(t, is.Equal(strings.Count(text, fmt.Sprintf(`"message":%q,"lost":%d}`, lostText(lost), lost)), 1))
}

func TestCloseWhileStuck(t *testing.T) {
	s := &stuck{held: make(chan struct{})}
	defer close(s.held)
	l, err := Open(&Options{Format: JSON, Level: "info", Out: Stream{Writer: io.Discard}, Err: Stream{Writer: s}})
	assert.NilError(t, err)
	l.Daemon.Info("line")
	l.Close() // returns
}

// A reader that has gone costs lines only.
func TestReaderIsGone(t *testing.T) {
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer w.Close()
	assert.NilError(t, r.Close())
	l, err := Open(&Options{Format: JSON, Level: "info", Out: Stream{Writer: io.Discard}, Err: Stream{Writer: w}})
	assert.NilError(t, err)
	l.Daemon.Info("line")
	l.Close()
	assert.Check(t, is.Equal(l.Lost(), uint64(1)))
}

// journalLog is a log whose messages are kept.
func journalLog(k *kind) (*zap.Logger, *[]*message) {
	var sent []*message
	return zap.New(&journalCore{LevelEnabler: zap.InfoLevel, kind: k, put: func(m *message) { sent = append(sent, m) }}), &sent
}

func TestJournalFields(t *testing.T) {
	log, sent := journalLog(nil)
	log.Debug("hidden")
	log.Named("helper").With(zap.String("who", "me too")).Warn("careful",
		zap.Error(errors.New("no\nspace")), zap.Duration("for", time.Second), zap.Strings("list", []string{"a", "b"}),
		zap.ByteString("panic_stack", []byte("one\n\ttwo\x1b")), zap.Int64("p99.9", 7), zap.Time("at", time.Unix(0, 1)))
	assert.Assert(t, is.Len(*sent, 1))
	m := (*sent)[0]
	assert.Check(t, is.Equal(m.text, `careful who="me too" error=no\x0aspace for=1s list="[\"a\",\"b\"]" p99.9=7 at=1970-01-01T00:00:00.000000001Z`))
	assert.Check(t, is.Equal(m.priority, journal.PriWarning))
	assert.Check(t, is.DeepEqual(m.fields, map[string]string{
		"SYSLOG_IDENTIFIER": "tailcam", "TAILCAM_LOGGER": "helper", "TAILCAM_WHO": "me too", "TAILCAM_ERROR": `no\x0aspace`,
		"TAILCAM_FOR": "1s", "TAILCAM_LIST": `["a","b"]`, "TAILCAM_PANIC_STACK": "one\n  two\\x1b", "TAILCAM_P99_9": "7",
		"TAILCAM_AT": "1970-01-01T00:00:00.000000001Z",
	}))
}

// Nothing that a process calls itself adds a field, a line, or what a terminal obeys.
func TestJournalHostile(t *testing.T) {
	log, sent := journalLog(&outlierLines)
	log.Info("slow: "+hostile, zap.String("comm", hostile), zap.String("snapshot", "one"),
		zap.String("cmdline", strings.Repeat("ä", maxValue)), zap.String(strings.Repeat("key\n=", 40), "v"))
	m := (*sent)[0]
	const cleanName = `a\x0aTAILCAM_RULE=x\x1b[2J\u202e\xff`
	assert.Check(t, is.Equal(m.text, "slow: "+cleanName+" snapshot=one"))
	assert.Check(t, is.Equal(m.fields["TAILCAM_COMM"], cleanName))
	assert.Check(t, is.Equal(m.fields["MESSAGE_ID"], OutlierMessageID))
	for name, value := range m.fields {
		assert.Check(t, len(name) <= 64 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "", "%q", name)
		assert.Check(t, len(value) <= maxValue+len("…") && !strings.ContainsAny(value, "\n\x1b\u202e"), "%s: %q", name, value)
	}
}
