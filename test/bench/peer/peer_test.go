package peer

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestHookName(t *testing.T) {
	for prog, want := range map[string]string{
		"sched_wakeup_ne": "sched_wakeup_new", "sched_wakeup": "sched_wakeup", "sched_switch": "sched_switch",
		"handle_sched_sw": "sched_switch", "block_rq_comple": "block_rq_complete", "other": "other",
	} {
		assert.Check(t, is.Equal(hookName(prog), want), "%s", prog)
	}
}

func TestValueOf(t *testing.T) {
	info := []byte("pos:\t0\nlink_type:\traw_tracepoint\nprog_id:\t223\ntp_name:\tsched_switch\n")
	assert.Check(t, is.Equal(valueOf(info, "prog_id:"), "223"))
	assert.Check(t, is.Equal(valueOf(info, "tp_name:"), "sched_switch"))
	assert.Check(t, is.Equal(valueOf([]byte("pos:\t0\n"), "prog_id:"), ""), "found a program where there is none")
}
