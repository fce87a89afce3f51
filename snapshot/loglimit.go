package snapshot

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

const logInterval = time.Minute

// logLimiter passes one message per logInterval and reports how many it suppressed.
type logLimiter struct {
	mu         sync.Mutex
	next       time.Time
	suppressed int
}

func (l *logLimiter) error(log *zap.Logger, now time.Time, msg string, fields ...zap.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.suppressed++
		return
	}
	if l.suppressed > 0 {
		fields = append(fields, zap.Int("more_since_last", l.suppressed))
	}
	l.suppressed = 0
	l.next = now.Add(logInterval)
	log.Error(msg, fields...)
}
