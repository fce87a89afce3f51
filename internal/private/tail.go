package private

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLines is how much of the daemon's log is kept, to be shown after a failure.
const logLines = 20

// Tail keeps the last lines that were written to it, from any goroutine.
type Tail struct {
	mu   sync.Mutex
	keep int
	last []string
}

// NewTail returns an empty one.
func NewTail() *Tail { return &Tail{keep: logLines} }

// Write implements io.Writer for whole lines.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range strings.Lines(string(bytes.TrimRight(p, "\n"))) {
		t.last = append(t.last, strings.TrimRight(line, "\n"))
	}
	if over := len(t.last) - t.keep; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(p), nil
}

// Lines are the last lines, oldest first.
func (t *Tail) Lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.last...)
}

// Logger returns a logger whose lines are read by people, if by anyone.
func (t *Tail) Logger() *zap.Logger {
	cfg := zap.NewProductionEncoderConfig()
	cfg.CallerKey = zapcore.OmitKey
	cfg.EncodeTime = func(at time.Time, enc zapcore.PrimitiveArrayEncoder) {
		enc.AppendString(at.UTC().Format("15:04:05.000Z"))
	}
	cfg.EncodeLevel = zapcore.CapitalLevelEncoder
	cfg.EncodeDuration = zapcore.StringDurationEncoder
	cfg.ConsoleSeparator = "  "
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), zapcore.AddSync(t), zapcore.InfoLevel))
}
