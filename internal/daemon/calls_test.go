package daemon

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/call"
)

func TestCallTexts(t *testing.T) {
	refused := map[string]error{"f": errors.New("refused")}
	for _, c := range []struct {
		status      tracker.CallStatus
		rule, all32 string
	}{
		{tracker.CallStatus{}, "", ""},
		{tracker.CallStatus{Part: call.Part{Functions: 2, Attached: 2}}, "", ""},
		{tracker.CallStatus{Part: call.Part{Functions: 2, Attached: 1}}, "attaching: 1 of 2 functions", ""},
		{tracker.CallStatus{Part: call.Part{Functions: 2, Attached: 1, Failed: refused}}, "attached to 1 of 2 functions: see the log", ""},
		{tracker.CallStatus{Part32: call.Part{Functions: 3}}, "", "not attached: no 32-bit program has been seen"},
		{tracker.CallStatus{Part32: call.Part{Functions: 3}, Seen32: true}, "", "attaching: 0 of 3 functions"},
		{tracker.CallStatus{Part32: call.Part{Functions: 3, Attached: 3}, Seen32: true}, "", "attached: 3 functions"},
		{tracker.CallStatus{Part32: call.Part{Functions: 3, Attached: 2, Failed: refused}, Seen32: true}, "", "attached: 2 of 3 functions: see the log"},
		{tracker.CallStatus{Part32: call.Part{Functions: 3}, Err32: errors.New("no map")}, "", "not attached: no map"},
	} {
		assert.Check(t, is.Equal(attaching(&rules.Rule{Track: rules.Syscall}, &c.status), c.rule))
		assert.Check(t, is.Equal(attaching(&rules.Rule{Track: rules.Block}, &c.status), ""))
		assert.Check(t, is.Equal(calls32(&c.status), c.all32))
	}
}
