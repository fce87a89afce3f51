package snapshot

// missed remembers how many programs the kernel had skipped by the times of the last snapshots.
// Used by Run only.
type missed struct {
	total func() uint64 // nil: unknown
	at    []missedAt    // oldest first
}

type missedAt struct{ mono, total uint64 }

// missedKept is of how many snapshots the totals are kept.
const missedKept = 64

// since counts those from a time, in nanoseconds of CLOCK_MONOTONIC, to now, and at the most those
// since the last snapshot that was taken before it.
func (m *missed) since(from, now uint64) uint64 {
	if m.total == nil {
		return 0
	}
	total, before := m.total(), uint64(0)
	for _, s := range m.at {
		if s.mono <= from {
			before = s.total
		}
	}
	m.at = append(m.at, missedAt{now, total})
	if len(m.at) > missedKept {
		m.at = m.at[1:]
	}
	return total - min(before, total) // a program that was loaded anew counts from 0
}
