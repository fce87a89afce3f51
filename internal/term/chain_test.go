package term

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/events"
)

func TestChain(t *testing.T) {
	reader := &events.Peer{PID: 7, TID: 8, Comm: "post\x1bgres"}
	o := events.Outlier{
		Track: "chain", DelayNS: 5_012_345,
		Chain: &events.ChainInfo{
			Origin: "irq 36 virtio1-req.0", End: "run", Cut: true,
			Stages: []events.ChainStage{
				{Stage: "irq", What: "36 virtio1-req.0", CPU: 1, NS: 2_345},
				{Stage: "raise", What: "BLOCK", CPU: 1, AtNS: 2_345, NS: 10_000},
				{Stage: "softirq", What: "BLOCK", CPU: 1, AtNS: 12_345, NS: 0},
				{Stage: "wakeup", CPU: 1, AtNS: 12_345, NS: 5_000_000, Task: reader},
			},
		},
	}
	got := what(&o)
	assert.Check(t, got == "from irq 36 virtio1-req.0 until it ran", "got %q", got)
	var out bytes.Buffer
	details{c: New(&out, nil)}.chain(&o)
	const want = `    stages          2.345µs  irq 36 virtio1-req.0  cpu 1
                   10.000µs  softirq BLOCK is raised and waits to run  cpu 1
                    0.000µs  softirq BLOCK  cpu 1
                 5000.000µs  post\x1bgres[8] is woken and waits for a CPU  cpu 1
                 5012.345µs  total
    truncated    more branches or stages than are tracked; the last stage includes the rest
`
	assert.Check(t, out.String() == want, "got\n%s\nwant\n%s", out.String(), want)
}
