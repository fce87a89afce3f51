package tracefs

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts tracefs, at no path")
	}
	before, err := os.ReadFile("/proc/self/mounts")
	assert.NilError(t, err)
	f, err := Open()
	assert.NilError(t, err)
	defer func() { assert.Check(t, f.Close()) }()
	id, err := f.ID("sched", "sched_switch")
	assert.Check(t, err == nil && id != 0, "id %d, %v", id, err)
	fields, err := f.Format("sched", "sched_switch")
	assert.Check(t, err == nil && len(fields) >= 7 && fields[0].Name == "prev_comm" && fields[0].Array &&
		fields[1].Name == "prev_pid" && fields[1].Signed, "fields %+v, %v", fields, err)
	_, err = f.ID("sched", "nothing")
	assert.Check(t, is.ErrorIs(err, ErrNoEvent), "a tracepoint that is not there")
	after, err := os.ReadFile("/proc/self/mounts")
	assert.Check(t, err == nil &&
		strings.Count(string(after), "tracefs") <= strings.Count(string(before), "tracefs"), "mounted: %s", after)
}

// FuzzFormat proves that any text is read or refused.
func FuzzFormat(f *testing.F) {
	f.Add("\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:__data_loc char[] name;\toffset:1;\tsize:4;\tsigned:0;")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ParseFormat(text) })
}
