package snapshot

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// logEvery is how often one kind of trouble may reach the log.
const logEvery = time.Minute

// logLimit lets one line through each logEvery, and says how many it kept back.
type logLimit struct {
	mu   sync.Mutex
	next time.Time
	held int
}

func (l *logLimit) error(log *zap.Logger, now time.Time, msg string, fields ...zap.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.held++
		return
	}
	if l.held > 0 {
		fields = append(fields, zap.Int("more_since_last", l.held))
	}
	l.held = 0
	l.next = now.Add(logEvery)
	log.Error(msg, fields...)
}
