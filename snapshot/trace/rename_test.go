package trace

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// renamed copies a trace with other names.
func renamed(t testing.TB, src string, r Renamer) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "copy")
	_, err := Copy(context.Background(), dst, src, &CopyOptions{Rename: r})
	assert.NilError(t, err)
	return dst
}

// namesIn lists the strings in the body of an event.
func namesIn(v reflect.Value, add func(field, name string)) {
	for i := range v.NumField() {
		switch f := v.Field(i).Interface().(type) {
		case Comm:
			add(v.Type().Field(i).Name, f.String())
		case string:
			add(v.Type().Field(i).Name, f)
		}
	}
}

// TestRename: every event keeps all but its names, and of those none.
func TestRename(t *testing.T) {
	b := newBuilder(0, 1_000_000_000)
	b.oneOfEach()
	b.oneOfEachRare()
	known := Known{
		Tasks:   []KnownTask{{TID: 10, PID: 10, Comm: "known"}},
		Files:   []FileState{{PID: 10, FD: 3, Name: "/srv/file"}},
		Devices: []DeviceState{{Dev: 8 << 20, Name: "sda"}},
	}
	src := write(t, Trace{
		CPUs: []CPU{{CPU: 0, Records: b.out}}, ClockOffset: time.Hour, SyscallName: syscallName, Known: &known,
		Outliers: []Outlier{{Rule: "slow", Track: "offcpu", Start: 1_000_000_000, End: 1_000_000_500, Comm: "victim"}},
		Env:      Env{Hostname: "host", BootID: "3d0f1a5e-7777-4f13-9f43-acacacacacac", Name: "snapshot"},
	})
	want, r, err := readAll(t, src)
	assert.NilError(t, err)
	uuid := r.meta.uuid

	same, r, err := readAll(t, renamed(t, src, func(_ NameKind, name string) string { return name }))
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(want, same), "the same names")
	assert.Check(t, r.meta.uuid != uuid, "another trace has an id of its own")
	assert.Check(t, is.DeepEqual(r.Env(), mustMeta(t, src).env))

	const long = "a name that is longer than any field has room for, by far \x00 and more"
	dst := renamed(t, src, func(k NameKind, _ string) string {
		if k == BootName {
			return "00000000-0000-0000-0000-000000000001"
		}
		return long
	})
	got, r, err := readAll(t, dst)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(got, len(want)))
	tried := 0
	for i := range got {
		assert.Check(t, got[i].Time == want[i].Time && got[i].Type == want[i].Type && got[i].TID == want[i].TID && got[i].CPU == want[i].CPU)
		if got[i].Body == nil {
			continue
		}
		if m, ok := got[i].Body.(Timer); ok && got[i].Type == TimerEntry {
			assert.Check(t, m.TCP.Peer == [4]byte{} && m.TCP.Port != 0 && want[i].Body.(Timer).TCP.Peer != [4]byte{}, "%+v", m)
		}
		namesIn(reflect.ValueOf(got[i].Body), func(field, name string) {
			tried++
			kept := field == "Rule" || field == "Track" || got[i].Type == SyscallEntry || got[i].Type == SyscallExit || name == ""
			assert.Check(t, kept || strings.HasPrefix(long, name), "%T.%s is %q", got[i].Body, field, name)
		})
	}
	assert.Check(t, tried > 20, "%d names", tried)
	assert.Check(t, is.Equal(r.Env().BootID, "00000000-0000-0000-0000-000000000001"))
	assert.Check(t, is.Equal(r.Env().Hostname, strings.ReplaceAll(long, "\x00", " ")))
	text, err := os.ReadFile(filepath.Join(dst, kernelDir, "metadata"))
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(text), "3d0f1a5e"), "the clock has the boot id, too")
}
