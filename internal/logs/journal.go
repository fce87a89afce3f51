package logs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap/zapcore"

	"github.com/tailcam/tailcam/internal/text"
)

const (
	// fieldPrefix begins the journal's names of fields: delay_ns is TAILCAM_DELAY_NS.
	fieldPrefix = "TAILCAM_"
	// maxValue bounds a field, so that a message fits a datagram: journald takes larger
	// ones as files only.
	maxValue = 8 << 10
	// stackKey is the field that may have several lines.
	stackKey = "panic_stack"
)

// kind is a kind of lines whose message says what there is to say.
type kind struct {
	id   string // MESSAGE_ID: journalctl MESSAGE_ID=…
	said string // the only field that the message repeats
}

// outlierLines are those about outliers. The id never changes.
var outlierLines = kind{id: OutlierMessageID, said: "snapshot"}

// OutlierMessageID is the journal's MESSAGE_ID of lines about outliers.
const OutlierMessageID = "7a5c1d0e9b3f4c68a2e4d1f06b8c9355"

// message is one for the journal.
type message struct {
	text     string
	priority journal.Priority
	fields   map[string]string
}

// send sends a message to the journal. It blocks while the journal's queue is full.
func send(m *message) error { return journal.Send(m.text, m.priority, m.fields) }

func lostMessage(n uint64) *message {
	return &message{text: lostText(n), priority: journal.PriWarning, fields: map[string]string{
		"SYSLOG_IDENTIFIER": "tailcam", fieldPrefix + "LOST": strconv.FormatUint(n, 10),
	}}
}

// journalCore is a zapcore.Core that sends each line with its fields to the journal.
type journalCore struct {
	zapcore.LevelEnabler
	with []zapcore.Field
	kind *kind // nil: the message repeats all fields
	put  func(*message)
}

// With implements zapcore.Core.
func (c *journalCore) With(fields []zapcore.Field) zapcore.Core {
	again := *c
	again.with = slices.Concat(c.with, fields)
	return &again
}

// Check implements zapcore.Core.
func (c *journalCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Sync implements zapcore.Core.
func (c *journalCore) Sync() error { return nil }

// Write implements zapcore.Core.
func (c *journalCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	m := &message{priority: priority(e.Level), fields: map[string]string{"SYSLOG_IDENTIFIER": "tailcam"}}
	if e.LoggerName != "" {
		m.fields[fieldPrefix+"LOGGER"] = text.Clean(e.LoggerName)
	}
	if c.kind != nil {
		m.fields["MESSAGE_ID"] = c.kind.id
	}
	var said strings.Builder
	said.WriteString(limited(text.Clean(e.Message)))
	for _, f := range slices.Concat(c.with, fields) {
		encoded := zapcore.NewMapObjectEncoder()
		f.AddTo(encoded)
		for key, value := range encoded.Fields {
			s := limited(valueText(key, value))
			m.fields[fieldName(key)] = s
			if key != stackKey && (c.kind == nil || c.kind.said == key) {
				said.WriteString(" " + key + "=" + quoted(s))
			}
		}
	}
	m.text = limited(said.String())
	c.put(m)
	return nil
}

func priority(l zapcore.Level) journal.Priority {
	switch l {
	case zapcore.DebugLevel:
		return journal.PriDebug
	case zapcore.InfoLevel:
		return journal.PriInfo
	case zapcore.WarnLevel:
		return journal.PriWarning
	case zapcore.ErrorLevel:
		return journal.PriErr
	default:
		return journal.PriCrit
	}
}

// fieldName makes the name of a field one that the journal takes: upper-case letters,
// digits and underscores, at most 64.
func fieldName(key string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return fieldPrefix + name[:min(len(name), 64-len(fieldPrefix))]
}

// valueText is a value in words, on one line but for stacks.
func valueText(key string, value any) string {
	switch v := value.(type) {
	case string:
		return cleaned(key, v)
	case []byte:
		return cleaned(key, string(v))
	case time.Duration:
		return v.String()
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprint(v)
	}
	encoded, err := text.Marshal(value)
	if err != nil {
		return cleaned(key, fmt.Sprint(value))
	}
	return string(encoded)
}

func cleaned(key, s string) string {
	if key != stackKey {
		return text.Clean(s)
	}
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = text.Clean(strings.ReplaceAll(lines[i], "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// limited cuts off what is too long.
func limited(s string) string {
	if len(s) <= maxValue {
		return s
	}
	n := maxValue
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " =\"") {
		return strconv.Quote(s)
	}
	return s
}
