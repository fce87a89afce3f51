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

func TestProgramID(t *testing.T) {
	id, ok := programID([]byte("pos:\t0\nprog_type:\t5\nprog_id:\t223\n"))
	assert.Check(t, ok && id == 223, "got %d, %t", id, ok)
	_, ok = programID([]byte("pos:\t0\n"))
	assert.Check(t, !ok, "found a program where there is none")
}
