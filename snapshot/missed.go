package snapshot

import "time"

// missed remembers how many programs the kernel had skipped at times of the last minutes. Used by
// Run only.
type missed struct {
	total func() uint64 // nil: unknown
	at    []missedAt    // oldest first
}

type missedAt struct{ mono, total uint64 }

// How often it looks, for which it asks the kernel about each program, and how many times it
// remembers.
const (
	missedEvery = 20 * time.Second
	missedKept  = 64
)

// note looks, if it is time to.
func (m *missed) note(now uint64) {
	if m.total == nil || len(m.at) > 0 && now < m.at[len(m.at)-1].mono+uint64(missedEvery) {
		return
	}
	m.at = append(m.at, missedAt{now, m.total()})
	if len(m.at) > missedKept {
		m.at = m.at[1:]
	}
}

// since counts those from a time in nanoseconds of CLOCK_MONOTONIC, and at the most those since the
// last look before it.
func (m *missed) since(from uint64) uint64 {
	if m.total == nil {
		return 0
	}
	total, before := m.total(), uint64(0)
	for _, s := range m.at {
		if s.mono <= from {
			before = s.total
		}
	}
	return total - min(before, total) // programs that were loaded anew count from 0
}
