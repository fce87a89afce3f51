package peer

import "testing"

func TestHookName(t *testing.T) {
	for prog, want := range map[string]string{
		"sched_wakeup_ne": "sched_wakeup_new", "sched_wakeup": "sched_wakeup", "sched_switch": "sched_switch",
		"handle_sched_sw": "sched_switch", "block_rq_comple": "block_rq_complete", "other": "other",
	} {
		if got := hookName(prog); got != want {
			t.Errorf("%s: %s, want %s", prog, got, want)
		}
	}
}

func TestProgramID(t *testing.T) {
	if id, ok := programID([]byte("pos:\t0\nprog_type:\t5\nprog_id:\t223\n")); !ok || id != 223 {
		t.Errorf("got %d, %t", id, ok)
	}
	if _, ok := programID([]byte("pos:\t0\n")); ok {
		t.Error("found a program where there is none")
	}
}
