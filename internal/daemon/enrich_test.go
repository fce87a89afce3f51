package daemon

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func TestTracerFrames(t *testing.T) {
	for _, tc := range []struct{ in, want []string }{
		{
			[]string{"bpf_prog_3784263898ac752a_sys_exit+0x9d4 [bpf]", "bpf_trace_run2+0xf2", "__bpf_trace_sys_exit+0xc", "syscall_exit_work+0xbc"},
			[]string{"syscall_exit_work+0xbc"},
		},
		// The program itself may be younger than the symbol table.
		{[]string{"[unknown] 0xffffffffc0001234", "bpf_trace_run2+0xf2", "do_nanosleep+0x1"}, []string{"do_nanosleep+0x1"}},
		{[]string{"do_nanosleep+0x1", "schedule+0x2"}, []string{"do_nanosleep+0x1", "schedule+0x2"}},
		{nil, nil},
	} {
		got := tc.in[tracerFrames(tc.in):]
		assert.Check(t, slices.Equal(got, tc.want), "%v: got %v, want %v", tc.in, got, tc.want)
	}
}
