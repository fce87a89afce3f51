package snapshot

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// logInterval is how often one kind of trouble may reach the log.
const logInterval = time.Minute

// logLimiter lets one line through each logEvery, and says how many it kept back.
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
