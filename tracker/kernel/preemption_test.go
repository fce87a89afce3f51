package kernel

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestPreemption(t *testing.T) {
	const dynamic, realtime = "#1 SMP PREEMPT_DYNAMIC Debian 1 (2026-11-01)", "#1 SMP PREEMPT_RT Debian 1 (2026-11-01)"
	none, functions, all := Preemption{}, Preemption{Functions: true}, Preemption{Functions: true, Tracepoints: true}
	for _, c := range []struct {
		release, version, models, commandLine string
		want                                  Preemption
	}{
		{"6.12.117+deb12-amd64", dynamic, "", "ro quiet", none},
		{"6.12.117+deb12-amd64", dynamic, "", "ro preempt=full quiet", functions},
		{"6.12.117+deb12-amd64", dynamic, "none (voluntary) full lazy\n", "ro preempt=full", none}, // changed since
		{"6.12.117+deb12-amd64", dynamic, "none voluntary (full) lazy\n", "ro", functions},
		{"7.2.13+deb14-amd64", dynamic, "full (lazy)\n", "ro", none},
		{"7.2.13+deb14-amd64", dynamic, "(full) lazy\n", "ro", all},
		{"6.1.0-56-rt-amd64", realtime, "", "", functions},
		{"7.2.13+deb14-rt-amd64", realtime, "", "", all},
		{"10.0", "#1 SMP PREEMPT Thu Nov 12 10:00:00 UTC 2026", "", "", all},
		{"6.12.0", "#1 SMP Thu Nov 12 10:00:00 UTC 2026", "", "", none},
		{"strange", realtime, "", "", functions},
	} {
		got := preemption(c.release, c.version, c.models, c.commandLine)
		assert.Check(t, got == c.want, "%+v: %+v", c, got)
	}
}
