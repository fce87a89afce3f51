package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/eventcost"
)

func TestListAccounts(t *testing.T) {
	list := []accounts.Group{
		{Group: "scheduler", Default: true, Values: []accounts.Value{{Name: "cpu_ns", Unit: "ns", Available: true}},
			Cost: &eventcost.Cost{Events: 100, PerSecond: 50, NS: 20.2, CPUPercent: 0.0001}},
		{Group: "network", Default: true, Values: []accounts.Value{
			{Name: "tcp_bytes_sent", Unit: "bytes", Reason: "this kernel has no tracepoint sock_send_length"},
		}},
		{Group: "syscalls"},
	}
	for _, test := range []struct {
		err         error
		out, stderr string
	}{
		{nil, `GROUP      VALUE           UNIT   NS/RUN  RUNS/S     CPU
scheduler                             20      50  0.000%  always on with activities
           cpu_ns          ns
network                                                   on by default
           tcp_bytes_sent  bytes                          unavailable: this kernel has no tracepoint sock_send_length
syscalls                                                  off by default
`, ""},
		{fmt.Errorf("%w: EPERM", eventcost.ErrPrivilege), `GROUP      VALUE           UNIT   NS/RUN  RUNS/S     CPU
scheduler                             20      50  0.000%  always on with activities
           cpu_ns          ns
network                                                   on by default
           tcp_bytes_sent  bytes                          unavailable: this kernel has no tracepoint sock_send_length
syscalls                                                  off by default
`, "tailcam: not measured: it needs root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN: EPERM\n"},
	} {
		var asked time.Duration
		p := deps{accounts: func(_ context.Context, length time.Duration) ([]accounts.Group, error) {
			asked = length
			return list, test.err
		}}
		var stdout, stderr bytes.Buffer
		status := execute(context.Background(), newCLI(&stdout, &stderr, p), []string{"list", "accounts", "--for", "3s"})
		assert.Check(t, status == exitOK && asked == 3*time.Second && stderr.String() == test.stderr,
			"status %d, measured for %s, stderr %q", status, asked, stderr.String())
		assert.Check(t, is.DeepEqual(test.out, trimmed(stdout.String())))
	}
}
