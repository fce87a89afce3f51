// Package logs writes the daemon's log and its lines about outliers: as JSON, for
// people, or with fields to the systemd journal. Whoever logs never waits: a reader or
// journal that is slow or down costs lines, which are counted, and nothing else.
package logs

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tailcam/tailcam/internal/text"
)

// Formats of a log.
const (
	Auto    = "auto" // native fields if the stream leads to the journal, else JSON
	JSON    = "json"
	Console = "console"
)

// closeTime is how long Close waits for each stream.
const closeTime = time.Second

// Options say how and where to log.
type Options struct {
	Format string // Auto, JSON or Console
	Level  string // the lowest: debug, info, warn or error
	Color  bool   // Console
	// Out gets the outliers, Err all else. In the format Auto nothing is written to the
	// journal's streams: lines are sent to its socket, with their fields.
	Out, Err Stream
}

// Stream is where lines go.
type Stream struct {
	io.Writer
	Journal bool // it leads to the systemd journal
}

// Logs are the two logs of a daemon. Its methods may be called from any goroutine.
type Logs struct {
	Daemon   *zap.Logger
	Outliers *zap.Logger // one line per outlier

	level  zap.AtomicLevel
	queues []interface {
		lines() uint64
		close(limit time.Duration)
	}
}

// Quiet returns logs without the lines about outliers.
func Quiet(daemon *zap.Logger) *Logs {
	return &Logs{Daemon: daemon, Outliers: zap.NewNop(), level: zap.NewAtomicLevel()}
}

// Open opens the logs. Close them.
func Open(o *Options) (*Logs, error) {
	switch o.Format {
	case Auto, JSON, Console:
	default:
		return nil, fmt.Errorf("invalid log format %q: must be auto, json or console", o.Format)
	}
	l := &Logs{level: zap.NewAtomicLevel()}
	if err := l.SetLevel(o.Level); err != nil {
		return nil, err
	}
	l.Daemon = zap.New(l.core(o, o.Err, nil))
	l.Outliers = zap.New(l.core(o, o.Out, &outlierLines))
	return l, nil
}

// SetLevel changes the lowest level of both logs: debug, info, warn or error.
func (l *Logs) SetLevel(name string) error {
	level, err := zapcore.ParseLevel(name)
	if err != nil {
		return fmt.Errorf("invalid log level %q: must be debug, info, warn or error", name)
	}
	l.level.SetLevel(level)
	return nil
}

// Lost counts the lines that could not be written.
func (l *Logs) Lost() (n uint64) {
	for _, q := range l.queues {
		n += q.lines()
	}
	return n
}

// Close writes what is queued, but waits no longer than a second for each stream. Later
// lines are lost.
func (l *Logs) Close() {
	for _, q := range l.queues {
		q.close(closeTime)
	}
}

// core returns what writes to one stream. k is nil but for lines of a special kind.
func (l *Logs) core(o *Options, s Stream, k *kind) zapcore.Core {
	if o.Format == Auto && s.Journal {
		q := newQueue(send, lostMessage)
		l.queues = append(l.queues, q)
		return &journalCore{LevelEnabler: l.level, kind: k, put: q.put}
	}
	encoder, write := encoderOf(o, s.Writer)
	q := newQueue(write, func(n uint64) []byte {
		line, err := encoder.Clone().EncodeEntry(zapcore.Entry{Level: zap.WarnLevel, Time: time.Now(), Message: lostText(n)},
			[]zapcore.Field{zap.Uint64("lost", n)})
		if err != nil {
			return nil
		}
		return line.Bytes()
	})
	l.queues = append(l.queues, q)
	core := zapcore.NewCore(encoder, lineSyncer{q}, l.level)
	if k != nil && o.Format == Console {
		return &only{Core: core, keep: k.said}
	}
	return core
}

// encoderOf returns the encoder of a stream without fields, and what writes its lines.
// Times are UTC, as in every file of tailcam.
func encoderOf(o *Options, w io.Writer) (zapcore.Encoder, func([]byte) error) {
	config := zap.NewProductionEncoderConfig()
	config.TimeKey, config.MessageKey, config.CallerKey = "time", "message", zapcore.OmitKey
	config.EncodeDuration = zapcore.StringDurationEncoder
	clock := func(layout string) zapcore.TimeEncoder {
		return func(t time.Time, enc zapcore.PrimitiveArrayEncoder) { enc.AppendString(t.UTC().Format(layout)) }
	}
	if o.Format != Console {
		config.EncodeTime = clock(time.RFC3339Nano)
		return zapcore.NewJSONEncoder(config), func(line []byte) error {
			_, err := w.Write(text.EscapeJSON(line))
			return err
		}
	}
	config.EncodeTime = clock("15:04:05.000Z")
	config.ConsoleSeparator = "  "
	config.EncodeLevel = zapcore.CapitalLevelEncoder
	if o.Color {
		config.EncodeLevel = zapcore.CapitalColorLevelEncoder
	}
	return zapcore.NewConsoleEncoder(config), func(line []byte) error {
		_, err := w.Write(line)
		return err
	}
}

// only is a core that leaves out most fields: the message says enough.
type only struct {
	zapcore.Core
	keep string
}

// With implements zapcore.Core.
func (c *only) With([]zapcore.Field) zapcore.Core { return c }

// Check implements zapcore.Core.
func (c *only) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c *only) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for i := range fields {
		if fields[i].Key == c.keep {
			return c.Core.Write(e, fields[i:i+1])
		}
	}
	return c.Core.Write(e, nil)
}
