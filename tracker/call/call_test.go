package call

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestEnds: exits come before entries, and twice where tasks are preempted.
func TestEnds(t *testing.T) {
	for version, exits := range map[string]int{
		"#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-11-01)": 1,
		"#1 SMP PREEMPT_RT Debian 6.1.164-1 (2026-11-01)":               2,
		"#1 SMP PREEMPT Thu Nov 12 10:00:00 UTC 2026":                   2,
		"#1 SMP Thu Nov 12 10:00:00 UTC 2026":                           1,
	} {
		got := endsOf(version)
		assert.Check(t, len(got) == exits+1 && got[exits].program == "call_entry", "%s: %v", version, got)
		for _, e := range got[:exits] {
			assert.Check(t, e.program == "call_exit", "%s: %v", version, got)
		}
	}
}
