package tracefs

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts tracefs, at no path")
	}
	before, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if id, err := f.ID("sched", "sched_switch"); err != nil || id == 0 {
		t.Errorf("id %d, %v", id, err)
	}
	fields, err := f.Format("sched", "sched_switch")
	if err != nil || len(fields) < 7 || fields[0].Name != "prev_comm" || !fields[0].Array || fields[1].Name != "prev_pid" || !fields[1].Signed {
		t.Errorf("fields %+v, %v", fields, err)
	}
	if _, err := f.ID("sched", "nothing"); !errors.Is(err, ErrNoEvent) {
		t.Errorf("a tracepoint that is not there: %v", err)
	}
	if after, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Count(string(after), "tracefs") > strings.Count(string(before), "tracefs") {
		t.Errorf("mounted: %s", after)
	}
}

// FuzzFormat proves that any text is read or refused.
func FuzzFormat(f *testing.F) {
	f.Add("\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:__data_loc char[] name;\toffset:1;\tsize:4;\tsigned:0;")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ParseFormat(text) })
}
